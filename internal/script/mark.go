package script

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/algorithm/contract"
)

// marked returns the rules that have a marker, and Lua for the keys of the markers.
func (s *Source) marked() (rules []*Rule, keys []string) {
	for _, r := range s.Rules {
		if r.Marker > 0 {
			rules, keys = append(rules, r), append(keys, luaKey(r.Marker))
		}
	}
	return rules, keys
}

// mark returns Lua for the tag and the first integers of a marker of r.
func (s *Source) mark(r *Rule, v Verb) string {
	gen, asked, held := s.shared(v, ArgGen), s.shared(v, ArgCost), ""
	if r.Step == nil {
		gen = fmt.Sprintf("gen%d", r.number)
	}
	total := asked
	if v.TakesUpTo() || v.Forces() {
		total = "string.format('%d', take)"
	}
	if v.TakesUpTo() {
		asked = total
	}
	if r.unit > 0 {
		asked = luaArg(r.arg + len(r.Args))
		if total = asked; v.Forces() {
			total = "string.format('%d', n)"
		}
	}
	switch {
	case v.Forces():
		held = "string.format('%d', n)"
	case r.own:
		held = luaArg(r.arg + len(r.Args))
	default:
		held = total
	}
	return fmt.Sprintf("'%s ' .. %s .. ' ' .. %s .. ' ' .. %s .. ' ' .. %s .. ' ' .. %s", MarkTag[:], gen, held, total, asked, s.fit(r, v))
}

// fit returns Lua for FIT of the rule's limit, as text.
func (s *Source) fit(r *Rule, v Verb) string {
	return luaArg(s.Arg(v, ArgFit) + r.Marker - s.Keys)
}

// sameFit returns Lua that is true if FIT of the marker m allows a refund to r.
func (s *Source) sameFit(r *Rule, v Verb, m string) string {
	return fmt.Sprintf("(%s[%d] - %s) %% %d == 0", m, MarkFit+1, s.fit(r, v), int64(1)<<FitBits)
}

// readMark writes Lua that sets mark to the text of the marker of r, and m to its
// integers. If the marker is missing or has ended, m is nil.
func (s *Source) readMark(w *writer, r *Rule, v Verb, m string) {
	w.f("mark = redis.pcall('GET', %s)\nif mark then\n", luaKey(r.Marker))
	w.f("if mark.err then\nif string.find(mark.err, 'WRONGTYPE', 1, true) then return %s end\nreturn mark\nend\n", foreign(r.Marker))
	w.f("%s = {string.match(mark, '^i[%c%c%c]%s$')}\n", m, MarkTag[1], SettledTag[1], KeptTag[1], strings.Repeat(" (%d+)", r.MarkInts()))
	w.f("if not %s[1] then return %s end\n", m, foreign(r.Marker))
	w.f("for i = 1, %d do\n%s[i] = %s[i] + 0.0\nif %s[i] > %s then return %s end\nend\n", r.MarkInts(), m, m, m, maxInt, foreign(r.Marker))
	end := fmt.Sprintf("%s[%d]", m, r.MarkInts())
	if r.Step != nil {
		w.f("if %s <= now then %s = nil end\nend\n", end, m)
		return
	}
	var was []string
	for i := range r.Cell {
		was = append(was, fmt.Sprintf("%s[%d]", m, MarkHead+1+i))
	}
	w.f("if %s > 0 and %s <= now then\n%s = nil\nelse", end, end, m)
	if r.Meter.Absolute {
		w.f("\n")
	} else {
		w.f("if %s then\n", s.sameFit(r, v, m))
	}
	w.f("local %s = %s\n", r.suffix(r.Cell, "", ", "), strings.Join(was, ", "))
	w.f("local ends%sif ends <= now then\nif %s > 0 then %s.ended = true else %s = nil end\nend\nend\nend\n", r.sections["ends"], end, m, m)
}

// spent writes Lua that sets first to m, the marker that was just read, as marks.spent does.
func (s *Source) spent(w *writer, m string) {
	w.f("if %s and (kept or string.byte(mark, 2) ~= %d) then first, kept = %s, string.byte(mark, 2) == %d end\n", m, KeptTag[1], m, KeptTag[1])
}

