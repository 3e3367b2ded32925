package compose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir/store"
)

// quantum is what the end of a key's life is rounded up to, in microseconds: a key
// whose end stays within it keeps its TTL, which costs a server less than a new one.
const quantum = 1 << 20

// maxInt is the largest integer in a value.
const maxInt = "9007199254740991"

// script returns the script of v without its Go form.
func (s *source) script(v Verb) *store.Script {
	if script := s.scripts[v].Load(); script != nil {
		return script
	}
	name, lua := s.name+verbNames[v], s.lua(v)
	script := store.NewScript(name, lua, nil)
	if v.readOnly() {
		script = store.NewReadOnlyScript(name, lua, nil)
	}
	s.scripts[v].CompareAndSwap(nil, script)
	return s.scripts[v].Load()
}

// A writer writes Lua.
type writer struct{ strings.Builder }

func (w *writer) f(format string, args ...any) { fmt.Fprintf(w, format, args...) }

func (s *source) texts() bool {
	for i := range s.parts {
		if s.parts[i].texts() {
			return true
		}
	}
	return false
}

func (s *source) lua(v Verb) string {
	w := new(writer)
	s.head(w, v)
	for i := range s.parts {
		p := &s.parts[i]
		if p.kind.Step != nil {
			p.readStep(w, v)
		} else {
			p.readCell(w, v)
		}
	}
	switch v {
	case Refund:
		s.refund(w)
	case Release:
		w.f("local gave, was = 0, {0, 0, 0, 0, 0, 0}\n")
		for i := range s.parts {
			w.f("do%send\n", s.parts[i].sections["refund"])
		}
		w.f("return gave .. ';' .. sec .. ' ' .. usec\n")
	case Reset:
		for i := range s.nkeys {
			w.f("redis.call('UNLINK', %s)\n", luaKey(i))
		}
		w.f("return '1;' .. sec .. ' ' .. usec\n")
	case Entries:
		w.f("local entries\ndo%send\nreturn entries\n", s.parts[0].sections["entries"])
	default:
		s.decide(w, v)
	}
	return "-- weir " + strings.ReplaceAll(s.name+verbNames[v], ".", " ") + "\n" + s.hoist(w.String())
}

// Lua allows 200 locals in a function. A script of many rules needs most of them for
// state, so hoist leaves it alone.
const hoistedRules, hoistedConsts = 8, 40

// hoist makes locals of the globals and the constants that a script uses more than once:
// each use of a global is a look-up, and each use of a constant parses its text.
func (s *source) hoist(body string) string {
	if len(s.parts) > hoistedRules {
		return body
	}
	var globals, names, values []string
	for _, name := range []string{"ARGV", "redis", "string", "math"} {
		if strings.Count(body, name+".")+strings.Count(body, name+"[") > 1 {
			globals = append(globals, name)
		}
	}
	for i := range s.parts {
		p := &s.parts[i]
		for j, arg := range p.args {
			name, value := fmt.Sprintf("%s%d", arg, p.rule), luaConst(p.arg+j)
			if strings.Count(body, value) > 1 && len(names) < hoistedConsts {
				names, values = append(names, name), append(values, value)
				body = strings.ReplaceAll(body, value, name)
			}
		}
	}
	head := ""
	if list := strings.Join(globals, ", "); list != "" {
		head = fmt.Sprintf("local %s = %s\n", list, list)
	}
	if len(names) > 0 {
		head += fmt.Sprintf("local %s = %s\n", strings.Join(names, ", "), strings.Join(values, ", "))
	}
	return head + body
}

// luaConst is constant i, counted from 0, as a number.
func luaConst(i int) string { return fmt.Sprintf("(ARGV[%d]+0)", i+1) }

