package algorithm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

// MaxRules is the most fragments that one script can hold.
const MaxRules = 16

// clockSlack lengthens every TTL when the caller brings the time: the key then
// expires on another clock, and must not before its state is dead on the
// caller's.
const clockSlack = time.Hour

// A Program is a list of fragments composed into scripts, each one atomic step
// over the keys of each fragment, in order. All take the same arguments, those of
// [Program.AppendNow] and then each limit's, and reply alike; those that a [Mode]
// describes may have markers' keys and one more argument behind these. It cannot
// be changed, and is safe for concurrent use. What is seldom needed is composed
// when it is first asked for: see [Program.Variant] and [Program.Refund].
type Program struct {
	Decide *store.Script // checks all, then commits all if every check passed
	Peek   *store.Script // checks all
	Reset  *store.Script // checks all, then deletes every key

	// Entries, of one fragment alone that has Entries, replies with the texts
	// that it lists, and nothing else. Otherwise it is nil.
	Entries *store.Script

	// Sets says that a key holds a sorted set or a list, which MGet cannot read.
	Sets bool

	fragments []*Fragment
	sources   []source
	name      string
	checks    string   // in Lua
	states    string   // in Lua, what a reply holds behind its head
	keys      []int    // the first key of each fragment, counted from 0
	nkeys     int      // keys of all fragments
	markers   []int    // the key of each fragment's marker, behind all those, 0 for none
	notes     []int    // and of its note, behind the markers
	offsets   []int    // where each fragment's state begins in a reply
	replies   int      // the length of a reply
	args      int      // the number of arguments
	variants  sync.Map // of Decide, by Mode
	refund    func() (*store.Script, error)
}

// Compose makes one program of 1 to [MaxRules] fragments.
func Compose(fragments ...*Fragment) (*Program, error) {
	if len(fragments) < 1 || len(fragments) > MaxRules {
		return nil, fmt.Errorf("%d rules in one decision: there must be from 1 to %d", len(fragments), MaxRules)
	}
	p := &Program{fragments: slices.Clone(fragments), replies: 2, args: 1}
	var checks, commits, deletes, oks, states strings.Builder
	names := make([]string, len(fragments))
	for i, f := range fragments {
		if f == nil || !word.MatchString(f.Name) || f.Check == nil || f.Commit == nil || len(f.State) > MaxState || f.Args < 0 || f.Keys < 0 || f.Keys > MaxKeys {
			return nil, fmt.Errorf("fragment %d: it must have a Name of lower-case letters and digits, a Check, a Commit, at most %d names in State, no fewer arguments than none, and at most %d keys", i+1, MaxState, MaxKeys)
		}
		if (f.Fit == nil) != (f.Take == nil) || f.Charge != nil && f.Refund == nil || f.Notes && f.Charge == nil {
			return nil, f.errorf("Fit and Take come together, Charge comes with Refund, and Notes with Charge")
		}
		src, err := f.source(i+1, p.nkeys, p.args)
		if err != nil {
			return nil, err
		}
		p.sources = append(p.sources, src)
		n := strconv.Itoa(i + 1)
		names[i] = f.Name
		checks.WriteString(src.check)
		commits.WriteString(src.commit)
		p.keys = append(p.keys, p.nkeys)
		for range f.keys() {
			p.nkeys++
			deletes.WriteString("redis.call('UNLINK', " + luaKey(p.nkeys-1) + ")\n")
		}
		if i > 0 {
			oks.WriteString(" and ")
		}
		oks.WriteString("ok" + n)
		for _, s := range f.State {
			states.WriteString(", " + s + n)
		}
		p.args += f.Args
		p.Sets = p.Sets || f.Sets
		p.offsets = append(p.offsets, p.replies)
		p.replies += len(f.State)
	}
	p.markers, p.notes = make([]int, len(fragments)), make([]int, len(fragments))
	next := p.nkeys
	for i, f := range fragments {
		if f.Charge != nil {
			p.markers[i] = next
			next++
		}
	}
	for i, f := range fragments {
		if f.Notes {
			p.notes[i] = next
			next++
		}
	}
	p.name, p.checks, p.states = strings.Join(names, "+"), checks.String(), states.String()
	p.refund = sync.OnceValues(p.newRefund)
	head := "local ok = " + oks.String() + "\n"
	tail := p.reply("ok and 1 or 0")

	p.Decide = store.NewScript(p.name, "-- weir "+p.name+"\n"+luaClockSlack+p.checks+
		head+"if ok then\n"+commits.String()+"end\n"+tail, p.form(p.args, p.commitIfOK))
	p.Peek = store.NewReadOnlyScript(p.name+".peek", "-- weir "+p.name+" peek\n"+luaClock+p.checks+
		head+tail, p.form(p.args, nil))
	p.Reset = store.NewScript(p.name+".reset", "-- weir "+p.name+" reset\n"+luaClock+p.checks+
		head+deletes.String()+tail, p.form(p.args, p.deleteAll))
	if len(fragments) == 1 && fragments[0].Entries != nil {
		p.Entries = store.NewReadOnlyScript(p.name+".entries", "-- weir "+p.name+" entries\n"+luaClock+p.checks+
			p.sources[0].entries+"return entries1\n", p.entries)
	}
	return p, nil
}

