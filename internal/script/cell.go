package script

import (
	"fmt"
	"strings"
)

// readStep writes Lua that reads the state of a rule with a Step.
func (r *Rule) readStep(w *writer, v Verb) {
	if v.Decides() {
		w.f("local room%d = 0\n", r.number)
	}
	w.f("local %s = 0%s\n", r.suffix(r.Cell, "", ", "), strings.Repeat(", 0", len(r.Cell)-1))
	if len(r.locals) > 0 {
		w.f("local %s\n", r.suffix(r.locals, "", ", "))
	}
	w.f("do\n")
	if r.unit == 0 || !v.Adjusts() {
		r.cost(w)
	}
	w.f("local room = 0%s", r.sections["read"])
	switch {
	case v.Settles():
		w.f("rooms[%d] = room\n", r.number) // few locals are left
	case v.Decides():
		w.f("room%d = room\n", r.number)
	}
	w.f("end\n")
}

// readCell writes Lua that reads the cell of a rule. A value consists of the tag, the
// integers of the cell, and sometimes a tail: the generation and the note, which refunds
// need. A verb that writes a marker copies the generation and the first integer of the
// note as text.
func (r *Rule) readCell(w *writer, v Verb) {
	i := r.number
	tail := append([]string{"gen"}, r.Note...)
	if v.Decides() { // other verbs need these names only in the block below, and a function has at most 200 locals
		w.f("local room%d, prev%d, v%d = 0, -1\n", i, i, i)
	}
	w.f("local tail%d, %s = ''%s\n", i, r.suffix(r.Cell, "", ", "), strings.Repeat(", 0", len(r.Cell)))
	if v.Markers() {
		w.f("local %s\n", r.suffix(tail, "", ", "))
	}
	w.f("do\n")
	if !v.Decides() {
		w.f("local prev%d, v%d\n", i, i)
	}
	w.f("v%d = redis.pcall('GET', %s)\nif v%d then\n", i, luaKey(r.key), i)
	w.f("if v%d.err then\nif string.find(v%d.err, 'WRONGTYPE', 1, true) then return %s end\nreturn v%d\nend\n", i, i, foreign(r.key), i)
	required, optional := r.Cell[:r.Short], r.Cell[r.Short:]
	w.f("local %s, more = string.match(v%d, '^%s%s(.*)$')\n", r.suffix(required, "t_", ", "), i, r.Head.Tag[:], strings.Repeat(" (%d+)", r.Short))
	w.f("if not t_%s%d%s then return %s end\n", required[0], i, r.padded(required), foreign(r.key))
	r.numbers(w, required)
	w.f("if more ~= '' then\n")
	if len(optional) > 0 {
		w.f("local %s\n", r.suffix(optional, "t_", ", "))
		w.f("%s, tail%d = string.match(more, '^%s(.*)$')\n", r.suffix(optional, "t_", ", "), i, strings.Repeat(" (%d+)", len(optional)))
		w.f("if not t_%s%d%s then return %s end\n", optional[0], i, r.padded(optional), foreign(r.key))
		w.f("if %s ~= '0' then\n", r.suffix(optional, "t_", " ~= '0' or "))
		r.numbers(w, optional)
		w.f("if %s > %s then return %s end\nend\n", r.suffix(optional, "", " > "+maxInt+" or "), maxInt, foreign(r.key))
	} else {
		w.f("tail%d = more\n", i)
	}
	w.f("if tail%d ~= '' then\n", i)
	w.f("local %s = string.match(tail%d, '^%s$')\n", r.suffix(tail, "t_", ", "), i, strings.Repeat(" (%d+)", len(tail)))
	w.f("if not t_gen%d%s", i, r.padded(tail))
	for _, name := range tail { // an integer of at most 15 digits is in range
		w.f(" or #t_%s%d > 15 and t_%s%d + 0.0 > %s", name, i, name, i, maxInt)
	}
	w.f(" then return %s end\n", foreign(r.key))
	switch {
	case v.Adjusts():
		r.numbers(w, tail)
	case v.Marks():
		w.f("%s = %s\n", r.suffix(tail, "", ", "), r.suffix(tail, "t_", ", "))
	}
	w.f("end\nend\n")
	w.f("if %s > %s then return %s end\n", r.suffix(required, "", " > "+maxInt+" or "), maxInt, foreign(r.key))
	w.f("local ends%sprev%d = ends\n", r.sections["ends"], i)
	w.f("if ends <= now then %s, tail%d = 0%s, '' end\nend\n", r.suffix(r.Cell, "", ", "), i, strings.Repeat(", 0", len(r.Cell)-1))
	if v.Decides() {
		w.f("do%send\nlocal room%sroom%d = room\n", r.sections["advance"], r.sections["room"], i)
	}
	w.f("end\n")
}

// padded returns Lua that is true, behind other conditions, if the text of a name has
// leading zeros. Texts are cheaper to compare than numbers, and lengths than texts.
func (r *Rule) padded(names []string) string {
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, " or #t_%s%d > 1 and t_%s%d < '1'", name, r.number, name, r.number)
	}
	return b.String()
}