// head reads the time and the arguments that all rules share.
func (s *source) head(w *writer, v Verb) {
	at := s.consts
	if s.texts() {
		at++
	}
	none := "not usec"
	if v.markers() {
		none = "usec == '0'"
	}
	w.f("local sec, usec, slack = '0', ARGV[%d], 3600000\n", at+3)
	w.f("if %s then\nlocal time = redis.call('TIME')\nsec, usec, slack = time[1], time[2], 0\nend\n", none)
	w.f("local now = sec * 1000000 + usec\n")
	w.f("local at, n = now, 1\nif ARGV[%d] then at, n = now + (ARGV[%d] or 0), ARGV[%d] + 0 end\n", at+1, at+2, at+1)
	if v.upTo() {
		w.f("local most = n\nn = 1\n")
	}
	gen := "0"
	if v.markers() {
		gen = fmt.Sprintf("ARGV[%d] + 0", at+4)
	}
	for i := range s.parts {
		if s.parts[i].kind.Step != nil || v.markers() {
			w.f("local gen, renew = %s, %t\n", gen, v == Renew)
			break
		}
	}
}

// cost begins a block in which n is what the rule consumes.
func (p *part) cost(w *writer) {
	if p.own {
		w.f("local n = ARGV[%d] + 0\n", p.arg+len(p.args)+1)
	}
}

// suffix returns names with the rule's number appended to each, joined.
func (p *part) suffix(names []string, before, sep string) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(sep)
		}
		fmt.Fprintf(&b, "%s%s%d", before, name, p.rule)
	}
	return b.String()
}

func (p *part) readStep(w *writer, v Verb) {
	w.f("local room%d, %s = 0%s\n", p.rule, p.suffix(p.cell, "", ", "), strings.Repeat(", 0", len(p.cell)))
	if len(p.locals) > 0 {
		w.f("local %s\n", p.suffix(p.locals, "", ", "))
	}
	w.f("do\n")
	p.cost(w)
	w.f("local room = 0%sroom%d = room\nend\n", p.sections["read"], p.rule)
}

// readCell reads the cell of a rule: a value is its tag, its integers, and behind
// them the generation and the note that refunds need, which is called the tail.
func (p *part) readCell(w *writer, v Verb) {
	i := p.rule
	tail := append([]string{"gen"}, p.note...)
	if v.decides() { // a function has 200 locals at most, so the others go without
		w.f("local room%d, prev%d, v%d = 0, -1\n", i, i, i)
	}
	w.f("local tail%d, %s = ''%s\n", i, p.suffix(p.cell, "", ", "), strings.Repeat(", 0", len(p.cell)))
	if v.markers() {
		w.f("local %s = 0%s\n", p.suffix(tail, "", ", "), strings.Repeat(", 0", len(p.note)))
	}
	w.f("do\n")
	if !v.decides() {
		w.f("local prev%d, v%d\n", i, i)
	}
	w.f("v%d = redis.pcall('GET', %s)\nif v%d then\n", i, luaKey(p.key), i)
	w.f("if v%d.err then\nif string.find(v%d.err, 'WRONGTYPE', 1, true) then return %s end\nreturn v%d\nend\n", i, i, foreign(p.key), i)
	required := p.cell[:p.short]
	w.f("local %s, more = string.match(v%d, '^%s%s(.*)$')\n", p.suffix(required, "t_", ", "), i, p.kind.Tag[:], strings.Repeat(" (%d+)", p.short))
	w.f("if not t_%s%d then return %s end\n", required[0], i, foreign(p.key))
	for _, name := range required {
		w.f("%s%d = t_%s%d + 0\n", name, i, name, i)
	}
	w.f("if more ~= '' then\n")
	optional := p.cell[p.short:]
	if len(optional) > 0 {
		w.f("local %s\n", p.suffix(optional, "t_", ", "))
		w.f("%s, tail%d = string.match(more, '^%s(.*)$')\n", p.suffix(optional, "t_", ", "), i, strings.Repeat(" (%d+)", len(optional)))
		w.f("if not t_%s%d then return %s end\n", optional[0], i, foreign(p.key))
		for _, name := range optional {
			w.f("%s%d = t_%s%d + 0\n", name, i, name, i)
		}
		w.f("if %s > %s then return %s end\n", p.suffix(optional, "", " > "+maxInt+" or "), maxInt, foreign(p.key))
	} else {
		w.f("tail%d = more\n", i)
	}
	w.f("if tail%d ~= '' then\n", i)
	w.f("local %s = string.match(tail%d, '^%s$')\n", p.suffix(tail, "t_", ", "), i, strings.Repeat(" (%d+)", len(tail)))
	w.f("if not t_gen%d or math.max(%s) > %s then return %s end\n", i, p.suffix(tail, "t_", ", "), maxInt, foreign(p.key))
	if v.markers() {
		for _, name := range tail {
			w.f("%s%d = t_%s%d + 0\n", name, i, name, i)
		}
	}
	w.f("end\nend\n")
	w.f("if %s > %s then return %s end\n", p.suffix(required, "", " > "+maxInt+" or "), maxInt, foreign(p.key))
	w.f("local ends%sprev%d = ends\n", p.sections["ends"], i)
	over := p.cell
	if v.markers() {
		over = slices.Concat(tail, p.cell)
	}
	w.f("if ends <= now then %s, tail%d = 0%s, '' end\nend\n", p.suffix(over, "", ", "), i, strings.Repeat(", 0", len(over)-1))
	if v.decides() {
		w.f("do%send\nlocal room%sroom%d = room\n", p.sections["settle"], p.sections["room"], i)
	}
	w.f("end\n")
}

