package script

import (
	"fmt"
	"strings"
)

// settle writes Lua that does what run.settle does.
func (s *Source) settle(w *writer) {
	w.f("local m, first, mark, gave = {}, nil\n") // a table, because a function has at most 200 locals
	rules, _ := s.marked()
	for _, r := range rules {
		r.readMark(w, fmt.Sprintf("m[%d]", r.number))
		w.f("first = m[%d] or first\n", r.number)
	}
	w.f("if not first then return '0;' .. sec .. ' ' .. usec end\n")
	w.f("local more = actual - first[3]\nif more > 0 then\n")
	for _, r := range rules {
		switch {
		case r.own:
		case r.Step != nil:
			w.f("if rooms[%d] + debt < more then more = rooms[%d] + debt end\n", r.number, r.number)
		default:
			w.f("do%send\ndo\nlocal room%sif room + debt < more then more = room + debt end\nend\n", r.sections["advance"], r.sections["room"])
		}
	}
	w.f("if more < 0 then more = 0 end\nend\n")
	w.f("local total, asked = first[3] + more, first[4]\nif more > 0 then\n")
	for _, r := range rules {
		switch {
		case r.own:
		case r.Step != nil:
			w.f("do\nlocal n = more\n%s", r.sections["write"][1:])
			w.f("local mark, ends%slocal from = ends - ends %% 1048576\n%s", r.sections["mark"], luaLife)
			w.f("redis.call('SET', %s, '%s' .. string.format(' %%d %%d %%d %%d ', gen, more, total, asked) .. mark .. string.format(' %%d', ends), 'PX', life)\nend\n",
				luaKey(r.Marker), SettledTag[:])
		default:
			s.addCell(w, r)
		}
	}
	w.f("end\nif more ~= 0 then\n")
	for _, r := range rules {
		if r.own {
			w.f("if not m[%d] then\nredis.call('UNLINK', %s)\nelse\n", r.number, luaKey(r.Marker))
		} else {
			w.f("if more < 0 and not m[%d] then\nredis.call('UNLINK', %s)\nelseif more < 0 then\n", r.number, luaKey(r.Marker))
			w.f("local n, was, gen = math.min(-more, m[%d][2]), m[%d], m[%d][1]\nlocal keep = was[2] - n\nif n > 0 then\n", r.number, r.number, r.number)
			if r.Step != nil {
				w.f("do%send\n", r.sections["refund"])
			} else {
				r.refundCell(w)
			}
			w.f("end\nwas[2] = keep\n")
		}
		w.f("m[%d][3] = total\n", r.number)
		w.f("redis.call('SET', %s, string.format('%s%s', (table.unpack or unpack)(m[%d])), 'KEEPTTL')\nend\n", luaKey(r.Marker), SettledTag[:], strings.Repeat(" %d", r.MarkInts()), r.number)
	}
	w.f("end\nreturn string.format('%%d;', total + 1) .. sec .. ' ' .. usec\n")
}

// addCell writes Lua that consumes more tokens from a rule that keeps a cell, and writes
// its new marker: see run.addTo.
func (s *Source) addCell(w *writer, r *Rule) {
	i := r.number
	w.f("do\nlocal n, held = more, more\nif m[%d] and tail%d ~= '' and gen%d == m[%d][1]", i, i, i, i)
	same := r.Cell
	if len(r.Note) > 0 {
		same = append(same[:len(same):len(same)], r.Note[0])
	}
	for j, name := range same {
		w.f(" and %s%d == m[%d][%d]", name, i, i, MarkHead+1+j)
	}
	w.f(" then held = held + m[%d][2] end\n", i)
	tail := append([]string{"gen"}, r.Note...)
	w.f("if tail%d == '' then tail%d, %s = ' ', %s + 0.0%s end\n", i, i, r.suffix(tail, "", ", "), s.shared(ArgGen), strings.Repeat(", 0", len(r.Note)))
	w.f("%slocal ends%slocal from = ends - ends %% 1048576\n%s", r.sections["take"][1:], r.sections["ends"], luaLife)
	r.ints(w, "ints", "")
	w.f("redis.call('SET', %s, '%s' .. ints .. string.format('%s', %s), 'PX', life)\n", luaKey(r.key), r.Head.Tag[:], strings.Repeat(" %d", len(tail)), r.suffix(tail, "", ", "))
	w.f("local text = string.format('%s %%d %%d', gen%d, held) .. string.format(' %%d %%d', total, asked) .. ints\n", SettledTag[:], i)
	if len(r.Note) > 0 {
		w.f("text = text .. string.format(' %%d', %s%d)\n", r.Note[0], i)
	}
	w.f("redis.call('SET', %s, text, 'PX', life)\nend\n", luaKey(r.Marker))
}
