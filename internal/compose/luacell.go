package compose

import (
	"fmt"
	"strings"
)

// readStep writes Lua that reads the state of a rule with a Step.
func (p *part) readStep(w *writer, v Verb) {
	if v.decides() {
		w.f("local room%d = 0\n", p.rule)
	}
	w.f("local %s = 0%s\n", p.suffix(p.cell, "", ", "), strings.Repeat(", 0", len(p.cell)-1))
	if len(p.locals) > 0 {
		w.f("local %s\n", p.suffix(p.locals, "", ", "))
	}
	w.f("do\n")
	p.cost(w)
	w.f("local room = 0%s", p.sections["read"])
	switch {
	case v == Settle:
		w.f("rooms[%d] = room\n", p.rule) // few locals are left
	case v.decides():
		w.f("room%d = room\n", p.rule)
	}
	w.f("end\n")
}

// readCell writes Lua that reads the cell of a rule. A value consists of the tag, the
// integers of the cell, and sometimes a tail: the generation and the note, which refunds
// need. A verb that writes a marker copies the generation and the first integer of the note
// as text.
func (p *part) readCell(w *writer, v Verb) {
	i := p.rule
	tail := append([]string{"gen"}, p.note...)
	if v.decides() { // other verbs need these names only in the block below, and a function has at most 200 locals
		w.f("local room%d, prev%d, v%d = 0, -1\n", i, i, i)
	}
	w.f("local tail%d, %s = ''%s\n", i, p.suffix(p.cell, "", ", "), strings.Repeat(", 0", len(p.cell)))
	if v.Markers() {
		w.f("local %s\n", p.suffix(tail, "", ", "))
	}
	w.f("do\n")
	if !v.decides() {
		w.f("local prev%d, v%d\n", i, i)
	}
	w.f("v%d = redis.pcall('GET', %s)\nif v%d then\n", i, luaKey(p.key), i)
	w.f("if v%d.err then\nif string.find(v%d.err, 'WRONGTYPE', 1, true) then return %s end\nreturn v%d\nend\n", i, i, foreign(p.key), i)
	required, optional := p.cell[:p.short], p.cell[p.short:]
	w.f("local %s, more = string.match(v%d, '^%s%s(.*)$')\n", p.suffix(required, "t_", ", "), i, p.head.Tag[:], strings.Repeat(" (%d+)", p.short))
	w.f("if not t_%s%d then return %s end\n", required[0], i, foreign(p.key))
	p.numbers(w, required)
	w.f("if more ~= '' then\n")
	if len(optional) > 0 {
		w.f("local %s\n", p.suffix(optional, "t_", ", "))
		w.f("%s, tail%d = string.match(more, '^%s(.*)$')\n", p.suffix(optional, "t_", ", "), i, strings.Repeat(" (%d+)", len(optional)))
		w.f("if not t_%s%d then return %s end\n", optional[0], i, foreign(p.key))
		w.f("if %s ~= '0' then\n", p.suffix(optional, "t_", " ~= '0' or "))
		p.numbers(w, optional)
		w.f("if %s > %s then return %s end\nend\n", p.suffix(optional, "", " > "+maxInt+" or "), maxInt, foreign(p.key))
	} else {
		w.f("tail%d = more\n", i)
	}
	w.f("if tail%d ~= '' then\n", i)
	w.f("local %s = string.match(tail%d, '^%s$')\n", p.suffix(tail, "t_", ", "), i, strings.Repeat(" (%d+)", len(tail)))
	w.f("if not t_gen%d", i)
	for _, name := range tail { // an integer of at most 15 digits is in range
		w.f(" or #t_%s%d > 15 and t_%s%d + 0.0 > %s", name, i, name, i, maxInt)
	}
	w.f(" then return %s end\n", foreign(p.key))
	switch {
	case v == Refund || v == Settle:
		p.numbers(w, tail)
	case v.marks():
		w.f("%s = %s\n", p.suffix(tail, "", ", "), p.suffix(tail, "t_", ", "))
	}
	w.f("end\nend\n")
	w.f("if %s > %s then return %s end\n", p.suffix(required, "", " > "+maxInt+" or "), maxInt, foreign(p.key))
	w.f("local ends%sprev%d = ends\n", p.sections["ends"], i)
	w.f("if ends <= now then %s, tail%d = 0%s, '' end\nend\n", p.suffix(p.cell, "", ", "), i, strings.Repeat(", 0", len(p.cell)-1))
	if v.decides() {
		w.f("do%send\nlocal room%sroom%d = room\n", p.sections["settle"], p.sections["room"], i)
	}
	w.f("end\n")
}

