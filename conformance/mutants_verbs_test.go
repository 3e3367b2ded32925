package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// verbs changes what the fragment of an algorithm does besides deciding.
func verbs[A algorithm.Algorithm](change func(f *algorithm.Fragment)) mutation {
	return bad[A](badAlgorithm{verbs: change})
}

// oneAtATime grants one token where more fit.
func oneAtATime(f *algorithm.Fragment) {
	fit := f.Fit
	f.Fit = func(now int64, args []store.Arg, s algorithm.State) int64 { return min(fit(now, args, s), 1) }
}

// chargedNow takes what was charged at some time for a charge of another.
func chargedNow(when func(now int64, s algorithm.State) int64) func(*algorithm.Fragment) {
	return func(f *algorithm.Fragment) {
		refund := f.Refund
		f.Refund = func(tx store.Tx, key int, now int64, args []store.Arg, s algorithm.State, was algorithm.Charge, note algorithm.Note) bool {
			was[0] = when(now, s)
			return refund(tx, key, now, args, s, was, note)
		}
	}
}

// stateAs is the state's integer i.
func stateAs(i int) func(int64, algorithm.State) int64 {
	return func(_ int64, s algorithm.State) int64 { return s[i] }
}

// unaware refunds know nothing of each other.
func unaware(f *algorithm.Fragment) {
	refund := f.Refund
	f.Refund = func(tx store.Tx, key int, now int64, args []store.Arg, s algorithm.State, was algorithm.Charge, _ algorithm.Note) bool {
		return refund(tx, key, now, args, s, was, algorithm.Note{})
	}
}

// oneMoreBack gives back a token more than was taken: integer 1 of a charge.
func oneMoreBack(f *algorithm.Fragment) {
	charge := f.Charge
	f.Charge = func(now int64, args []store.Arg, s algorithm.State, note algorithm.Note) (algorithm.Charge, int64) {
		c, life := charge(now, args, s, note)
		c[1]++
		return c, life
	}
}

