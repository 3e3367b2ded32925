package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// Quantum is the unit of the time at which a key expires, in microseconds: that time is
// rounded up to a multiple of Quantum. If the multiple stays the same, the key keeps its
// TTL, which costs a server less than a new TTL.
const (
	Quantum     = 1 << QuantumBits
	QuantumBits = 20
)

// maxInt is the largest integer in a value, 2^53-1.
const maxInt = "9007199254740991"

// Script returns the script of v, without a Go form.
func (s *Source) Script(v Verb) *store.Script {
	if script := s.scripts[v].Load(); script != nil {
		return script
	}
	name, lua := s.Name+v.Suffix(), s.lua(v)
	script := store.NewScript(name, lua, nil)
	if v.readOnly() {
		script = store.NewReadOnlyScript(name, lua, nil)
	}
	s.scripts[v].CompareAndSwap(nil, script)
	return s.scripts[v].Load()
}

// A writer collects the text of a script.
type writer struct{ strings.Builder }

func (w *writer) f(format string, args ...any) { fmt.Fprintf(w, format, args...) }

// lua returns the text of the script of v.
func (s *Source) lua(v Verb) string {
	w := new(writer)
	s.head(w, v)
	for _, r := range s.Rules {
		switch {
		case r.Leases() && v.Adjusts() && !v.Finishes():
		case r.Step != nil:
			r.readStep(w, v)
		default:
			r.readCell(w, v)
		}
	}
	switch v {
	case Refund, FinishRefund:
		s.refund(w, v)
	case Settle, Finish:
		s.settle(w, v)
	case Pause:
		for _, r := range s.Rules {
			w.f("do%send\n", r.sections["write"])
		}
		w.f("return '1;' .. sec .. ' ' .. usec\n")
	case Release, Resume:
		s.release(w, s.Rules)
		w.f("return gave .. ';' .. sec .. ' ' .. usec\n")
	case Reset:
		for i := range s.Keys {
			w.f("redis.call('UNLINK', %s)\n", luaKey(i))
		}
		w.f("return '1;' .. sec .. ' ' .. usec\n")
	case Entries:
		w.f("local entries\ndo%send\nreturn entries\n", s.Rules[0].sections["entries"])
	default:
		s.decide(w, v)
	}
	return "-- weir " + strings.ReplaceAll(s.Name+v.Suffix(), ".", " ") + "\n" + s.hoist(w.String())
}

// release writes Lua that releases the leases of rules, or ends their pauses, and sets gave
// to 1 if one was held.
func (s *Source) release(w *writer, rules []*Rule) {
	w.f("local gave, keep, was = 0, 0, {0, 0, 0, 0, 0, 0, 0, 0}\n")
	for _, r := range rules {
		w.f("do%send\n", r.sections["refund"])
	}
}

// leases returns the rules that hold leases.
func (s *Source) leases() (rules []*Rule) {
	for _, r := range s.Rules {
		if r.Leases() {
			rules = append(rules, r)
		}
	}
	return rules
}

// hoist changes only scripts of at most hoistedRules rules, and adds locals for at most
// hoistedConsts constants. A Lua function has at most 200 locals, and a script of many
// rules needs most of them for state.
const hoistedRules, hoistedConsts = 8, 40

