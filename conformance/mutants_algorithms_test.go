package conformance

import (
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var gcraMutants = []mutant{
	{"remaining exceeds the limit", "GCRA/Vectors", []string{"GCRA/", "Limiter/Mix", "Limiter/Modes"}, bad[algorithm.GCRA](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter == algorithm.Never {
			v.Remaining++
		}
		return v
	}})},
	{"fractions are dropped", "GCRA/Thirds", []string{"GCRA/", "Limiter/"}, bad[algorithm.GCRA](badAlgorithm{args: func(args []store.Arg) {
		if fractional(args) {
			args[3] = store.IntArg(0)
		}
	}})},
	{"an interval is at least 1µs", "GCRA/Fast", []string{"GCRA/", "Limiter/Mix"}, bad[algorithm.GCRA](badAlgorithm{args: func(args []store.Arg) {
		if fractional(args) {
			args[2] = store.IntArg(max(1, args[2].Int()))
		}
	}})},
	{"parts are taken for others", "GCRA/Carry", nil, bad[algorithm.GCRA](badAlgorithm{check: func(tx store.Tx, _ int64, args []store.Arg) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if fractional(args) {
				n.N[2] = args[4].Int()
			}
			return n, ok, err
		}}
	}})},
	{"a cost is miscounted", "GCRA/History", []string{"Limiter/Mix", "Limiter/Modes"}, bad[algorithm.GCRA](badAlgorithm{verdict: sevens})},
	{"a layout of its own", "GCRA/History", []string{"GCRA/Carry", "GCRA/Huge", "Limiter/Mix"}, onlyFor("gcra", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if n.N[2] == 7 {
				n.N[1], n.N[2] = 0, 1
			}
			return n, ttl
		}}
	})},
	{"the wait is rounded up", "GCRA/Exact", []string{"GCRA/", "Limiter/"}, bad[algorithm.GCRA](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	}})},
	{"reads and writes apart", "GCRA/HotKey", []string{"Hygiene/TTL"}, torn("gcra")},
	{"the clock is fast", "GCRA/Refill", []string{"Limiter/Wait", "Hygiene/"}, hasty("gcra")},
	{"far times are disbelieved", "GCRA/Backwards", []string{"GCRA/History", "GCRA/Never", "Limiter/Mix", "Hygiene/", "GCRA/Cancel", "GCRA/Refund", "GCRA/Reserve", "GCRA/UpTo", "Limiter/Cancel", "Limiter/Limits", "Limiter/Modes"}, bad[algorithm.GCRA](unknownAhead(func(args []store.Arg) int64 {
		inc := args[1]
		if fractional(args) {
			inc = args[2]
		}
		return args[0].Int() + inc.Int() + 1
	}))},
	{"never is an hour", "GCRA/Never", []string{"GCRA/", "Limiter/Mix", "Limiter/Modes", "Limiter/Refused"}, bad[algorithm.GCRA](badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "GCRA/Huge", nil, bad[algorithm.GCRA](badAlgorithm{args: roundArgs})},
}

var fixedWindowMutants = []mutant{
	{"always aligned", "FixedWindow/Anchored", []string{"FixedWindow/", "Limiter/"}, bad[algorithm.FixedWindow](badAlgorithm{args: func(args []store.Arg) { args[3] = args[1] }})},
	{"never aligned", "FixedWindow/Aligned", []string{"FixedWindow/", "Limiter/Mix"}, bad[algorithm.FixedWindow](badAlgorithm{args: func(args []store.Arg) { args[3] = store.IntArg(1) }})},
	{"remaining is negative", "FixedWindow/Carry", nil, bad[algorithm.FixedWindow](badAlgorithm{verdict: func(v algorithm.Verdict, committed bool, s algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if !committed {
			v.Remaining = v.Limit - s[1]
		}
		return v
	}})},
	{"a cost is miscounted", "FixedWindow/History", []string{"Limiter/Mix"}, bad[algorithm.FixedWindow](badAlgorithm{verdict: sevens})},
	{"the wait is the window", "FixedWindow/Exact", []string{"FixedWindow/", "Limiter/Mix"}, mutation{wrap: func(a algorithm.Algorithm) algorithm.Algorithm {
		w, ok := a.(algorithm.FixedWindow)
		if !ok {
			return a
		}
		return &badAlgorithm{Algorithm: a, verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
			if !v.Allowed && v.RetryAfter != algorithm.Never {
				v.RetryAfter = w.Window
			}
			return v
		}}
	}}},
	{"reads and writes apart", "FixedWindow/HotKey", []string{"Hygiene/TTL"}, torn("fixedwindow")},
	{"the clock is fast", "FixedWindow/Refill", []string{"Hygiene/"}, hasty("fixedwindow")},
	{"a start ahead of now is forgotten", "FixedWindow/Backwards", []string{"FixedWindow/History", "Limiter/Mix", "FixedWindow/UpTo"}, bad[algorithm.FixedWindow](unknownAhead(func(args []store.Arg) int64 { return args[1].Int() }))},
	{"never is an hour", "FixedWindow/Never", []string{"FixedWindow/", "Limiter/Mix"}, bad[algorithm.FixedWindow](badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "FixedWindow/Huge", nil, bad[algorithm.FixedWindow](badAlgorithm{args: roundArgs})},
}
