package compose

import (
	"fmt"
	"strings"
)

// settle writes Lua that does what run.settle does.
func (s *source) settle(w *writer) {
	w.f("local m, first, mark, gave = {}, nil\n") // a table, because a function has at most 200 locals
	for i := range s.parts {
		if p := &s.parts[i]; p.marker > 0 {
			p.readMark(w, fmt.Sprintf("m[%d]", p.rule))
			w.f("first = m[%d] or first\n", p.rule)
		}
	}
	w.f("if not first then return '0;' .. sec .. ' ' .. usec end\n")
	w.f("local more = actual - first[3]\nif more > 0 then\n")
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.marker == 0 || p.own:
			continue
		case p.step != nil:
			w.f("if rooms[%d] + debt < more then more = rooms[%d] + debt end\n", p.rule, p.rule)
		default:
			w.f("do%send\ndo\nlocal room%sif room + debt < more then more = room + debt end\nend\n", p.sections["settle"], p.sections["room"])
		}
	}
	w.f("if more < 0 then more = 0 end\nend\n")
	w.f("local total, asked = first[3] + more, first[4]\nif more > 0 then\n")
	for i := range s.parts {
		switch p := &s.parts[i]; {
		case p.marker == 0 || p.own:
		case p.step != nil:
			w.f("do\nlocal n = more\n%s", p.sections["write"][1:])
			w.f("local mark, ends%slocal from = ends - ends %% 1048576\n%s", p.sections["mark"], luaLife)
			w.f("redis.call('SET', %s, '%s' .. string.format(' %%d %%d %%d %%d ', gen, more, total, asked) .. mark .. string.format(' %%d', ends), 'PX', life)\nend\n",
				luaKey(p.marker), settledTag[:])
		default:
			s.addCell(w, p)
		}
	}
	w.f("end\nif more ~= 0 then\n")
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.marker == 0:
			continue
		case p.own:
			w.f("if not m[%d] then\nredis.call('UNLINK', %s)\nelse\n", p.rule, luaKey(p.marker))
		default:
			w.f("if more < 0 and not m[%d] then\nredis.call('UNLINK', %s)\nelseif more < 0 then\n", p.rule, luaKey(p.marker))
			w.f("local n, was, gen = math.min(-more, m[%d][2]), m[%d], m[%d][1]\nlocal keep = was[2] - n\nif n > 0 then\n", p.rule, p.rule, p.rule)
			if p.step != nil {
				w.f("do%send\n", p.sections["refund"])
			} else {
				p.refundCell(w)
			}
			w.f("end\nwas[2] = keep\n")
		}
		w.f("m[%d][3] = total\n", p.rule)
		w.f("redis.call('SET', %s, string.format('%s%s', (table.unpack or unpack)(m[%d])), 'KEEPTTL')\nend\n", luaKey(p.marker), settledTag[:], strings.Repeat(" %d", p.markInts()), p.rule)
	}
	w.f("end\nreturn string.format('%%d;', total + 1) .. sec .. ' ' .. usec\n")
}

// addCell writes Lua that consumes more tokens from a rule that keeps a cell, and writes its
// new marker: see run.addTo.
func (s *source) addCell(w *writer, p *part) {
	i := p.rule
	w.f("do\nlocal n, held = more, more\nif m[%d] and tail%d ~= '' and gen%d == m[%d][1]", i, i, i, i)
	same := p.cell
	if len(p.note) > 0 {
		same = append(same[:len(same):len(same)], p.note[0])
	}
	for j, name := range same {
		w.f(" and %s%d == m[%d][%d]", name, i, i, markHead+1+j)
	}
	w.f(" then held = held + m[%d][2] end\n", i)
	tail := append([]string{"gen"}, p.note...)
	w.f("if tail%d == '' then tail%d, %s = ' ', %s + 0.0%s end\n", i, i, p.suffix(tail, "", ", "), s.shared(4), strings.Repeat(", 0", len(p.note)))
	w.f("%slocal ends%slocal from = ends - ends %% 1048576\n%s", p.sections["take"][1:], p.sections["ends"], luaLife)
	p.ints(w, "ints", "")
	w.f("redis.call('SET', %s, '%s' .. ints .. string.format('%s', %s), 'PX', life)\n", luaKey(p.key), p.head.Tag[:], strings.Repeat(" %d", len(tail)), p.suffix(tail, "", ", "))
	w.f("local text = string.format('%s %%d %%d', gen%d, held) .. string.format(' %%d %%d', total, asked) .. ints\n", settledTag[:], i)
	if len(p.note) > 0 {
		w.f("text = text .. string.format(' %%d', %s%d)\n", p.note[0], i)
	}
	w.f("redis.call('SET', %s, text, 'PX', life)\nend\n", luaKey(p.marker))
}