// hoist returns body with locals for the globals and the constants that it uses more than
// once. Without the locals, each use of a global costs a lookup, and each use of a
// constant parses its text.
func (s *Source) hoist(body string) string {
	if len(s.Rules) > hoistedRules {
		return body
	}
	var globals, names, values []string
	for _, name := range []string{"ARGV", "redis", "string", "math"} {
		if strings.Count(body, name+".")+strings.Count(body, name+"[") > 1 {
			globals = append(globals, name)
		}
	}
	for _, r := range s.Rules {
		args := r.Args
		if r.own {
			args = append(slices.Clip(args), ownCost)
		}
		for j, arg := range args {
			name, value := fmt.Sprintf("%s%d", arg, r.number), luaConst(r.arg+j)
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

// luaConst returns Lua for the number of the constant with index i.
func luaConst(i int) string { return "(" + luaArg(i) + "+0)" }

// ownCost is the local for the Cost of a rule, which follows the constants of the rule.
const ownCost = "own"

// tokens returns Lua for the tokens that the rule consumes: its Cost, or n.
func (r *Rule) tokens() string {
	if r.own {
		return luaConst(r.arg + len(r.Args))
	}
	return "n"
}

// ownDebt returns Lua for the largest debt of a rule with a Cost or a unit.
func (s *Source) ownDebt(r *Rule, v Verb) string {
	if r.unit > 0 {
		return luaArg(s.Arg(v, ArgUnitDebt) + r.unit - 1)
	}
	return s.shared(v, ArgOwnDebt)
}

// shared returns Lua for an argument that all rules share, for example [ArgCost].
func (s *Source) shared(v Verb, arg int) string { return luaArg(s.Arg(v, arg)) }

func luaArg(i int) string { return fmt.Sprintf("ARGV[%d]", i+1) }

// head writes Lua that reads the time and the arguments that all rules share. It compares
// the text of an argument with its default first, which costs a server less than parsing
// it.
//
// Scripts parse times, costs and cells with + 0.0, which gives a float in every version
// of Lua. In Lua 5.4, + 0 gives an integer, and a product of integers above 2^63 wraps
// around.
func (s *Source) head(w *writer, v Verb) {
	cost, wait := s.shared(v, ArgCost), s.shared(v, ArgWait)
	w.f("local sec, usec, slack, now, n = '0', %s, 3600000, 0, 1\n", s.shared(v, ArgNow))
	w.f("if usec then\nnow = usec + 0.0\nelse\n")
	w.f("local time = redis.call('TIME')\nsec, usec, slack = time[1], time[2], 0\nnow = sec * 1000000.0 + usec\nend\n")
	if v.Settles() {
		w.f("local actual, rooms = %s + 0.0, {}\n", cost)
	} else {
		w.f("if %s and %s ~= '1' then n = %s + 0.0 end\n", cost, cost, cost)
	}
	if v.Debts() {
		w.f("local at, debt = now, %s + 0.0\n", s.shared(v, ArgDebt))
	} else {
		w.f("local at = now\nif %s and %s ~= '0' then at = now + %s end\n", wait, wait, wait)
	}
	if v.TakesUpTo() {
		w.f("local most = n\nn = 1\n")
	}
	gen := "0"
	if v.Marks() || v.Settles() {
		gen = s.shared(v, ArgGen) + " + 0.0"
	}
	for _, r := range s.Rules {
		if r.Step != nil {
			w.f("local gen, renew = %s, %t\n", gen, v == Renew)
			break
		}
	}
}

// cost writes a local n with the tokens that the rule consumes, if the rule has a Cost.
func (r *Rule) cost(w *writer) {
	if r.own {
		w.f("local n = %s\n", r.tokens())
	}
}

// suffix returns the names, joined by sep. Each name has before in front of it, and the
// number of the rule behind it.
func (r *Rule) suffix(names []string, before, sep string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = before + name + strconv.Itoa(r.number)
	}
	return strings.Join(list, sep)
}

// decide writes Lua that checks the room of each rule, consumes the tokens, and replies.
func (s *Source) decide(w *writer, v Verb) {
	if v.Marks() && s.markers > 0 {
		s.replay(w, v)
	}
	switch {
	case v.Forces():
		w.f("local take, ok = n, true\n")
		for _, r := range s.Rules {
			if !r.own && r.Type != contract.PauseRule {
				w.f("if room%d + debt < take then take = room%d + debt end\n", r.number, r.number)
			}
		}
		w.f("if take < 0 then take = 0 end\nn = take\n")
	case v.TakesUpTo():
		w.f("local take = most\n")
		for _, r := range s.Rules {
			if r.own {
				w.f("if room%d < %s then take = 0 end\n", r.number, r.tokens())
			} else {
				w.f("if room%d < take then take = room%d end\n", r.number, r.number)
			}
		}
		w.f("if take < 0 then take = 0 end\nlocal ok = take > 0\nn = take\n")
	default:
		fits := make([]string, len(s.Rules))
		for i, r := range s.Rules {
			fits[i] = fmt.Sprintf("room%d >= %s", r.number, r.tokens())
		}
		w.f("local ok = %s\n", strings.Join(fits, " and "))
	}
	if v != Peek {
		w.f("if ok then\n")
		for _, r := range s.Rules {
			if r.Type == contract.PauseRule || r.Leases() && v.Forces() {
				continue
			}
			w.f("do\n")
			r.cost(w)
			if v.Forces() && r.own {
				debt := s.ownDebt(r, v)
				w.f("if room%d + %s < n then n = room%d + %s end\n", r.number, debt, r.number, debt)
			}
			if v.Forces() || r.unit > 0 {
				w.f("if n > 0 then\n")
			}
			mark := ""
			if v.Marks() && r.Marker > 0 {
				mark = s.mark(r, v)
			}
			if r.Step == nil {
				s.writeCell(w, r, v, mark)
			} else if w.f("%s", r.sections["write"][1:]); mark != "" {
				w.f("local mark, ends%s", r.sections["mark"])
				if s.lives(r) {
					w.f("ends = math.max(ends, now + %s)\n", s.shared(v, ArgLife))
				}
				w.f("local from = ends - ends %% 1048576\n%s", luaLife)
				w.f("redis.call('SET', %s, %s .. ' ' .. mark .. string.format(' %%d', ends), 'PX', life)\n", luaKey(r.Marker), mark)
			}
			if r.unit > 0 && mark != "" {
				s.markNothing(w, r, v)
			}
			if v.Forces() || r.unit > 0 {
				w.f("end\n")
			}
			w.f("end\n")
		}
		w.f("end\n")
	}
	if v.TakesUpTo() || v.Forces() {
		s.reply(w, "string.format('%d;', n > 0 and n or 0)")
	} else {
		s.reply(w, "(ok and '1;' or '0;')")
	}
	w.f("return reply\n")
}

// reply writes a local reply: head, the time, and the state of each rule.
func (s *Source) reply(w *writer, head string) {
	w.f("local reply = %s .. sec .. ' ' .. usec", head)
	for i, r := range s.Rules {
		if i > 0 && i%4 == 0 { // each operand needs a register, and the locals leave few
			w.f("\nreply = reply")
		}
		switch {
		case r.Type == contract.PauseRule: // an open key, as most are, costs less without a format
			w.f(" .. (%s == 0 and ';%s' or string.format(';%s', %s))",
				r.suffix(r.Cell, "", " == 0 and "), strings.Repeat(" 0", len(r.Cell))[1:], strings.Repeat(" %d", len(r.Cell))[1:], r.suffix(r.Cell, "", ", "))
		case r.Step != nil:
			w.f(" .. string.format(';%s', %s)", strings.Repeat(" %d", len(r.Cell))[1:], r.suffix(r.Cell, "", ", "))
		default:
			w.f(" .. ';' .. (v%d or '')", r.number)
		}
	}
	w.f("\n")
}
