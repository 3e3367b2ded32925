package algorithm

import (
	"fmt"
	"strconv"
	"strings"
	"time"

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

	// Marked keeps a marker for each fragment that has Charge, by which
	// [Program.Refund] gives back what was taken. The keys of the markers, in
	// order, follow those of all fragments, and then come those of the notes, one
	// for each fragment that has Notes.
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

// Markers returns which fragments have a marker, and which a note, by a bit for each.
func (p *Program) Markers() (markers, notes uint) {
	for i := range p.fragments {
		if p.markers[i] > 0 {
			markers |= 1 << i
		}
		if p.notes[i] > 0 {
			notes |= 1 << i
		}
	}
	return markers, notes
}

// AppendUpTo appends the last argument of a decision with UpTo: how many tokens
// to take at most.
func (p *Program) AppendUpTo(args []store.Arg, most int64) []store.Arg {
	return append(args, store.IntArg(min(most, MaxTokens)))
}

// markerTag begins a marker, or a note: "i1 A B C D", the integers of a [Charge].
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
	head, nargs := "ok and 1 or 0", p.args
	if m.UpTo {
		head, nargs = "take", p.args+1
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
	if m.Marked {
		lua.WriteString("local note, keep, kept = {}\n")
		for i, key := range p.notes {
			if key > 0 {
				lua.WriteString(luaRead("note", i, key))
			}
		}
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
				", 'PX', string.format('%d', (life" + n + " + 999) / 1000 + slack))\n" + p.luaKeep(i))
		}
		lua.WriteString("end\n")
	}
	lua.WriteString("end\n" + p.reply(head))
	return store.NewScript(name, lua.String(), p.form(nargs, p.decide(m))), nil
}

// luaRead reads the marker or note at key into element i of table.
func luaRead(table string, i, key int) string {
	v, at := table+"["+strconv.Itoa(i+1)+"]", luaKey(key)
	foreign := fmt.Sprintf("return redis.error_reply('WEIRFOREIGN %d')", key+1)
	return v + " = redis.pcall('GET', " + at + ")\nif " + v + " then\n" +
		"if " + v + ".err then\nif string.find(" + v + ".err, 'WRONGTYPE', 1, true) then " + foreign + " end\nreturn " + v + "\nend\n" +
		v + " = {string.match(" + v + ", '^i1 (%d+) (%d+) (%d+) (%d+)$')}\nif not " + v + "[1] then " + foreign + " end\nend\n"
}

// luaKeep writes the note of fragment i, if that replaces it.
func (p *Program) luaKeep(i int) string {
	if p.notes[i] == 0 {
		return ""
	}
	return "if keep then\nredis.call('SET', " + luaKey(p.notes[i]) + ", 'i1 ' .. keep, 'PX', string.format('%d', (kept + 999) / 1000 + slack))\nkeep = nil\nend\n"
}

// readMark reads a marker or a note.
func readMark(tx store.Tx, key int) (c Charge, held bool, err error) {
	n, held, err := tx.Get(key, markerTag)
	if err == nil && held && int(n.Len) != len(c) {
		err = tx.Foreign(key)
	}
	return n.N, held, err
}

func putMark(tx store.Tx, key int, c Charge, life int64, slack time.Duration) {
	tx.Put(key, store.Nums{Tag: markerTag, Len: uint8(len(c)), N: c}, ttl(life, slack))
}

// readNotes reads the notes of the fragments that have them.
func (p *Program) readNotes(tx store.Tx) (notes [MaxRules]Note, err error) {
	for i, key := range p.notes {
		if key == 0 {
			continue
		}
		n := Note{keep: new(Charge), life: new(int64)}
		if n.Charge, n.Held, err = readMark(tx, key); err != nil {
			return notes, err
		}
		notes[i] = n
	}
	return notes, nil
}

// putNote writes the note of fragment i, if that was replaced.
func (p *Program) putNote(tx store.Tx, i int, n Note, slack time.Duration) {
	if n.life != nil && *n.life > 0 {
		putMark(tx, p.notes[i], *n.keep, *n.life, slack)
	}
}

// decide returns what the Go form of a variant does after the checks.
func (p *Program) decide(m Mode) finish {
	return func(tx store.Tx, args []store.Arg, slack time.Duration, reply []store.Value, passed uint) (err error) {
		take, now := reply[0].Int(), reply[1].Int()
		if m.UpTo {
			take = p.fitting(m, now, args, reply, passed)
			reply[0] = store.IntegerValue(take)
		}
		var notes [MaxRules]Note
		if m.Marked {
			if notes, err = p.readNotes(tx); err != nil {
				return err
			}
		}
		if take == 0 {
			return nil
		}
		var own []store.Arg
		for i, f := range p.fragments {
			state := p.State(reply, i)
			own, args = append(own[:0], args[:f.Args]...), args[f.Args:]
			if m.UpTo && m.Fixed&(1<<i) == 0 {
				f.Take(own, take)
			}
			if m.Marked && p.markers[i] > 0 {
				charge, life := f.Charge(now, own, state, notes[i])
				putMark(tx, p.markers[i], charge, life, slack)
				p.putNote(tx, i, notes[i], slack)
			}
			f.Commit(tx, p.keys[i], now, own, state, slack)
		}
		return nil
	}
}

// fitting is how many tokens a decision with UpTo takes: the last argument, or as
// many as fit.
func (p *Program) fitting(m Mode, now int64, args []store.Arg, reply []store.Value, passed uint) int64 {
	take := args[len(args)-1].Int()
	for i, f := range p.fragments {
		if m.Fixed&(1<<i) == 0 {
			take = min(take, f.Fit(now, args[:f.Args], p.State(reply, i)))
		} else if passed&(1<<i) == 0 {
			take = 0
		}
		args = args[f.Args:]
	}
	return max(take, 0)
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
		reads.WriteString(luaRead("was", i, p.markers[i]))
		if p.notes[i] > 0 {
			reads.WriteString(luaRead("note", i, p.notes[i]))
		}
		gives.WriteString("if was[" + strconv.Itoa(i+1) + "] then\n" + p.sources[i].refund + p.luaKeep(i) +
			"redis.call('UNLINK', " + luaKey(p.markers[i]) + ")\nend\n")
	}
	return store.NewScript(p.name+".refund", "-- weir "+p.name+" refund\n"+luaClockSlack+p.checks+
		"local gave, was, note, keep, kept = 0, {}, {}\n"+reads.String()+gives.String()+p.reply("gave"), p.form(p.args, p.giveBack)), nil
}

// giveBack is what the Go form of Refund does after the checks.
func (p *Program) giveBack(tx store.Tx, args []store.Arg, slack time.Duration, reply []store.Value, _ uint) error {
	notes, err := p.readNotes(tx)
	if err != nil {
		return err
	}
	var was [MaxRules]Charge
	var found [MaxRules]bool
	for i, key := range p.markers {
		if key > 0 {
			if was[i], found[i], err = readMark(tx, key); err != nil {
				return err
			}
		}
	}
	now, gave := reply[1].Int(), int64(0)
	for i, f := range p.fragments {
		if found[i] || p.markers[i] == 0 {
			if f.Refund(tx, p.keys[i], now, args[:f.Args], p.State(reply, i), was[i], notes[i]) {
				gave = 1
			}
			p.putNote(tx, i, notes[i], slack)
			if found[i] {
				tx.Del(p.markers[i])
			}
		}
		args = args[f.Args:]
	}
	reply[0] = store.IntegerValue(gave)
	return nil
}