// replay writes Lua that returns the reply to a repeated decision, if a marker is there.
// The marker of any rule is enough, because the markers expire at different times. The
// reply has a code behind the state of the rules, and then the text of each marker.
func (s *Source) replay(w *writer, v Verb) {
	if _, markers := s.marked(); len(markers) > 1 { // one command for all markers, which most decisions do not find
		w.f("if redis.call('EXISTS', %s) > 0 then\n", strings.Join(markers, ", "))
	} else {
		w.f("do\n")
	}
	w.f("local marks, kept, first, mark, m = '', true\n")
	if s.units > 0 {
		w.f("local found, other, asked = false\n")
	}
	for _, r := range s.Rules {
		if r.Marker == 0 {
			w.f("marks = marks .. ';'\n")
			continue
		}
		w.f("m = nil\n")
		s.readMark(w, r, v, "m")
		if r.unit > 0 {
			w.f("if m then\nfound = true\nif m[4] ~= %s and not other then other, asked = %d, m[4] end\nend\n", r.tokens(), OtherCost+r.number)
		} else {
			s.spent(w, "m")
		}
		w.f("marks = marks .. ';' .. (m and mark or '')\n")
	}
	again := s.again(v)
	different := "first[4] ~= n"
	if v.TakesUpTo() {
		different = "first[4] > most"
	}
	if s.units == 0 {
		w.f("if first then\n")
		w.f("local code = ';%d'\nif %s then code = ';%d' end\n", Replayed, different, OtherCost)
		s.reply(w, fmt.Sprintf("string.format('%%d;', first[code == ';%d' and 3 or 4])", Replayed))
	} else {
		w.f("if first or found then\n")
		w.f("if first and %s then other, asked = %d, first[4] end\n", different, OtherCost)
		w.f("local code = ';' .. (other or %d)\n", Replayed)
		s.reply(w, "string.format('%d;', other and asked or first and first[3] or n)") // n is 1 for a TakeUpTo
	}
	w.f("%sreturn reply .. code .. marks\nend\nend\n", again)
}

// again returns Lua for a repeated decision that takes or renews its leases, unless one is
// missing or the key is paused.
func (s *Source) again(v Verb) string {
	if !s.Bills || v.Forces() {
		return ""
	}
	w, free := new(writer), fmt.Sprintf("code == ';%d'", Replayed)
	for _, r := range s.Rules {
		if r.Leases() || r.Type == contract.PauseRule {
			free += fmt.Sprintf(" and room%d >= %s", r.number, r.tokens())
		}
	}
	w.f("if %s then\n", free)
	for _, r := range s.leases() {
		w.f("do\n")
		r.cost(w)
		w.f("%send\n", r.sections["write"][1:])
	}
	w.f("end\n")
	return w.String()
}

// adjusted returns Lua for the last part of the reply of a verb that Adjusts. If the verb
// Finishes, it has freed: see finish. One format needs fewer registers than more operands.
func (s *Source) adjusted(v Verb, cost, kept, freed string) string {
	switch {
	case !v.Finishes():
		return fmt.Sprintf("string.format(';%%d %%d', %s, %s)", cost, kept)
	case len(s.leases()) == 0:
		return fmt.Sprintf("string.format(';%%d %%d 0', %s, %s)", cost, kept)
	}
	return fmt.Sprintf("string.format(';%%d %%d %%d', %s, %s, %s)", cost, kept, freed)
}

// finish writes Lua that releases the leases, and sets freed to 1 if one was held. It follows
// the last read that can fail.
func (s *Source) finish(w *writer, v Verb, freed string) {
	if rules := s.leases(); v.Finishes() && len(rules) > 0 {
		w.f("do\n")
		s.release(w, rules)
		w.f("%s = gave\nend\n", freed)
	}
}

