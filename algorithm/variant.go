package algorithm

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-go/weir/store"
)

// This file composes the scripts of decisions that do more than [Program].Decide,
// and the one that undoes them.

// A Mode says what a decision does beyond [Program].Decide. The zero Mode is nothing.
type Mode struct {
	// UpTo takes as many tokens as fit every limit, up to a number that follows
	// the limits' arguments as the last: see [Program.AppendUpTo]. The limits'
	// arguments are those for cost 1.
	UpTo bool

	// Fixed says with UpTo, by a bit for each fragment, which ones' arguments are
	// of a cost of their own, whatever is taken from the others.
	Fixed uint

	// Marked keeps a marker for each fragment that has Charge, in one more key
	// each, in order, behind those of all fragments, by which [Program.Refund]
	// gives back what was taken.
	Marked bool
}

// Variant returns the script of a decision with mode m. The error says which
// fragment cannot do that.
func (p *Program) Variant(m Mode) (*store.Script, error) {
	if m == (Mode{}) {
		return p.Decide, nil
	}
	if v, ok := p.variants.Load(m); ok {
		return v.(*store.Script), nil
	}
	script, err := p.newVariant(m)
	if err != nil {
		return nil, err
	}
	v, _ := p.variants.LoadOrStore(m, script)
	return v.(*store.Script), nil
}

// Refund returns the script that gives back what was taken: by markers, which
// follow the keys of all fragments as with Marked, and are deleted, or, of
// fragments without Charge, by their arguments. The limits' arguments are those
// for cost 1. The error names a fragment that gives nothing back.
func (p *Program) Refund() (*store.Script, error) { return p.refund() }

// Markers returns which fragments have a marker, by a bit for each.
func (p *Program) Markers() uint {
	var set uint
	for i, key := range p.markers {
		if key > 0 {
			set |= 1 << i
		}
	}
	return set
}

// AppendUpTo appends the last argument of a decision with UpTo: how many tokens
// to take at most.
func (p *Program) AppendUpTo(args []store.Arg, most int64) []store.Arg {
	return append(args, store.IntArg(min(most, MaxTokens)))
}

// markerTag begins a marker: "i1 A B C D", the integers of a [Charge].
var markerTag = store.Tag{'i', '1'}

func (p *Program) newVariant(m Mode) (*store.Script, error) {
	var lua strings.Builder
	name := p.name
	if m.UpTo {
		name += ".upto"
		if m.Fixed != 0 {
			name += strconv.FormatUint(uint64(m.Fixed), 16)
		}
	}
	if m.Marked {
		name += ".marked"
	}
	lua.WriteString("-- weir " + strings.ReplaceAll(name, ".", " ") + "\n" + luaClockSlack + p.checks)
	head, extra := "ok and 1 or 0", 0
	if m.UpTo {
		head, extra = "take", 1
		lua.WriteString("local take = ARGV[" + strconv.Itoa(p.args+1) + "] + 0\n")
	} else {
		lua.WriteString("local ok = true\n")
	}
	for i, f := range p.fragments {
		n := strconv.Itoa(i + 1)
		switch {
		case !m.UpTo:
			lua.WriteString("ok = ok and ok" + n + "\n")
		case m.Fixed&(1<<i) != 0:
			lua.WriteString("if not ok" + n + " then take = 0 end\n")
		case f.Fit == nil:
			return nil, f.errorf("it cannot take a part of what is asked for")
		default:
			lua.WriteString("do\n" + p.sources[i].upto + "if fit" + n + " < take then take = fit" + n + " end\nend\n")
		}
	}
	if m.UpTo {
		lua.WriteString("if take < 0 then take = 0 end\nlocal ok = take > 0\n")
	}
	lua.WriteString("if ok then\n")
	for i := range p.fragments {
		lua.WriteString("do\n")
		if m.UpTo && m.Fixed&(1<<i) == 0 {
			lua.WriteString(p.sources[i].take)
		}
		lua.WriteString(p.sources[i].commit)
		if m.Marked && p.markers[i] > 0 {
			n := strconv.Itoa(i + 1)
			lua.WriteString(p.sources[i].charge + "redis.call('SET', " + luaKey(p.markers[i]) + ", 'i1 ' .. charge" + n +
				", 'PX', string.format('%d', (life" + n + " + 999) / 1000 + slack))\n")
		}
		lua.WriteString("end\n")
	}
	lua.WriteString("end\n" + p.reply(head))
	return store.NewScript(name, lua.String(), p.formOf(extra, func(s step) error { p.decide(m, s); return nil })), nil
}

