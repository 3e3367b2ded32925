package conformance

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A tally is an algorithm that is nobody's: so many tokens in a window that starts
// with the first of them. A flaw makes it wrong.
type tally struct {
	limit  int64
	window time.Duration
	*flaw
}

// A flaw is what a tally does otherwise. What is nil is as it should be.
type flaw struct {
	args     func(args []store.Arg)
	fragment func(f *algorithm.Fragment)
	verdict  func(v algorithm.Verdict, committed bool, r algorithm.Request) algorithm.Verdict
}

var tallyTag = store.Tag{'t', '1'}

const tallyLua = `
-- check
local v = redis.pcall('GET', KEYS[1])
local edge, count = 0, 0
if v then
  if v.err then return redis.error_reply('WEIRFOREIGN 1') end
  local e, c = string.match(v, '^t1 (%d+) (%d+)$')
  if not e then return redis.error_reply('WEIRFOREIGN 1') end
  edge, count = e + 0, c + 0
end
if now >= edge then edge, count = now + ARGV[3], 0 end
local ok, cost = count <= ARGV[1] + 0, ARGV[2] + 0

-- commit
redis.call('SET', KEYS[1], string.format('t1 %d %d', edge, count + cost), 'PX', string.format('%d', (edge - now + 999) / 1000 + slack))

-- upto
local fit = ARGV[1] + 1 - count

-- take
cost = take

-- charge
local charge, life = string.format('%d %d 0 0', edge, cost), edge - now

-- refund
if edge == was[1] + 0 and count > 0 then
  gave = 1
  redis.call('SET', KEYS[1], string.format('t1 %d %d', edge, math.max(count - was[2], 0)), 'KEEPTTL')
end
`

func tallyFragment() *algorithm.Fragment {
	value := func(edge, count int64) store.Nums {
		return store.Nums{Tag: tallyTag, Len: 2, N: [store.MaxNums]int64{edge, count}}
	}
	return &algorithm.Fragment{
		Name: "tally", Lua: tallyLua, Args: 3, State: []string{"edge", "count"},
		Check: func(tx store.Tx, key int, now int64, args []store.Arg) (algorithm.State, bool, error) {
			n, ok, err := tx.Get(key, tallyTag)
			if ok && n.Len != 2 {
				err = tx.Foreign(key)
			}
			s := algorithm.State{n.N[0], n.N[1]}
			if now >= s[0] {
				s = algorithm.State{now + args[2].Int()}
			}
			return s, s[1] <= args[0].Int(), err
		},
		Commit: func(tx store.Tx, key int, now int64, args []store.Arg, s algorithm.State, slack time.Duration) {
			tx.Put(key, value(s[0], s[1]+args[1].Int()), time.Duration((s[0]-now+999)/1000)*time.Millisecond+slack)
		},
		Fit:  func(_ int64, args []store.Arg, s algorithm.State) int64 { return args[0].Int() + 1 - s[1] },
		Take: func(args []store.Arg, n int64) { args[1] = store.IntArg(n) },
		Charge: func(now int64, args []store.Arg, s algorithm.State, _ algorithm.Note) (algorithm.Charge, int64) {
			return algorithm.Charge{s[0], args[1].Int()}, s[0] - now
		},
		Refund: func(tx store.Tx, key int, _ int64, _ []store.Arg, s algorithm.State, was algorithm.Charge, _ algorithm.Note) bool {
			if s[0] != was[0] || s[1] == 0 {
				return false
			}
			tx.Put(key, value(s[0], max(s[1]-was[1], 0)), 0)
			return true
		},
	}
}

func (a tally) String() string { return fmt.Sprintf("tally of %d in %v", a.limit, a.window) }

type tallyLimit struct {
	tally
	step *algorithm.Fragment
}

func (a tally) NewLimit() (algorithm.Limit, error) {
	if a.limit < 1 || a.window < 1 {
		return nil, algorithm.ErrInvalidLimit
	}
	l := &tallyLimit{tally: a, step: tallyFragment()}
	if a.fragment != nil {
		a.fragment(l.step)
	}
	return l, nil
}

func (l *tallyLimit) Fragment() *algorithm.Fragment { return l.step }

func (l *tallyLimit) AppendArgs(args []store.Arg, r algorithm.Request) []store.Arg {
	start := len(args)
	args = append(args, store.IntArg(max(l.limit-r.Cost, -1)), store.IntArg(min(r.Cost, l.limit)), store.IntArg(l.window.Microseconds()))
	if l.args != nil {
		l.args(args[start:])
	}
	return args
}

func (l *tallyLimit) Verdict(now int64, committed bool, s algorithm.State, r algorithm.Request) algorithm.Verdict {
	rest := time.Duration(s[0]-now) * time.Microsecond
	v := algorithm.Verdict{Limit: l.limit}
	switch {
	case r.Cost > l.limit:
		v.RetryAfter = algorithm.Never
	case s[1] > l.limit-r.Cost:
		v.RetryAfter = rest
	default:
		v.Allowed = true
	}
	if committed {
		s[1] += r.Cost
	}
	if v.Remaining = max(l.limit-s[1], 0); s[1] > 0 {
		v.ResetAfter = rest
	}
	if l.verdict != nil {
		v = l.verdict(v, committed, r)
	}
	return v
}

// An unchecked tally is not checked.
type unchecked struct{ tally }

func (a unchecked) NewLimit() (algorithm.Limit, error) {
	if time.Minute%time.Duration(a.limit) < 0 { // panics for 0
		return nil, algorithm.ErrInvalidLimit
	}
	return a.tally.NewLimit()
}

// anyTally makes random ones with a flaw.
func anyTally(f *flaw) func(*rand.Rand) algorithm.Algorithm {
	return func(r *rand.Rand) algorithm.Algorithm {
		return tally{1 + r.Int64N(12), pick(r, time.Minute, 7_000_001*time.Microsecond, time.Hour, 24*time.Hour), f}
	}
}
