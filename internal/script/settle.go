package script

import (
	"fmt"
	"strings"
)

// settle writes Lua that does what run.settle does. m and by are tables, because a function
// has at most 200 locals.
func (s *Source) settle(w *writer, v Verb) {
	w.f("local m, by, keeps, kept, first, mark, gave = {}, {}, {}, true\n")
	rules, _ := s.marked()
	for _, r := range rules {
		s.readMark(w, r, v, fmt.Sprintf("m[%d]", r.number))
		if r.unit == 0 {
			s.spent(w, fmt.Sprintf("m[%d]", r.number))
		}
	}
	s.finish(w, v, "by.freed")
	if !s.named && v == Settle {
		w.f("if not first then return '0;' .. sec .. ' ' .. usec .. ';0 0' end\n")
		s.settleCost(w, rules, v)
		w.f("return '1;' .. sec .. ' ' .. usec .. %s\n", s.adjusted(v, "total", "kept", ""))
		return
	}
	costs := s.costs(func(r *Rule) string {
		if r.own && r.unit == 0 {
			return fmt.Sprintf("m[%d] and m[%d][2]", r.number, r.number)
		}
		return fmt.Sprintf("m[%d] and m[%d][3]", r.number, r.number)
	})
	w.f("if not next(m) then return '0;' .. sec .. ' ' .. usec .. %s%s end\n", s.adjusted(v, "0", "0", "by.freed"), costs)
	w.f("by.cost = first and first[3] or 0\nif first and actual >= 0 then\n")
	s.settleCost(w, rules, v)
	w.f("by.cost = total\nelse\nkept = actual >= 0 and %d or 0\nend\n", s.bits(func(r *Rule) bool { return !r.own }))
	for _, r := range rules {
		if r.unit > 0 {
			s.settleUnit(w, r, v)
		}
	}
	w.f("return '1;' .. sec .. ' ' .. usec .. %s%s\n", s.adjusted(v, "by.cost", "kept", "by.freed"), costs)
}

// bits returns the sum of 2^i for the rules with the index i for which has is true, and
// which have a marker.
func (s *Source) bits(has func(*Rule) bool) (sum int) {
	for i, r := range s.Rules {
		if r.Marker > 0 && has(r) {
			sum += 1 << i
		}
	}
	return sum
}

// settleCost writes Lua that settles the rules that count no unit.
func (s *Source) settleCost(w *writer, rules []*Rule, v Verb) {
	w.f("local total, fresh = actual, kept and actual or first[3]\n")
	for _, r := range rules {
		if !r.own {
			i := r.number
			w.f("if not m[%d] or m[%d][5] %% 2 == 0 then\nlocal spent = m[%d] and m[%d][3] or fresh\n", i, i, i, i)
			s.bound(w, r, v, "spent")
			w.f("end\n")
		}
	}
	w.f("local some, ended, change = false, false, total ~= first[3]\nkept = 0\n")
	for _, r := range rules {
		i, held := r.number, MarkHeld
		if r.unit > 0 {
			continue
		}
		if r.own {
			held = MarkTotal
		}
		w.f("by[%d] = 0\nif m[%d] and (m[%d][5] - %s) %% 2 ~= 0 then\nkeeps[%d] = m[%d][%d] ~= total\n", i, i, i, s.fit(r, v), i, i, held+1)
		if !r.own {
			w.f("else\nby[%d] = total - (m[%d] and m[%d][3] or fresh)\n", i, i, i)
			w.f("if by[%d] < 0 and m[%d] and not m[%d].ended then\n", i, i, i)
			s.giveBack(w, r, v, fmt.Sprintf("-by[%d]", i))
			w.f("keeps[%d] = gave == 2\nend\n", i)
			w.f("if not m[%d] and by[%d] < 0 then ended = true elseif not keeps[%d] then some, change = true, change or by[%d] ~= 0 end\n", i, i, i, i)
		}
		w.f("end\nif keeps[%d] then kept = kept + %d end\n", i, 1<<(i-1))
	}
	w.f("if not some and (kept > 0 or not ended) then total, change = first[3], false end\nif change then\n")
	for _, r := range rules {
		i := r.number
		if r.unit > 0 {
			continue
		}
		if !r.own {
			w.f("if by[%d] > 0 then\n", i)
			s.add(w, r, v)
			w.f("else")
		}
		w.f("if m[%d] then\n", i)
		w.f("local tag = '%s'\nif keeps[%d] and m[%d][5] %% 2 == 0 then tag = '%s' else m[%d][3] = total end\n", SettledTag[:], i, i, KeptTag[:], i)
		s.keepMark(w, r, "tag")
		w.f("else\nredis.call('UNLINK', %s)\nend\n", luaKey(r.Marker))
	}
	w.f("end\n")
}

// settleUnit writes Lua that settles a rule that counts a unit, if its amount is given.
func (s *Source) settleUnit(w *writer, r *Rule, v Verb) {
	i, m := r.number, fmt.Sprintf("m[%d]", r.number)
	w.f("if %s >= 0 then\nlocal total, first = %s, %s\nif not first then kept = kept + %d else\n", r.tokens(), r.tokens(), m, 1<<(i-1))
	s.bound(w, r, v, "first[3]")
	w.f("by[%d] = total - first[3]\ngave = 0\nif by[%d] < 0 and not first.ended then\n", i, i)
	s.giveBack(w, r, v, fmt.Sprintf("-by[%d]", i))
	w.f("end\nif gave == 2 then kept = kept + %d\nelseif by[%d] > 0 then\n", 1<<(i-1), i)
	s.add(w, r, v)
	w.f("elseif by[%d] < 0 then\nfirst[3] = total\n", i)
	s.keepMark(w, r, fmt.Sprintf("'%s'", SettledTag[:]))
	w.f("end\nend\nend\n")
}