var verbMutants = []mutant{
	{"refunds know nothing of each other", "GCRA/Refunds", []string{"Limiter/"}, verbs[algorithm.GCRA](unaware)},
	{"refunds know nothing of each other", "TokenBucket/Refunds", []string{"Limiter/"}, verbs[algorithm.TokenBucket](unaware)},
	{"what came back by itself is given again", "LeakyBucket/Refunds", []string{"LeakyBucket/", "Limiter/"}, verbs[algorithm.LeakyBucket](chargedNow(func(now int64, _ algorithm.State) int64 { return now + 1<<50 }))},
	{"one more is given back", "SlidingCounter/Refunds", []string{"SlidingCounter/", "Limiter/"}, verbs[algorithm.SlidingCounter](oneMoreBack)},
	{"one more is given back", "SlidingBuckets/Refunds", []string{"SlidingBuckets/", "Limiter/"}, verbs[algorithm.SlidingBuckets](oneMoreBack)},
	{"one more is given back", "SlidingLog/Refunds", []string{"SlidingLog/", "Limiter/"}, verbs[algorithm.SlidingLog](oneMoreBack)},
	{"no more than one at a time", "GCRA/UpTo", []string{"Limiter/", "GCRA/Refund"}, verbs[algorithm.GCRA](oneAtATime)},
	{"no more than one at a time", "FixedWindow/UpTo", []string{"Limiter/", "FixedWindow/Refund"}, verbs[algorithm.FixedWindow](oneAtATime)},
	{"no more than one at a time", "MetadataWindow/UpTo", nil, verbs[algorithm.MetadataWindow](oneAtATime)},
	{"no more than one at a time", "SlidingBuckets/UpTo", []string{"Limiter/", "SlidingBuckets/Refund"}, verbs[algorithm.SlidingBuckets](oneAtATime)},
	{"no more than one at a time", "SlidingCounter/UpTo", []string{"Limiter/", "SlidingCounter/Refund"}, verbs[algorithm.SlidingCounter](oneAtATime)},
	{"no more than one at a time", "SlidingLog/UpTo", []string{"Limiter/", "SlidingLog/Refund"}, verbs[algorithm.SlidingLog](oneAtATime)},
	{"what came back by itself is given again", "GCRA/Refund", []string{"GCRA/Cancel", "Limiter/", "GCRA/Refunds"}, verbs[algorithm.GCRA](chargedNow(func(now int64, _ algorithm.State) int64 { return now + 1<<50 }))},
	{"a late refund inflates the window", "FixedWindow/Refund", []string{"Limiter/"}, verbs[algorithm.FixedWindow](chargedNow(stateAs(0)))},
	{"a late refund inflates the window", "SlidingCounter/Refund", []string{"Limiter/", "SlidingCounter/Refunds"}, verbs[algorithm.SlidingCounter](chargedNow(stateAs(0)))},
	{"a refund takes the newest", "SlidingLog/Refund", []string{"Limiter/", "SlidingLog/Refunds"}, verbs[algorithm.SlidingLog](chargedNow(stateAs(1)))},
	{"a refund goes to the newest bucket", "SlidingBuckets/Refund", []string{"Limiter/", "SlidingBuckets/Refunds"}, verbs[algorithm.SlidingBuckets](chargedNow(stateAs(4)))},
	{"a turn is a millisecond late", "GCRA/Reserve", []string{"GCRA/Cancel"}, bad[algorithm.GCRA](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.Delay > 0 {
			v.Delay += time.Millisecond
		}
		return v
	}})},
	{"who waits behind is not regarded", "GCRA/Cancel", []string{"GCRA/Refund", "Limiter/", "GCRA/Refunds"}, verbs[algorithm.GCRA](chargedNow(stateAs(0)))},
	{"one more is charged than granted", "Limiter/UpTo", []string{"FixedWindow/UpTo", "FixedWindow/Refund", "Limiter/"}, verbs[algorithm.FixedWindow](func(f *algorithm.Fragment) {
		take := f.Take
		f.Take = func(args []store.Arg, n int64) { take(args, n+1) }
	})},
	{"a marker stays", "Limiter/Refund", []string{"GCRA/", "FixedWindow/Refund", "SlidingBuckets/Refund", "SlidingCounter/Refund", "SlidingLog/Refund", "TokenBucket/", "LeakyBucket/", "Limiter/", "SlidingBuckets/Refunds", "SlidingCounter/Refunds"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if strings.HasSuffix(s.Name(), ".refund") {
			return txFunc{Tx: tx, del: func(int) {}}
		}
		return tx
	}}},
	{"of many rules none gets anything back", "Limiter/Modes", []string{"Limiter/Refund"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if strings.HasSuffix(s.Name(), ".refund") && composed(s) {
			return txFunc{Tx: tx, put: func(i int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
				if old, ok, err := tx.Get(i, n.Tag); ok && err == nil {
					n = old
				}
				return n, ttl
			}}
		}
		return tx
	}}},
	{"a batch decides twice", "Limiter/Many", []string{"Batch/"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			if composed(c.Script) && !asks(c.Script) {
				_, _ = f.right(ctx, c.Script, c.Keys, c.Args, nil)
			}
			c.Reply, c.Err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply)
		}
	}}},
	{"another limit forgets what a key holds", "Limiter/Limits", nil, mutation{tx: func(_ *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx {
		if s.Name() != "gcra+slidingbuckets+fixedwindow" || len(args) < 2 || args[len(args)-4].Int() == 99 {
			return tx
		}
		return txFunc{Tx: tx, get: func(n store.Nums, _ bool, err error) (store.Nums, bool, error) { return store.Nums{}, false, err }}
	}}},
	{"nobody is told to wait", "Limiter/Wait", []string{"GCRA/Reserve", "GCRA/Cancel", "Limiter/Cancel"}, bad[algorithm.GCRA](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		v.Delay = 0
		return v
	}})},
	{"a refusal charges", "Limiter/Refused", []string{"GCRA/", "Limiter/"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if s.Name() == "gcra.marked" && reply[0].Int() == 0 {
			spend(tx)
		}
	}}},
	{"nothing is given back", "Limiter/Cancel", []string{"GCRA/Refund", "GCRA/Cancel", "Limiter/Refund", "Limiter/Modes", "GCRA/Refunds"}, verbs[algorithm.GCRA](func(f *algorithm.Fragment) {
		f.Refund = func(store.Tx, int, int64, []store.Arg, algorithm.State, algorithm.Charge, algorithm.Note) bool {
			return false
		}
	})},
	{"a window is taken from ahead of time", "Limiter/Unsupported", nil, verbs[algorithm.FixedWindow](func(f *algorithm.Fragment) { f.Reserves = true })},
}