// decide checks the rooms, consumes, and replies.
func (s *source) decide(w *writer, v Verb) {
	if v.upTo() {
		w.f("local take = most\n")
		for i := range s.parts {
			if p := &s.parts[i]; p.own {
				w.f("if room%d < ARGV[%d] + 0 then take = 0 end\n", p.rule, p.arg+len(p.args)+1)
			} else {
				w.f("if room%d < take then take = room%d end\n", p.rule, p.rule)
			}
		}
		w.f("if take < 0 then take = 0 end\nlocal ok = take > 0\nn = take\n")
	} else {
		w.f("local ok = ")
		for i := range s.parts {
			p := &s.parts[i]
			if i > 0 {
				w.f(" and ")
			}
			if p.own {
				w.f("room%d >= ARGV[%d] + 0", p.rule, p.arg+len(p.args)+1)
			} else {
				w.f("room%d >= n", p.rule)
			}
		}
		w.f("\n")
	}
	if v != Peek {
		w.f("if ok then\n")
		for i := range s.parts {
			p := &s.parts[i]
			w.f("do\n")
			p.cost(w)
			if p.kind.Step == nil {
				p.writeCell(w, v)
			} else {
				w.f("%s", p.sections["write"][1:])
				if v.marks() && p.marker > 0 {
					w.f("local mark, ends%s", p.sections["mark"])
					w.f("redis.call('SET', %s, string.format('i1 %%d %%d ', gen, n) .. mark, 'PX', %s)\n", luaKey(p.marker), luaLife)
				}
			}
			w.f("end\n")
		}
		w.f("end\n")
	}
	if v.upTo() {
		w.f("return string.format('%%d;', n > 0 and n or 0)")
	} else {
		w.f("return (ok and '1;' or '0;')")
	}
	w.f(" .. sec .. ' ' .. usec")
	for i := range s.parts {
		p := &s.parts[i]
		if p.kind.Step != nil {
			w.f(" .. string.format(';%s', %s)", strings.Repeat(" %d", len(p.cell))[1:], p.suffix(p.cell, "", ", "))
		} else {
			w.f(" .. ';' .. (v%d or '')", p.rule)
		}
	}
	w.f("\n")
}

// luaLife is the TTL of what matters until ends, in milliseconds.
const luaLife = "string.format('%d', (ends - ends % 1048576 - now + 1049575) / 1000 + slack)"

// value is the text of the cell.
func (p *part) value(w *writer) {
	i := p.rule
	w.f("local value = string.format('%s%s', %s)\n", p.kind.Tag[:], strings.Repeat(" %d", p.short), p.suffix(p.cell[:p.short], "", ", "))
	if optional := p.cell[p.short:]; len(optional) > 0 {
		w.f("if %s ~= 0 or tail%d ~= '' then value = value .. string.format('%s', %s) end\n",
			p.suffix(optional, "", " ~= 0 or "), i, strings.Repeat(" %d", len(optional)), p.suffix(optional, "", ", "))
	}
	w.f("if tail%d ~= '' then value = value .. tail%d end\n", i, i)
}