// luaKey is key i, counted from 0.
func luaKey(i int) string { return "KEYS[" + strconv.Itoa(i+1) + "]" }

// reply ends a script: with a number, the time, and the states.
func (p *Program) reply(head string) string { return "return {" + head + ", now" + p.states + "}\n" }

const (
	luaClock = `local now
if ARGV[1] == '0' then
local time = redis.call('TIME')
now = time[1] * 1000000 + time[2]
else
now = ARGV[1] + 0
end
`
	luaClockSlack = `local now, slack
if ARGV[1] == '0' then
local time = redis.call('TIME')
now, slack = time[1] * 1000000 + time[2], 0
else
now, slack = ARGV[1] + 0, 3600000
end
`
)

// AppendNow appends the first argument of every script: the caller's time, in
// microseconds, or 0 for the store's.
func (p *Program) AppendNow(args []store.Arg, now int64) []store.Arg {
	return append(args, store.IntArg(now))
}

// Outcome reads the head of a reply: a number, and the time of the step. The
// number is 1 if every check passed, so that a decision was committed, or else 0;
// of a decision with UpTo, how many tokens were taken; of a refund, 1 if anything
// was given back. The error is [store.ErrScript] for what no program replies.
func (p *Program) Outcome(reply []store.Value) (n, now int64, err error) {
	if len(reply) != p.replies {
		return 0, 0, fmt.Errorf("%w: %s replied %d values, not %d", store.ErrScript, p.Decide.Name(), len(reply), p.replies)
	}
	for i, v := range reply {
		if v.Kind() != store.Integer || v.Int() < 0 || v.Int() > 1<<53 {
			return 0, 0, fmt.Errorf("%w: value %d of what %s replied is no integer from 0 to 2^53", store.ErrScript, i, p.Decide.Name())
		}
	}
	if reply[1].Int() < 1 || reply[1].Int() >= MaxSpan {
		return 0, 0, fmt.Errorf("%w: %s replied %d at %d", store.ErrScript, p.Decide.Name(), reply[0].Int(), reply[1].Int())
	}
	return reply[0].Int(), reply[1].Int(), nil
}

// State returns what the check of fragment i reported in reply, which Outcome
// found sound.
func (p *Program) State(reply []store.Value, i int) State {
	var s State
	for j, v := range reply[p.offsets[i] : p.offsets[i]+len(p.fragments[i].State)] {
		s[j] = v.Int()
	}
	return s
}

// A finish is what the Go form of a script does once every check has run: args are
// behind the time, reply is the head and the states, and passed has a bit for each
// check that did.
type finish func(tx store.Tx, args []store.Arg, slack time.Duration, reply []store.Value, passed uint) error

// form returns the Go form of a script with that many arguments: all checks, then end.
func (p *Program) form(nargs int, end finish) store.GoForm {
	return func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if len(args) != nargs {
			return nil, fmt.Errorf("%w: %s takes %d arguments, and got %d", store.ErrScript, p.name, nargs, len(args))
		}
		now, slack := args[0].Int(), clockSlack
		if now == 0 {
			now, slack = tx.Now(), 0
		}
		start := len(reply)
		reply = append(reply, store.IntegerValue(1), store.IntegerValue(now))
		rest, passed := args[1:], uint(0)
		for i, f := range p.fragments {
			s, ok, err := f.Check(tx, p.keys[i], now, rest[:f.Args])
			if err != nil {
				return nil, err
			}
			if ok {
				passed |= 1 << i
			} else {
				reply[start] = store.IntegerValue(0)
			}
			for j := range f.State {
				reply = append(reply, store.IntegerValue(s[j]))
			}
			rest = rest[f.Args:]
		}
		if end != nil {
			if err := end(tx, args[1:], slack, reply[start:], passed); err != nil {
				return nil, err
			}
		}
		return reply, nil
	}
}

func (p *Program) commitIfOK(tx store.Tx, args []store.Arg, slack time.Duration, reply []store.Value, _ uint) error {
	if reply[0].Int() == 0 {
		return nil
	}
	now := reply[1].Int()
	for i, f := range p.fragments {
		f.Commit(tx, p.keys[i], now, args[:f.Args], p.State(reply, i), slack)
		args = args[f.Args:]
	}
	return nil
}

// entries is the Go form of Entries.
func (p *Program) entries(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	checked, err := p.Peek.GoForm()(tx, args, nil)
	if err != nil {
		return nil, err
	}
	texts, err := p.fragments[0].Entries(tx, p.keys[0], p.State(checked, 0))
	for _, text := range texts {
		reply = append(reply, store.BulkValue(text))
	}
	return reply, err
}

func (p *Program) deleteAll(tx store.Tx, _ []store.Arg, _ time.Duration, _ []store.Value, _ uint) error {
	for key := range p.nkeys {
		tx.Del(key)
	}
	return nil
}
