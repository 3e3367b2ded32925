package conformance

import (
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A tokenArg changes the arguments of TokenBucket.
func tokenArg(change func(args []store.Arg)) mutation {
	return bad[algorithm.TokenBucket](badAlgorithm{args: change})
}

// wholeMillis rounds a wait up to the millisecond.
func wholeMillis(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
	if v.RetryAfter != algorithm.Never {
		v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
	}
	return v
}

// oneMore writes, in scripts whose name begins with name, a key that has as much more
// taken from it as more says.
func oneMore(name string, more func(n *store.Nums)) mutation {
	return onlyFor(name, func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if n.Tag != (store.Tag{'i', '1'}) {
				more(&n)
			}
			return n, ttl
		}}
	})
}

// remarked changes the markers that scripts see whose name begins with name.
func remarked(name string, change func(n *store.Nums)) mutation {
	return onlyFor(name, func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if ok && n.Tag == (store.Tag{'i', '1'}) {
				change(&n)
			}
			return n, ok, err
		}}
	})
}

// keptMarkers deletes no marker.
func keptMarkers(name string) mutation {
	return onlyFor(name, func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, del: func(i int) {
			if i == 0 {
				tx.Del(i)
			}
		}}
	})
}

var tokenBucketMutants = []mutant{
	{"all come back at once", "TokenBucket/Smooth", []string{"TokenBucket/", "Limiter/", "Hygiene/"}, tokenArg(func(args []store.Arg) { args[4] = store.IntArg(0) })},
	{"none come back at once", "TokenBucket/AtOnce", []string{"TokenBucket/", "Limiter/", "Hygiene/"}, tokenArg(func(args []store.Arg) { args[4] = args[3] })},
	{"a third is rounded up", "TokenBucket/Thirds", []string{"TokenBucket/", "Limiter/"}, tokenArg(func(args []store.Arg) {
		if args[2].Int() == 1_000_000 && args[3].Int() == 3 {
			args[2] = store.IntArg(1_000_002)
		}
	})},
	{"remaining is negative", "TokenBucket/Carry", []string{"TokenBucket/Wait", "TokenBucket/Reserve"}, bad[algorithm.TokenBucket](badAlgorithm{verdict: func(v algorithm.Verdict, committed bool, s algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if !committed && v.Remaining == 0 && s[1] > v.Limit+1 {
			v.Remaining = v.Limit - s[1]
		}
		return v
	}})},
	{"nobody waits", "TokenBucket/Wait", []string{"TokenBucket/Reserve", "TokenBucket/Cancel", "Limiter/"}, tokenArg(func(args []store.Arg) { args[5] = store.IntArg(0) })},
	{"a cost is miscounted", "TokenBucket/History", []string{"Limiter/Mix", "Limiter/Modes"}, bad[algorithm.TokenBucket](badAlgorithm{verdict: sevens})},
	{"the wait is rounded up", "TokenBucket/Exact", []string{"TokenBucket/", "Limiter/"}, bad[algorithm.TokenBucket](badAlgorithm{verdict: wholeMillis})},
	{"reads and writes apart", "TokenBucket/HotKey", []string{"Hygiene/TTL"}, torn("tokenbucket")},
	{"the clock is fast", "TokenBucket/Refill", []string{"TokenBucket/HotKey", "Hygiene/"}, hasty("tokenbucket")},
	{"a period ahead of now is forgotten", "TokenBucket/Backwards", []string{"TokenBucket/", "Limiter/"}, bad[algorithm.TokenBucket](unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"never is an hour", "TokenBucket/Never", []string{"TokenBucket/", "Limiter/"}, bad[algorithm.TokenBucket](badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "TokenBucket/Huge", nil, bad[algorithm.TokenBucket](badAlgorithm{args: roundArgs})},
	{"one more is taken than granted", "TokenBucket/UpTo", []string{"TokenBucket/Refund", "Limiter/Modes"}, oneMore("tokenbucket.upto", func(n *store.Nums) { n.N[1]++ })},
	{"gives back again and again", "TokenBucket/Refund", []string{"TokenBucket/Cancel", "Limiter/Modes"}, keptMarkers("tokenbucket.refund")},
	{"a Delay is told a microsecond short", "TokenBucket/Reserve", []string{"TokenBucket/Wait", "TokenBucket/Cancel"}, bad[algorithm.TokenBucket](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		v.Delay = max(v.Delay-time.Microsecond, 0)
		return v
	}})},
	{"everybody counts as the last in line", "TokenBucket/Cancel", []string{"TokenBucket/Refund", "Limiter/Modes", "TokenBucket/Refunds"}, remarked("tokenbucket.refund", func(n *store.Nums) { n.N[1] += 1000 })},
}