// decide is what the Go form of a variant does after the checks.
func (p *Program) decide(m Mode, s step) {
	take := s.reply[0].Int()
	if m.UpTo {
		take = s.extra.Int()
		args := s.args
		for i, f := range p.fragments {
			state := p.State(s.reply, i)
			if m.Fixed&(1<<i) == 0 {
				take = min(take, f.Fit(s.now, args[:f.Args], state))
			} else if s.passed&(1<<i) == 0 {
				take = 0
			}
			args = args[f.Args:]
		}
		take = max(take, 0)
		s.reply[0] = store.IntegerValue(take)
	}
	if take == 0 {
		return
	}
	args := s.args
	var own []store.Arg
	for i, f := range p.fragments {
		state := p.State(s.reply, i)
		own, args = append(own[:0], args[:f.Args]...), args[f.Args:]
		if m.UpTo && m.Fixed&(1<<i) == 0 {
			f.Take(own, take)
		}
		var charge Charge
		var life int64
		if m.Marked && p.markers[i] > 0 {
			charge, life = f.Charge(s.now, own, state)
		}
		f.Commit(s.tx, p.keys[i], s.now, own, state, s.slack)
		if m.Marked && p.markers[i] > 0 {
			n := store.Nums{Tag: markerTag, Len: uint8(len(charge))}
			copy(n.N[:], charge[:])
			s.tx.Put(p.markers[i], n, ttl(life, s.slack))
		}
	}
}

func (p *Program) newRefund() (*store.Script, error) {
	var reads, gives strings.Builder
	for i, f := range p.fragments {
		if f.Refund == nil {
			return nil, f.errorf("it gives nothing back")
		}
		if p.markers[i] == 0 {
			gives.WriteString("do\n" + p.sources[i].refund + "end\n")
			continue
		}
		was, key, foreign := "was["+strconv.Itoa(i+1)+"]", luaKey(p.markers[i]), fmt.Sprintf("return redis.error_reply('WEIRFOREIGN %d')", p.markers[i]+1)
		reads.WriteString(was + " = redis.pcall('GET', " + key + ")\nif " + was + " then\n" +
			"if " + was + ".err then\nif string.find(" + was + ".err, 'WRONGTYPE', 1, true) then " + foreign + " end\nreturn " + was + "\nend\n" +
			was + " = {string.match(" + was + ", '^i1 (%d+) (%d+) (%d+) (%d+)$')}\nif not " + was + "[1] then " + foreign + " end\nend\n")
		gives.WriteString("if " + was + " then\n" + p.sources[i].refund + "redis.call('UNLINK', " + key + ")\nend\n")
	}
	return store.NewScript(p.name+".refund", "-- weir "+p.name+" refund\n"+luaClockSlack+p.checks+
		"local gave, was = 0, {}\n"+reads.String()+gives.String()+p.reply("gave"), p.form(p.giveBack)), nil
}

// giveBack is what the Go form of Refund does after the checks.
func (p *Program) giveBack(s step) error {
	was := make([]store.Nums, len(p.fragments))
	found := make([]bool, len(p.fragments))
	for i, key := range p.markers {
		var err error
		if key == 0 {
			continue
		}
		if was[i], found[i], err = s.tx.Get(key, markerTag); err == nil && found[i] && int(was[i].Len) != len(Charge{}) {
			err = s.tx.Foreign(key)
		}
		if err != nil {
			return err
		}
	}
	args, gave := s.args, int64(0)
	for i, f := range p.fragments {
		if found[i] || p.markers[i] == 0 {
			if f.Refund(s.tx, p.keys[i], s.now, args[:f.Args], p.State(s.reply, i), Charge(was[i].N), s.slack) {
				gave = 1
			}
			if found[i] {
				s.tx.Del(p.markers[i])
			}
		}
		args = args[f.Args:]
	}
	s.reply[0] = store.IntegerValue(gave)
	return nil
}