// writeCell consumes n tokens.
func (p *part) writeCell(w *writer, v Verb) {
	i := p.rule
	w.f("%slocal ends%s", p.sections["take"][1:], p.sections["ends"])
	if v.marks() && p.marker > 0 {
		w.f("if tail%d == '' then\ngen%d = gen\ntail%d = string.format(' %%d%s', gen)\nend\n", i, i, i, strings.Repeat(" 0", len(p.note)))
	}
	p.value(w)
	if p.kind.Absolute {
		w.f("local from = ends - ends %% 1048576\n")
		w.f("if slack == 0 and from <= prev%d and prev%d < from + 1048576 then\nredis.call('SET', %s, value, 'KEEPTTL')\nelse\n", i, i, luaKey(p.key))
	}
	w.f("redis.call('SET', %s, value, 'PX', %s)\n", luaKey(p.key), luaLife)
	if p.kind.Absolute {
		w.f("end\n")
	}
	if v.marks() && p.marker > 0 {
		moved, ints := "", p.suffix(p.cell, "", ", ")
		if len(p.note) > 0 {
			moved = " %d"
			ints += fmt.Sprintf(", %s%d", p.note[0], i)
		}
		w.f("redis.call('SET', %s, string.format('i1 %%d %%d%s%s', gen%d, n, %s), 'PX', %s)\n",
			luaKey(p.marker), strings.Repeat(" %d", len(p.cell)), moved, i, ints, luaLife)
	}
}

// markInts is how many integers a marker has.
func (p *part) markInts() int {
	if p.kind.Step != nil {
		return 6
	}
	return 2 + len(p.cell) + min(len(p.note), 1)
}

// refund reads all markers, and then refunds.
func (s *source) refund(w *writer) {
	w.f("local gave = 0\nlocal mark\n")
	for i := range s.parts {
		p := &s.parts[i]
		if p.marker == 0 {
			continue
		}
		ints := strings.Repeat(" (%d+)", p.markInts())
		w.f("mark = redis.pcall('GET', %s)\nlocal m%d\nif mark then\n", luaKey(p.marker), p.rule)
		w.f("if mark.err then\nif string.find(mark.err, 'WRONGTYPE', 1, true) then return %s end\nreturn mark\nend\n", foreign(p.marker))
		w.f("m%d = {string.match(mark, '^i1%s$')}\nif not m%d[1] or math.max(unpack(m%d)) > %s then return %s end\n", p.rule, ints, p.rule, p.rule, maxInt, foreign(p.marker))
		w.f("for i = 1, %d do m%d[i] = m%d[i] + 0 end\nend\n", p.markInts(), p.rule, p.rule)
	}
	for i := range s.parts {
		p := &s.parts[i]
		if p.marker == 0 {
			continue
		}
		w.f("if m%d then\nlocal n, was, gen = m%d[2], m%d, m%d[1]\n", p.rule, p.rule, p.rule, p.rule)
		if p.kind.Step != nil {
			w.f("do%send\n", p.sections["refund"])
		} else {
			p.refundCell(w)
		}
		w.f("redis.call('UNLINK', %s)\nend\n", luaKey(p.marker))
	}
	w.f("return gave .. ';' .. sec .. ' ' .. usec\n")
}

func (p *part) refundCell(w *writer) {
	i := p.rule
	w.f("if tail%d ~= '' and gen%d == gen then\n", i, i)
	var was []string
	for _, name := range p.cell {
		was = append(was, "was_"+name)
	}
	if len(p.note) > 0 {
		was = append(was, "was_moved")
	}
	w.f("local %s = was[3]", strings.Join(was, ", "))
	for j := range was[1:] {
		w.f(", was[%d]", j+4)
	}
	w.f("\nlocal %s = %s\n", p.suffix(p.cell, "b_", ", "), p.suffix(p.cell, "", ", "))
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
	w.f("tail%d = string.format('%s', %s)\n", i, strings.Repeat(" %d", 1+len(p.note)), p.suffix(append([]string{"gen"}, p.note...), "", ", "))
	p.value(w)
	w.f("redis.call('SET', %s, value, 'KEEPTTL')\nend\nend\nend\n", luaKey(p.key))
}
