package compose

import (
	"fmt"
	"strings"
)

// markHead is the number of integers at the start of a marker: see markTag.
const markHead = 4

// markInts returns the number of integers of a marker.
func (p *part) markInts() int {
	if p.step != nil {
		return markHead + 4
	}
	return markHead + len(p.cell) + min(len(p.note), 1)
}

// markers returns Lua for the keys of the markers.
func (s *source) markers() (keys []string) {
	for i := range s.parts {
		if p := &s.parts[i]; p.marker > 0 {
			keys = append(keys, luaKey(p.marker))
		}
	}
	return keys
}

// mark returns Lua for the tag and the first integers of a marker of p.
func (s *source) mark(p *part, v Verb) string {
	gen, asked, held := s.shared(4), s.shared(1), ""
	if p.step == nil {
		gen = fmt.Sprintf("gen%d", p.rule)
	}
	total := asked
	if v.upTo() || v.forces() {
		total = "string.format('%d', take)"
	}
	if v.upTo() {
		asked = total
	}
	switch {
	case v.forces():
		held = "string.format('%d', n)"
	case p.own:
		held = fmt.Sprintf("ARGV[%d]", p.arg+len(p.args)+1)
	default:
		held = total
	}
	return fmt.Sprintf("'%s ' .. %s .. ' ' .. %s .. ' ' .. %s .. ' ' .. %s", markTag[:], gen, held, total, asked)
}

// readMark writes Lua that sets mark to the text of the marker of p, and m to its integers. If
// the marker is missing or has ended, m is nil.
func (p *part) readMark(w *writer, m string) {
	w.f("mark = redis.pcall('GET', %s)\nif mark then\n", luaKey(p.marker))
	w.f("if mark.err then\nif string.find(mark.err, 'WRONGTYPE', 1, true) then return %s end\nreturn mark\nend\n", foreign(p.marker))
	w.f("%s = {string.match(mark, '^i[%c%c]%s$')}\n", m, markTag[1], settledTag[1], strings.Repeat(" (%d+)", p.markInts()))
	w.f("if not %s[1] then return %s end\n", m, foreign(p.marker))
	w.f("for i = 1, %d do\n%s[i] = %s[i] + 0.0\nif %s[i] > %s then return %s end\nend\n", p.markInts(), m, m, m, maxInt, foreign(p.marker))
	if p.step != nil {
		w.f("if %s[%d] <= now then %s = nil end\nend\n", m, p.markInts(), m)
		return
	}
	var was []string
	for i := range p.cell {
		was = append(was, fmt.Sprintf("%s[%d]", m, markHead+1+i))
	}
	w.f("do\nlocal %s = %s\n", p.suffix(p.cell, "", ", "), strings.Join(was, ", "))
	w.f("local ends%sif ends <= now then %s = nil end\nend\nend\n", p.sections["ends"], m)
}

// replay writes Lua that returns the reply to a repeated decision, if a marker is there. The
// marker of any rule is enough, because the markers expire at different times. The reply has
// a code behind the state of the rules, and then the text of each marker.
func (s *source) replay(w *writer, v Verb) {
	if markers := s.markers(); len(markers) > 1 { // one command for all markers, which most decisions do not find
		w.f("if redis.call('EXISTS', %s) > 0 then\n", strings.Join(markers, ", "))
	} else {
		w.f("do\n")
	}
	w.f("local first, marks, mark, m = nil, ''\n")
	for i := range s.parts {
		p := &s.parts[i]
		if p.marker == 0 {
			w.f("marks = marks .. ';'\n")
			continue
		}
		w.f("m = nil\n")
		p.readMark(w, "m")
		w.f("first, marks = m or first, marks .. ';' .. (m and mark or '')\n")
	}
	w.f("if first then\n")
	w.f("local code = ';%d'\n", replayed)
	if v.upTo() {
		w.f("if first[4] > most then code = ';%d' end\n", otherCost)
	} else {
		w.f("if first[4] ~= n then code = ';%d' end\n", otherCost)
	}
	s.reply(w, fmt.Sprintf("string.format('%%d;', first[code == ';%d' and 3 or 4])", replayed))
	w.f("return reply .. code .. marks\nend\nend\n")
}

// refund writes Lua that reads all markers, refunds each rule, and deletes the markers.
func (s *source) refund(w *writer) {
	w.f("local gave, keep = 0, 0\nlocal mark\n")
	for i := range s.parts {
		if p := &s.parts[i]; p.marker > 0 {
			w.f("local m%d\n", p.rule)
			p.readMark(w, fmt.Sprintf("m%d", p.rule))
		}
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.marker > 0 && !p.own {
			w.f("if m%d and n > 0 and m%d[4] > n then return '%d;' .. sec .. ' ' .. usec end\n", p.rule, p.rule, tooLittle)
		}
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.marker == 0 {
			continue
		}
		w.f("if m%d and m%d[2] > 0 then\nlocal n, was, gen = m%d[2], m%d, m%d[1]\n", p.rule, p.rule, p.rule, p.rule, p.rule)
		if p.step != nil {
			w.f("do%send\n", p.sections["refund"])
		} else {
			p.refundCell(w)
		}
		w.f("end\n")
	}
	w.f("redis.call('UNLINK', %s)\n", strings.Join(s.markers(), ", "))
	w.f("return gave .. ';' .. sec .. ' ' .. usec\n")
}

// refundCell writes Lua that refunds a rule that keeps a cell. A changed cell counts as a
// refund.
func (p *part) refundCell(w *writer) {
	i := p.rule
	w.f("if tail%d ~= '' and gen%d == gen then\n", i, i)
	var was, ints []string
	for _, name := range p.cell {
		was = append(was, "was_"+name)
	}
	if len(p.note) > 0 {
		was = append(was, "was_moved")
	}
	for j := range was {
		ints = append(ints, fmt.Sprintf("was[%d]", markHead+1+j))
	}
	w.f("local %s = %s\n", strings.Join(was, ", "), strings.Join(ints, ", "))
	w.f("local %s = %s\n", p.suffix(p.cell, "b_", ", "), p.suffix(p.cell, "", ", "))
	w.f("do%send\n", p.sections["refund"])
	w.f("if ")
	for j, name := range p.cell {
		if j > 0 {
			w.f(" or ")
		}
		w.f("%s%d ~= b_%s%d", name, i, name, i)
	}
	w.f(" then\ngave = 1\n")
	w.f("if %s == 0 then\nredis.call('UNLINK', %s)\nelse\n", p.suffix(p.cell, "", " == 0 and "), luaKey(p.key))
	p.ints(w, "value", string(p.head.Tag[:]))
	w.f("value = value .. string.format('%s', %s)\n", strings.Repeat(" %d", 1+len(p.note)), p.suffix(append([]string{"gen"}, p.note...), "", ", "))
	w.f("redis.call('SET', %s, value, 'KEEPTTL')\nend\nend\nend\n", luaKey(p.key))
}
