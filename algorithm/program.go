package algorithm

import (
	"fmt"
	"strconv"
	"strings"
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
// [Program.AppendNow] and then each limit's, and reply alike. It cannot be
// changed, and is safe for concurrent use.
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
	keys      []int // the first key of each fragment, counted from 0
	states    []int // where each fragment's state begins in a reply
	replies   int   // the length of a reply
	args      int   // the number of arguments
}

// Compose makes one program of 1 to [MaxRules] fragments.
func Compose(fragments ...*Fragment) (*Program, error) {
	if len(fragments) < 1 || len(fragments) > MaxRules {
		return nil, fmt.Errorf("%d rules in one decision: there must be from 1 to %d", len(fragments), MaxRules)
	}
	p := &Program{fragments: fragments, replies: 2}
	var checks, commits, deletes, oks, state strings.Builder
	var src source
	names := make([]string, len(fragments))
	keys, args := 0, 1
	for i, f := range fragments {
		if f == nil || !word.MatchString(f.Name) || f.Check == nil || f.Commit == nil || len(f.State) > MaxState || f.Args < 0 || f.Keys < 0 || f.Keys > MaxKeys {
			return nil, fmt.Errorf("fragment %d: it must have a Name of lower-case letters and digits, a Check, a Commit, at most %d names in State, no fewer arguments than none, and at most %d keys", i+1, MaxState, MaxKeys)
		}
		var err error
		if src, err = f.source(i+1, keys, args); err != nil {
			return nil, err
		}
		n := strconv.Itoa(i + 1)
		names[i] = f.Name
		checks.WriteString(src.check)
		commits.WriteString(src.commit)
		for range f.keys() {
			keys++
			deletes.WriteString("redis.call('UNLINK', KEYS[" + strconv.Itoa(keys) + "])\n")
		}
		if i > 0 {
			oks.WriteString(" and ")
		}
		oks.WriteString("ok" + n)
		for _, s := range f.State {
			state.WriteString(", " + s + n)
		}
		args += f.Args
		p.Sets = p.Sets || f.Sets
		p.keys = append(p.keys, keys-f.keys())
		p.states = append(p.states, p.replies)
		p.replies += len(f.State)
	}
	p.args = args
	name := strings.Join(names, "+")
	head := "local ok = " + oks.String() + "\n"
	tail := "return {ok and 1 or 0, now" + state.String() + "}\n"

	p.Decide = store.NewScript(name, "-- weir "+name+"\n"+luaClockSlack+checks.String()+
		head+"if ok then\n"+commits.String()+"end\n"+tail, p.form(p.commitIfOK))
	p.Peek = store.NewReadOnlyScript(name+".peek", "-- weir "+name+" peek\n"+luaClock+checks.String()+
		head+tail, p.form(nil))
	p.Reset = store.NewScript(name+".reset", "-- weir "+name+" reset\n"+luaClock+checks.String()+
		head+deletes.String()+tail, p.form(p.deleteAll))
	if len(fragments) == 1 && fragments[0].Entries != nil {
		p.Entries = store.NewReadOnlyScript(name+".entries", "-- weir "+name+" entries\n"+luaClock+checks.String()+
			src.entries+"return entries1\n", p.entries)
	}
	return p, nil
}

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

// Outcome reads the head of a reply: whether every check passed, so that a
// decision was committed, and the time of the step. The error is
// [store.ErrScript] for what no program replies.
func (p *Program) Outcome(reply []store.Value) (ok bool, now int64, err error) {
	if len(reply) != p.replies {
		return false, 0, fmt.Errorf("%w: %s replied %d values, not %d", store.ErrScript, p.Decide.Name(), len(reply), p.replies)
	}
	for i, v := range reply {
		if v.Kind() != store.Integer || v.Int() < 0 || v.Int() > 1<<53 {
			return false, 0, fmt.Errorf("%w: value %d of what %s replied is no integer from 0 to 2^53", store.ErrScript, i, p.Decide.Name())
		}
	}
	if reply[0].Int() > 1 || reply[1].Int() < 1 || reply[1].Int() >= MaxSpan {
		return false, 0, fmt.Errorf("%w: %s replied %d at %d", store.ErrScript, p.Decide.Name(), reply[0].Int(), reply[1].Int())
	}
	return reply[0].Int() == 1, reply[1].Int(), nil
}

// State returns what the check of fragment i reported in reply, which Outcome
// found sound.
func (p *Program) State(reply []store.Value, i int) State {
	var s State
	for j, v := range reply[p.states[i] : p.states[i]+len(p.fragments[i].State)] {
		s[j] = v.Int()
	}
	return s
}

// form returns the Go form of a script: all checks, then finish.
func (p *Program) form(finish func(tx store.Tx, args []store.Arg, slack time.Duration, reply []store.Value)) store.GoForm {
	return func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if len(args) != p.args {
			return nil, fmt.Errorf("%w: %s takes %d arguments, and got %d", store.ErrScript, p.Decide.Name(), p.args, len(args))
		}
		now, slack := args[0].Int(), clockSlack
		if now == 0 {
			now, slack = tx.Now(), 0
		}
		start := len(reply)
		reply = append(reply, store.IntegerValue(1), store.IntegerValue(now))
		rest := args[1:]
		for i, f := range p.fragments {
			s, ok, err := f.Check(tx, p.keys[i], now, rest[:f.Args])
			if err != nil {
				return nil, err
			}
			if !ok {
				reply[start] = store.IntegerValue(0)
			}
			for j := range f.State {
				reply = append(reply, store.IntegerValue(s[j]))
			}
			rest = rest[f.Args:]
		}
		if finish != nil {
			finish(tx, args[1:], slack, reply[start:])
		}
		return reply, nil
	}
}

func (p *Program) commitIfOK(tx store.Tx, args []store.Arg, slack time.Duration, reply []store.Value) {
	if reply[0].Int() == 0 {
		return
	}
	now := reply[1].Int()
	for i, f := range p.fragments {
		f.Commit(tx, p.keys[i], now, args[:f.Args], p.State(reply, i), slack)
		args = args[f.Args:]
	}
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

func (p *Program) deleteAll(tx store.Tx, _ []store.Arg, _ time.Duration, _ []store.Value) {
	for i, f := range p.fragments {
		for key := range f.keys() {
			tx.Del(p.keys[i] + key)
		}
	}
}