// onlyOwn reads no key that GCRA wrote last.
var onlyOwn = mutation{tx: func(f *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
	writer, _, _ := strings.Cut(s.Name(), ".")
	if writer != "leakybucket" && writer != "gcra" {
		return tx
	}
	return txFunc{
		Tx: tx,
		get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if writer == "leakybucket" && f.memo == "gcra" {
				return store.Nums{}, false, err
			}
			return n, ok, err
		},
		put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.memo = writer
			return n, ttl
		},
	}
}}

var leakyBucketMutants = []mutant{
	{"everybody goes at once", "LeakyBucket/Turns", []string{"LeakyBucket/", "Limiter/"}, bad[algorithm.LeakyBucket](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		v.Delay = 0
		return v
	}})},
	{"delays are rounded down", "LeakyBucket/Thirds", []string{"LeakyBucket/", "Limiter/"}, bad[algorithm.LeakyBucket](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.Delay%time.Millisecond != 0 {
			v.Delay -= time.Microsecond
		}
		return v
	}})},
	{"a denial tells when there is no wait", "LeakyBucket/Wait", []string{"Limiter/"}, bad[algorithm.LeakyBucket](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, r algorithm.Request) algorithm.Verdict {
		if v.RetryAfter > 0 && v.RetryAfter < time.Hour {
			v.RetryAfter += r.MaxWait
		}
		return v
	}})},
	{"the turns are carried over, not the time", "LeakyBucket/Carry", []string{"LeakyBucket/", "Limiter/"}, bad[algorithm.LeakyBucket](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.Limit == 8 {
			v.Delay /= 2
		}
		return v
	}})},
	{"what a GCRA wrote is not seen", "LeakyBucket/Shared", []string{"Limiter/"}, onlyOwn},
	{"a cost is miscounted", "LeakyBucket/History", []string{"Limiter/Mix", "Limiter/Modes"}, bad[algorithm.LeakyBucket](badAlgorithm{verdict: sevens})},
	{"the wait is rounded up", "LeakyBucket/Exact", []string{"LeakyBucket/", "Limiter/"}, bad[algorithm.LeakyBucket](badAlgorithm{verdict: wholeMillis})},
	{"reads and writes apart", "LeakyBucket/HotKey", []string{"Hygiene/TTL"}, torn("leakybucket")},
	{"the clock is fast", "LeakyBucket/Refill", []string{"LeakyBucket/HotKey", "Hygiene/"}, hasty("leakybucket")},
	{"far times are disbelieved", "LeakyBucket/Backwards", []string{"LeakyBucket/", "Limiter/", "Hygiene/"}, bad[algorithm.LeakyBucket](unknownAhead(func(args []store.Arg) int64 {
		inc := args[1]
		if fractional(args) {
			inc = args[2]
		}
		return args[0].Int() + inc.Int() + 1
	}))},
	{"never is an hour", "LeakyBucket/Never", []string{"LeakyBucket/", "Limiter/"}, bad[algorithm.LeakyBucket](badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "LeakyBucket/Huge", nil, bad[algorithm.LeakyBucket](badAlgorithm{args: roundArgs})},
	{"a turn more is taken than granted", "LeakyBucket/UpTo", []string{"LeakyBucket/Refund", "Limiter/Modes"}, oneMore("leakybucket.upto", func(n *store.Nums) { n.N[0] += 1_000_000 })},
	{"gives back again and again", "LeakyBucket/Refund", []string{"LeakyBucket/Cancel", "Limiter/Modes"}, keptMarkers("leakybucket.refund")},
	{"everybody counts as the last in line", "LeakyBucket/Cancel", []string{"LeakyBucket/Refund", "Limiter/Modes", "LeakyBucket/Refunds"}, remarked("leakybucket.refund", func(n *store.Nums) { n.N[0] += 1 << 40 })},
}