// refund writes Lua that does what run.refund does. m is a table, as in settle.
func (s *Source) refund(w *writer, v Verb) {
	w.f("local m, gave, some, cost, kept, first, mark = {}, 0, 0, 0, true\n")
	rules, markers := s.marked()
	for _, r := range rules {
		s.readMark(w, r, v, fmt.Sprintf("m[%d]", r.number))
		if r.unit == 0 {
			s.spent(w, fmt.Sprintf("m[%d]", r.number))
		}
	}
	if v == FinishRefund {
		w.f("local found = next(m) and '1;' or '0;'\n")
	}
	s.finish(w, v, "m.freed") // after the last next(m)
	w.f("kept = 0\n")
	in := func(table string) func(*Rule) string {
		return func(r *Rule) string { return fmt.Sprintf("%s[%d]", table, r.number) }
	}
	if s.named {
		w.f("local was, left = {}, {}\n")
	}
	for _, r := range rules {
		asked := "n > 0 and m[%d][4] > n"
		switch {
		case v == FinishRefund:
			continue
		case r.unit > 0:
			asked = r.tokens() + " >= 0 and m[%d][4] > " + r.tokens()
		case r.own:
			continue
		}
		w.f("if m[%d] and "+asked+" then return '%d;' .. sec .. ' ' .. usec .. ';0 0'%s end\n", r.number, r.number, TooLittle, s.costs(in("left")))
	}
	for _, r := range rules {
		i := r.number
		spent := fmt.Sprintf("m[%d][3 - m[%d][5] %% 2]", i, i)
		if r.unit > 0 {
			spent = fmt.Sprintf("m[%d][3]", i)
		}
		if s.named {
			w.f("if m[%d] then was[%d], left[%d] = %s, 0 end\n", i, i, i, spent)
		}
		w.f("if m[%d] and not m[%d].ended and %s > 0 then\n", i, i, spent)
		s.giveBack(w, r, v, spent)
		w.f("if gave == 1 then some = 1 end\nif gave == 2 then\nkept = kept + %d\n", 1<<(i-1))
		if !r.own {
			w.f("if m[%d][5] %% 2 == 0 then cost = math.max(cost, m[%d][3]) end\n", i, i)
		}
		if s.named {
			w.f("left[%d] = was[%d]\n", i, i)
		}
		w.f("end\nend\n")
	}
	old := "first[3]"
	if s.named {
		old = "first and first[3] or 0"
	}
	w.f("if kept > 0 and some == 0 then return %s .. sec .. ' ' .. usec .. %s%s end\n", found(v, "'0;'"), s.adjusted(v, old, "kept", "m.freed"), s.costs(in("was")))
	if len(markers) > 0 {
		w.f("redis.call('UNLINK', %s)\n", strings.Join(markers, ", "))
	}
	w.f("return %s .. sec .. ' ' .. usec .. %s%s\n", found(v, "some .. ';'"), s.adjusted(v, "cost", "kept", "m.freed"), s.costs(in("left")))
}

// found returns Lua for the head of the reply of a Refund, or of a FinishRefund.
func found(v Verb, refund string) string {
	if v == FinishRefund {
		return "found"
	}
	return refund
}

// costs returns Lua that appends to a reply what the decision costs in each rule, plus 1,
// or 0 if the rule has no marker. of returns Lua for the cost, or for nil. If no units are
// named, costs returns "".
func (s *Source) costs(of func(*Rule) string) string {
	if !s.named {
		return ""
	}
	list := make([]string, len(s.Rules))
	for i, r := range s.Rules {
		list[i] = "(" + of(r) + " or -1) + 1"
	}
	return fmt.Sprintf(" .. string.format('%s', %s)", strings.Repeat(" %d", len(list)), strings.Join(list, ", "))
}

// giveBack writes Lua that does what run.giveBack does for the marker m[i]. It sets gave to 1 if
// anything was refunded, to 2 if the rule keeps the tokens, and otherwise to 0.
func (s *Source) giveBack(w *writer, r *Rule, v Verb, k string) {
	w.f("do\nlocal n, was = math.min(%s, m[%d][2]), m[%d]\ngave = 2\n", k, r.number, r.number)
	w.f("if n > 0 and %s then\ngave = 0\n", s.sameFit(r, v, "was"))
	if r.Step != nil {
		w.f("local keep, gen = was[2] - n, was[1]\ndo%send\n", r.sections["refund"])
	} else {
		r.refundCell(w)
	}
	w.f("if gave < 2 then was[2] = was[2] - n end\nend\nend\n")
}

// refundCell writes Lua that refunds a rule that keeps a cell. A changed cell counts as a
// refund.
func (r *Rule) refundCell(w *writer) {
	i := r.number
	w.f("if tail%d ~= '' and gen%d == was[1] then\n", i, i)
	var was, ints, changed []string
	for _, name := range r.Cell {
		was = append(was, "was_"+name)
		changed = append(changed, fmt.Sprintf("%s%d ~= b_%s%d", name, i, name, i))
	}
	if len(r.Note) > 0 {
		was = append(was, "was_moved")
	}
	for j := range was {
		ints = append(ints, fmt.Sprintf("was[%d]", MarkHead+1+j))
	}
	w.f("local %s = %s\n", strings.Join(was, ", "), strings.Join(ints, ", "))
	w.f("local %s = %s\n", r.suffix(r.Cell, "b_", ", "), r.suffix(r.Cell, "", ", "))
	w.f("do%send\n", r.sections["refund"])
	w.f("if %s then\ngave = 1\n", strings.Join(changed, " or "))
	w.f("if %s == 0 then\nredis.call('UNLINK', %s)\nelse\n", r.suffix(r.Cell, "", " == 0 and "), luaKey(r.key))
	r.ints(w, "value", string(r.Head.Tag[:]))
	w.f("value = value .. string.format('%s', %s)\n", strings.Repeat(" %d", 1+len(r.Note)), r.suffix(append([]string{"gen"}, r.Note...), "", ", "))
	w.f("redis.call('SET', %s, value, 'KEEPTTL')\nend\nelse\ngave = 2\nend\nend\n", luaKey(r.key))
}