// numbers writes Lua that parses the text of each name.
func (r *Rule) numbers(w *writer, names []string) {
	for _, name := range names {
		w.f("%s%d = t_%s%d + 0.0\n", name, r.number, name, r.number)
	}
}

// luaLife is Lua that sets a local life to the TTL of a key whose state is in use until
// ends, as text, in milliseconds. from is the start of the quantum that contains ends. In
// Lua 5.4, %d formats no number with a fraction.
const luaLife = "local life = (from - now + 1049575) / 1000\nlife = string.format('%d', life - life % 1 + slack)\n"

// ints writes Lua that sets a local to the text before, followed by the integers of the
// cell, each after a space. Optional integers are left out if all of them are 0 and the
// value has no tail.
func (r *Rule) ints(w *writer, local, before string) {
	required, optional := r.Cell[:r.Short], r.Cell[r.Short:]
	w.f("local %s = string.format('%s%s', %s)\n", local, before, strings.Repeat(" %d", r.Short), r.suffix(required, "", ", "))
	if len(optional) > 0 {
		w.f("if %s ~= 0 then %s = %s .. string.format('%s', %s)\n", r.suffix(optional, "", " ~= 0 or "), local, local, strings.Repeat(" %d", len(optional)), r.suffix(optional, "", ", "))
		w.f("elseif tail%d ~= '' then %s = %s .. '%s' end\n", r.number, local, local, strings.Repeat(" 0", len(optional)))
	}
}

// writeCell writes Lua that consumes n tokens from r. If mark is not empty, it also writes
// a marker. A cell without a generation gets that of the decision.
func (s *Source) writeCell(w *writer, r *Rule, v Verb, mark string) {
	i, gen := r.number, s.shared(v, ArgGen)
	w.f("%slocal ends%slocal from = ends - ends %% 1048576\n", r.sections["take"][1:], r.sections["ends"])
	value := "value"
	if mark == "" {
		r.ints(w, "value", string(r.Head.Tag[:]))
		w.f("if tail%d ~= '' then value = value .. tail%d end\n", i, i)
	} else {
		value = fmt.Sprintf("'%s' .. ints .. tail%d", r.Head.Tag[:], i)
		tail := append([]string{"gen"}, r.Note...)
		w.f("if tail%d == '' then\n", i)
		w.f("tail%d, %s = ' ' .. %s .. '%s', %s%s\nend\n", i, r.suffix(tail, "", ", "), gen, strings.Repeat(" 0", len(r.Note)), gen, strings.Repeat(", '0'", len(r.Note)))
		r.ints(w, "ints", "")
		w.WriteString(luaLife)
	}
	if r.Meter.Absolute {
		w.f("if slack == 0 and from <= prev%d and prev%d < from + 1048576 then\nredis.call('SET', %s, %s, 'KEEPTTL')\nelse\n", i, i, luaKey(r.key), value)
	}
	if mark == "" {
		w.WriteString(luaLife)
	}
	w.f("redis.call('SET', %s, %s, 'PX', life)\n", luaKey(r.key), value)
	if r.Meter.Absolute {
		w.f("end\n")
	}
	if mark != "" {
		note, end := "", " .. ' 0'"
		if len(r.Note) > 0 {
			note = fmt.Sprintf(" .. ' ' .. %s%d", r.Note[0], i)
		}
		if s.lives(r) {
			end = " .. string.format(' %d', ends)"
			s.extend(w, r, v, "")
		}
		w.f("redis.call('SET', %s, %s .. ints%s%s, 'PX', life)\n", luaKey(r.Marker), mark, note, end)
	}
}

// extend writes Lua that makes ends the END of the marker of a decision that ends then, and
// life its TTL. least is Lua for the END of an earlier marker, or "". If neither gives the
// marker an END, extend writes a local stop that is 0.
func (s *Source) extend(w *writer, r *Rule, v Verb, least string) {
	switch stop := "now + " + s.shared(v, ArgLife); {
	case !s.lives(r):
		w.f("local stop = %s\n", least)
	case least == "":
		w.f("local stop = %s\n", stop)
	default:
		w.f("local stop = math.max(%s, %s)\n", stop, least)
	}
	w.f("if stop > ends then\nends = stop\nlocal from = ends - ends %% 1048576\n%send\n", strings.Replace(luaLife, "local ", "", 1))
}

// markNothing writes Lua that begins with "else": it writes the marker of a decision that
// consumes nothing from r, which counts a unit.
func (s *Source) markNothing(w *writer, r *Rule, v Verb) {
	life, asked := s.shared(v, ArgLife), luaArg(r.arg+len(r.Args))
	w.f("elseif %s ~= '0' then\nlocal ends = now + %s\nlocal from = ends - ends %% 1048576\n%s", life, life, luaLife)
	w.f("redis.call('SET', %s, '%s ' .. %s .. ' 0 0 ' .. %s .. ' ' .. %s .. string.format('%s %%d', ends), 'PX', life)\n",
		luaKey(r.Marker), MarkTag[:], s.shared(v, ArgGen), asked, s.fit(r, v), strings.Repeat(" 0", r.MarkInts()-MarkHead-1))
}
