package conformance

import (
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A counterArg changes one argument of SlidingCounter.
func counterArg(i int, change func(n int64) int64) mutation {
	return bad[algorithm.SlidingCounter](badAlgorithm{args: func(args []store.Arg) { args[i] = store.IntArg(change(args[i].Int())) }})
}

var slidingCounterMutants = []mutant{
	{"the window before weighs nothing", "SlidingCounter/Trace", []string{"SlidingCounter/", "Limiter/", "Hygiene/"}, bad[algorithm.SlidingCounter](badAlgorithm{check: func(tx store.Tx, _ int64, _ []store.Arg) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			n.N[2] = 0
			return n, ok, err
		}}
	}})},
	{"steps are twice as long", "SlidingCounter/Steps", []string{"SlidingCounter/", "Limiter/"}, bad[algorithm.SlidingCounter](badAlgorithm{verdict: func(v algorithm.Verdict, committed bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.Limit == 1<<20 && !committed {
			v.Remaining -= v.Remaining % 2
		}
		return v
	}})},
	{"remaining is negative", "SlidingCounter/Carry", nil, bad[algorithm.SlidingCounter](badAlgorithm{verdict: func(v algorithm.Verdict, committed bool, s algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if !committed && s[1] > v.Limit {
			v.Remaining = v.Limit - s[1]
		}
		return v
	}})},
	{"a cost is miscounted", "SlidingCounter/History", []string{"Limiter/Mix"}, bad[algorithm.SlidingCounter](badAlgorithm{verdict: sevens})},
	{"the wait is rounded up", "SlidingCounter/Exact", []string{"SlidingCounter/", "Limiter/Mix", "Limiter/Modes"}, bad[algorithm.SlidingCounter](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	}})},
	{"reads and writes apart", "SlidingCounter/HotKey", []string{"Hygiene/TTL"}, torn("slidingcounter")},
	{"the clock is fast", "SlidingCounter/Refill", []string{"SlidingCounter/HotKey", "Hygiene/"}, hasty("slidingcounter")},
	{"a window ahead of now is forgotten", "SlidingCounter/Backwards", []string{"SlidingCounter/History", "Limiter/Mix", "SlidingCounter/UpTo"}, bad[algorithm.SlidingCounter](unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"never is an hour", "SlidingCounter/Never", []string{"SlidingCounter/", "Limiter/Mix", "Limiter/Modes"}, bad[algorithm.SlidingCounter](badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "SlidingCounter/Huge", []string{"SlidingCounter/"}, counterArg(4, func(n int64) int64 {
		if n > 1<<30 {
			n -= n % 1000
		}
		return n
	})},
}