// numbers writes Lua that parses the text of each name.
func (p *part) numbers(w *writer, names []string) {
	for _, name := range names {
		w.f("%s%d = t_%s%d + 0.0\n", name, p.rule, name, p.rule)
	}
}

// luaLife is Lua that sets a local life to the TTL of a key whose state is in use until ends, as
// text, in milliseconds. from is the start of the quantum that contains ends. In Lua 5.4, %d
// formats no number with a fraction.
const luaLife = "local life = (from - now + 1049575) / 1000\nlife = string.format('%d', life - life % 1 + slack)\n"

// ints writes Lua that sets a local to the text before, followed by the integers of the cell,
// each after a space. Optional integers are left out if all of them are 0 and the value has no
// tail.
func (p *part) ints(w *writer, local, before string) {
	required, optional := p.cell[:p.short], p.cell[p.short:]
	w.f("local %s = string.format('%s%s', %s)\n", local, before, strings.Repeat(" %d", p.short), p.suffix(required, "", ", "))
	if len(optional) > 0 {
		w.f("if %s ~= 0 then %s = %s .. string.format('%s', %s)\n", p.suffix(optional, "", " ~= 0 or "), local, local, strings.Repeat(" %d", len(optional)), p.suffix(optional, "", ", "))
		w.f("elseif tail%d ~= '' then %s = %s .. '%s' end\n", p.rule, local, local, strings.Repeat(" 0", len(optional)))
	}
}

// writeCell writes Lua that consumes n tokens. If mark is not empty, it also writes a marker. A
// cell without a generation gets the generation gen.
func (p *part) writeCell(w *writer, mark, gen string) {
	i := p.rule
	w.f("%slocal ends%slocal from = ends - ends %% 1048576\n", p.sections["take"][1:], p.sections["ends"])
	value := "value"
	if mark == "" {
		p.ints(w, "value", string(p.head.Tag[:]))
		w.f("if tail%d ~= '' then value = value .. tail%d end\n", i, i)
	} else {
		value = fmt.Sprintf("'%s' .. ints .. tail%d", p.head.Tag[:], i)
		tail := append([]string{"gen"}, p.note...)
		w.f("if tail%d == '' then\n", i)
		w.f("tail%d, %s = ' ' .. %s .. '%s', %s%s\nend\n", i, p.suffix(tail, "", ", "), gen, strings.Repeat(" 0", len(p.note)), gen, strings.Repeat(", '0'", len(p.note)))
		p.ints(w, "ints", "")
		w.WriteString(luaLife)
	}
	if p.meter.Absolute {
		w.f("if slack == 0 and from <= prev%d and prev%d < from + 1048576 then\nredis.call('SET', %s, %s, 'KEEPTTL')\nelse\n", i, i, luaKey(p.key), value)
	}
	if mark == "" {
		w.WriteString(luaLife)
	}
	w.f("redis.call('SET', %s, %s, 'PX', life)\n", luaKey(p.key), value)
	if p.meter.Absolute {
		w.f("end\n")
	}
	if mark != "" {
		w.f("redis.call('SET', %s, %s .. ints", luaKey(p.marker), mark)
		if len(p.note) > 0 {
			w.f(" .. ' ' .. %s%d", p.note[0], i)
		}
		w.f(", 'PX', life)\n")
	}
}
