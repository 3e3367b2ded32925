package algorithm_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// quota is an algorithm that is not of this package: so many tokens for ever, or
// until the key has not been used for an hour.
type quota struct{ tokens int64 }

var quotaTag = store.Tag{'q', '1'}

var quotaFragment = &algorithm.Fragment{
	Name: "quota",
	Lua: `-- quota: tokens that do not come back. ok and used in this line stay as they are.
--
-- KEYS[1]  string "q1 USED"
-- ARGV[1]  room: at most this many may be used before
-- ARGV[2]  cost

-- check
local v, used = redis.pcall('GET', KEYS[1]), 0
if v then
  if v.err then return redis.error_reply('WEIRFOREIGN 1') end
  used = string.match(v, '^q1 (%d+)$')
  if not used then return redis.error_reply('WEIRFOREIGN 1') end
  used = used + 0
end
local ok = used <= ARGV[1] + 0

-- commit
redis.call('SET', KEYS[1], string.format('q1 %d', used + ARGV[2]), 'PX', 3600000 + slack)
`,
	Args:  2,
	State: []string{"used"},
	Check: func(tx store.Tx, key int, _ int64, args []store.Arg) (algorithm.State, bool, error) {
		n, ok, err := tx.Get(key, quotaTag)
		if ok && n.Len != 1 {
			err = tx.Foreign(key)
		}
		return algorithm.State{n.N[0]}, n.N[0] <= args[0].Int(), err
	},
	Commit: func(tx store.Tx, key int, _ int64, args []store.Arg, s algorithm.State, slack time.Duration) {
		tx.Put(key, store.Nums{Tag: quotaTag, Len: 1, N: [store.MaxNums]int64{s[0] + args[1].Int()}}, time.Hour+slack)
	},
}

func (q quota) NewLimit() (algorithm.Limit, error) { return q, nil }
func (q quota) Fragment() *algorithm.Fragment      { return quotaFragment }
func (q quota) AppendArgs(a []store.Arg, r algorithm.Request) []store.Arg {
	return append(a, store.IntArg(max(q.tokens-r.Cost, -1)), store.IntArg(r.Cost))
}

func (q quota) Verdict(_ int64, committed bool, s algorithm.State, r algorithm.Request) algorithm.Verdict {
	v := algorithm.Verdict{Allowed: s[0] <= q.tokens-r.Cost, Limit: q.tokens, ResetAfter: time.Hour}
	if !v.Allowed {
		v.RetryAfter = algorithm.Never
	}
	if committed {
		s[0] += r.Cost
	}
	v.Remaining = max(0, q.tokens-s[0])
	return v
}

// An algorithm from elsewhere is composed with those of this package, in any order.
func TestThirdParty(t *testing.T) {
	t.Parallel()
	q := mustLimit(t, quota{tokens: 4})
	g := mustLimit(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2})
	for _, tt := range []struct {
		name      string
		limits    []algorithm.Limit
		quota     int
		remaining int64 // of both together
	}{
		{"alone", []algorithm.Limit{q}, 0, 0},
		{"behind GCRA", []algorithm.Limit{g, q}, 1, 0},
		{"before GCRA", []algorithm.Limit{q, g}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var fragments []*algorithm.Fragment
			costs := make([]int64, len(tt.limits))
			for i, l := range tt.limits {
				fragments = append(fragments, l.Fragment())
				costs[i] = 2
			}
			p := mustCompose(t, fragments...)
			s := newState(epoch, len(tt.limits))
			for i, step := range []struct {
				at   int64 // seconds
				want bool
				left int64 // of the quota
			}{{0, true, 2}, {0, len(tt.limits) == 1, 2 - 2*int64(2-len(tt.limits))}, {2, len(tt.limits) == 2, 0}, {4, false, 0}} {
				s.now = epoch + step.at*1e6
				ok, v := run(t, p, p.Decide, s, 0, tt.limits, costs)
				if ok != step.want || v[tt.quota].Remaining != step.left {
					t.Errorf("step %d: got %v, %+v, want %v with %d left", i, ok, v[tt.quota], step.want, step.left)
				}
			}
		})
	}
}