// bound writes Lua that lowers total, if it is above spent, to what the rule can consume.
func (s *Source) bound(w *writer, r *Rule, v Verb, spent string) {
	debt := "debt"
	if r.unit > 0 {
		debt = s.ownDebt(r, v)
	}
	w.f("if total > %s then\n", spent)
	if r.Step != nil {
		w.f("total = math.min(total, %s + math.max(rooms[%d] + %s, 0))\n", spent, r.number, debt)
	} else {
		w.f("do%send\nlocal room%stotal = math.min(total, %s + math.max(room + %s, 0))\n", r.sections["advance"], r.sections["room"], spent, debt)
	}
	w.f("end\n")
}

// keepMark writes Lua that writes the marker m[i] with a tag.
func (s *Source) keepMark(w *writer, r *Rule, tag string) {
	w.f("redis.call('SET', %s, %s .. string.format('%s', (table.unpack or unpack)(m[%d])), 'KEEPTTL')\n", luaKey(r.Marker), tag, strings.Repeat(" %d", r.MarkInts()), r.number)
}

// add writes Lua that consumes more tokens from a rule, and writes its new marker.
func (s *Source) add(w *writer, r *Rule, v Verb) {
	if r.Step != nil {
		s.addStep(w, r, v)
	} else {
		s.addCell(w, r, v)
	}
	if s.named {
		w.f("m[%d] = m[%d] or {}\nm[%d][3] = total\n", r.number, r.number, r.number)
	}
}

// addStep writes Lua that consumes more tokens from a rule with a Step, and writes its new
// marker: see run.addTo.
func (s *Source) addStep(w *writer, r *Rule, v Verb) {
	w.f("local n = by[%d]\n%s", r.number, r.sections["write"][1:])
	w.f("local mark, ends%s", r.sections["mark"])
	if s.lives(r) {
		w.f("ends = math.max(ends, now + %s)\n", s.shared(v, ArgLife))
	}
	w.f("if m[%d] and m[%d][%d] > ends then ends = m[%d][%d] end\n", r.number, r.number, r.MarkInts(), r.number, r.MarkInts())
	w.f("local from = ends - ends %% 1048576\n%s", luaLife)
	w.f("redis.call('SET', %s, '%s' .. string.format(' %%d %%d %%d %%d ', gen, n, total, first[4]) .. %s .. ' ' .. mark .. string.format(' %%d', ends), 'PX', life)\n",
		luaKey(r.Marker), SettledTag[:], s.fit(r, v))
}

// addCell writes Lua that consumes more tokens from a rule that keeps a cell, and writes
// its new marker: see run.addTo.
func (s *Source) addCell(w *writer, r *Rule, v Verb) {
	i := r.number
	var was, is []string
	for j, name := range r.Cell {
		was = append(was, fmt.Sprintf("m[%d][%d]", i, MarkHead+1+j))
		is = append(is, fmt.Sprintf("%s%d == %s", name, i, was[j]))
	}
	w.f("local n, held, same = by[%d], by[%d]\nif m[%d] and %s and tail%d ~= '' and gen%d == m[%d][1] then\n", i, i, i, s.sameFit(r, v, fmt.Sprintf("m[%d]", i)), i, i, i)
	if len(r.Note) > 0 {
		is = append(is, fmt.Sprintf("%s%d == m[%d][%d]", r.Note[0], i, i, MarkHead+1+len(was)))
		w.f("if %s then held = held + m[%d][2] end\nend\n", strings.Join(is, " and "), i)
	} else {
		w.f("local %s = %s\nlocal ends%ssame = ends\nend\n", r.suffix(r.Cell, "", ", "), strings.Join(was, ", "), r.sections["ends"])
	}
	tail := append([]string{"gen"}, r.Note...)
	w.f("if tail%d == '' then tail%d, %s = ' ', %s + 0.0%s end\n", i, i, r.suffix(tail, "", ", "), s.shared(v, ArgGen), strings.Repeat(", 0", len(r.Note)))
	w.f("%slocal ends%slocal from = ends - ends %% 1048576\n%s", r.sections["take"][1:], r.sections["ends"], luaLife)
	if r.Meter.Carries {
		w.f("if %s%d ~= %s then same = nil end\n", r.Cell[0], i, was[0])
	}
	if len(r.Note) == 0 {
		w.f("if ends == same then held = held + m[%d][2] end\n", i)
	}
	r.ints(w, "ints", "")
	w.f("redis.call('SET', %s, '%s' .. ints .. string.format('%s', %s), 'PX', life)\n", luaKey(r.key), r.Head.Tag[:], strings.Repeat(" %d", len(tail)), r.suffix(tail, "", ", "))
	w.f("local text = string.format('%s %%d %%d', gen%d, held) .. string.format(' %%d %%d ', total, first[4]) .. %s .. ints\n", SettledTag[:], i, s.fit(r, v))
	if len(r.Note) > 0 {
		w.f("text = text .. string.format(' %%d', %s%d)\n", r.Note[0], i)
	}
	s.extend(w, r, v, fmt.Sprintf("(m[%d] and m[%d][%d] or 0)", i, i, r.MarkInts()))
	end := "ends"
	if !s.lives(r) {
		end = "stop > 0 and ends or 0"
	}
	w.f("redis.call('SET', %s, text .. string.format(' %%d', %s), 'PX', life)\n", luaKey(r.Marker), end)
}
