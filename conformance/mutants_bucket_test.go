package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// tokenArgs changes the constants of TokenBucket: capacity, num, den and step.
func tokenArgs(change func(args []store.Arg)) mutation {
	return bad[algorithm.TokenBucket](flaw{limit: func(l *contract.Limit) { change(l.Args) }})
}

// markTags are the tags of markers.
var markTags = []store.Tag{{'i', '2'}, {'i', '3'}}

// oneMore writes, in scripts whose name begins with name and has verb in it, values of
// which more was consumed than more says.
func oneMore(name, verb string, more func(n *store.Nums)) mutation {
	return mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.HasPrefix(s.Name(), name) || !strings.Contains(s.Name(), verb) {
			return tx
		}
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if !slices.Contains(markTags, n.Tag) {
				more(&n)
			}
			return n, ttl
		}}
	}}
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

// lateDelays tells callers that wait to go later, or earlier, by that many microseconds.
func lateDelays(by int64) flaw {
	return flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.ready = func(now int64, c contract.Cell, n, wait int64) int64 {
			at := m.Meter.Ready(now, c, n, wait)
			if wait == 0 && at > now {
				at += by
			}
			return at
		}
	}}
}

// badRefund changes what an algorithm with a Meter refunds.
func badRefund(change func(c contract.Cell, ch *contract.Charge, note *contract.Cell)) flaw {
	return flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.refund = func(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
			change(c, &ch, &note)
			return m.right(now, c, ch, note)
		}
	}}
}

// unaware refunds know nothing of each other.
var unaware = badRefund(func(_ contract.Cell, ch *contract.Charge, note *contract.Cell) { ch.Moved, *note = 0, contract.Cell{} })

// alwaysLast takes every decision for the last one.
var alwaysLast = badRefund(func(c contract.Cell, ch *contract.Charge, note *contract.Cell) {
	ch.Was, ch.Moved, *note = c, 0, contract.Cell{}
})

// oneAtATime grants TakeUpTo one token at most.
func oneAtATime(name string) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		at := len(args) - 3 // of the cost, in virtual time
		switch s.Name() {
		case name + ".upto":
		case name + ".upto.mark":
			at--
		default:
			return f.right(ctx, s, keys, args, reply)
		}
		args = slices.Clone(args)
		args[at] = store.IntArg(1)
		return f.right(ctx, s, keys, args, reply)
	}}
}

var tokenBucketMutants = []mutant{
	{"all come back at once", "TokenBucket/Same", nil, tokenArgs(func(args []store.Arg) { args[3] = store.ConstArg(0) })},
	{"none come back at once", "TokenBucket/Same", nil, tokenArgs(func(args []store.Arg) { args[3] = args[2] })},
	{"a fraction of a microsecond is rounded up", "TokenBucket/Same", nil, tokenArgs(func(args []store.Arg) {
		if den := args[2].Int(); args[1].Int()%den > 0 {
			args[1] = store.ConstArg((args[1].Int()/den + 1) * den)
		}
	})},
	{"a bucket in debt has a token", "TokenBucket/Same", nil, bad[algorithm.TokenBucket](overdrawn)},
	{"nobody waits", "TokenBucket/MaxWait", nil, bad[algorithm.TokenBucket](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.room = func(now, _ int64, c contract.Cell) int64 { return m.Meter.Room(now, now, c) }
	}})},
	{"a cost is miscounted", "TokenBucket/Same", nil, bad[algorithm.TokenBucket](miscounts)},
	{"the wait is rounded up", "TokenBucket/Exact", nil, bad[algorithm.TokenBucket](wholeMillis)},
	{"reads and writes apart", "TokenBucket/HotKey", nil, torn("tokenbucket")},
	{"the clock is fast", "TokenBucket/Refill", nil, hasty("tokenbucket")},
	{"a period ahead of now is forgotten", "TokenBucket/Backwards", nil, bad[algorithm.TokenBucket](unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"a very large cost is cut", "TokenBucket/Never", nil, cutCosts("tokenbucket")},
	{"large numbers lose digits", "TokenBucket/Huge", nil, bad[algorithm.TokenBucket](rounded)},
	{"one more is consumed than granted", "TokenBucket/Same", nil, oneMore("tokenbucket", ".upto", func(n *store.Nums) { n.N[1]++ })},
	{"refunds again and again", "TokenBucket/Refund", nil, keptMarkers("tokenbucket.refund")},
	{"a Delay is a microsecond short", "TokenBucket/MaxWait", nil, bad[algorithm.TokenBucket](lateDelays(-1))},
	{"every decision counts as the last", "TokenBucket/Refund", nil, bad[algorithm.TokenBucket](alwaysLast)},
}

var leakyBucketMutants = []mutant{
	{"a queue is a bucket", "LeakyBucket/Same", nil, bad[algorithm.LeakyBucket](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.room = func(now, at int64, c contract.Cell) int64 { return m.Meter.Room(now, max(at, c.A+1), c) }
	}})},
	{"turns are rounded down", "LeakyBucket/Same", nil, bad[algorithm.LeakyBucket](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.take = func(c contract.Cell, n int64) contract.Cell {
			c = m.Meter.Take(c, n)
			c.B = 0
			return c
		}
	}})},
	{"a denial answers when there is no wait", "LeakyBucket/MaxWait", nil, bad[algorithm.LeakyBucket](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.ready = func(now int64, c contract.Cell, n, _ int64) int64 { return m.Meter.Ready(now, c, n, 0) }
	}})},
	{"a changed limit is not heeded", "LeakyBucket/Same", nil, stale("leakybucket")},
	{"a cost is miscounted", "LeakyBucket/Same", nil, bad[algorithm.LeakyBucket](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.take = func(c contract.Cell, n int64) contract.Cell {
			if n == 2 {
				n = 3
			}
			return m.Meter.Take(c, n)
		}
	}})},
	{"the wait is rounded up", "LeakyBucket/Exact", nil, bad[algorithm.LeakyBucket](wholeMillis)},
	{"reads and writes apart", "LeakyBucket/HotKey", nil, torn("leakybucket")},
	{"the clock is fast", "LeakyBucket/Refill", nil, hasty("leakybucket")},
	{"far times are disbelieved", "LeakyBucket/Backwards", nil, bad[algorithm.LeakyBucket](unknownAhead(func(args []store.Arg) int64 {
		return args[2].Int()/args[1].Int() + args[0].Int()/args[1].Int() + 1
	}))},
	{"a very large cost is cut", "LeakyBucket/Never", nil, cutCosts("leakybucket")},
	{"large numbers lose digits", "LeakyBucket/Huge", nil, bad[algorithm.LeakyBucket](rounded)},
	{"a turn more is consumed than granted", "LeakyBucket/Same", nil, oneMore("leakybucket", ".upto", func(n *store.Nums) { n.N[0] += 1_000_000 })},
	{"refunds again and again", "LeakyBucket/Refund", nil, keptMarkers("leakybucket.refund")},
	{"a Delay is a microsecond short", "LeakyBucket/MaxWait", nil, bad[algorithm.LeakyBucket](lateDelays(-1))},
	{"every decision counts as the last", "LeakyBucket/Refund", nil, bad[algorithm.LeakyBucket](alwaysLast)},
}
