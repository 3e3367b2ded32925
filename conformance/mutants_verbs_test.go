package conformance

import (
	"context"
	"strings"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// badStepRefund changes what an algorithm with a Step refunds.
func badStepRefund(change func(s contract.State, mark *contract.Cell, n *int64)) flaw {
	return flaw{step: func(b *badStep, _ []store.Arg) {
		b.refund = func(tx store.Tx, key int, now int64, s contract.State, a contract.Ask, mark contract.Cell, n, keep, gen int64) (bool, error) {
			change(s, &mark, &n)
			return b.Step.(contract.StepRefunder).Refund(tx, key, now, s, a, mark, n, keep, gen)
		}
	}}
}

// oneMoreBack refunds a token more than was consumed.
var oneMoreBack = badRefund(func(_ contract.Cell, ch *contract.Charge, _ *contract.Cell) { ch.N++ })

// refilledAgain refunds tokens that have come back by themselves.
var refilledAgain = badRefund(func(_ contract.Cell, ch *contract.Charge, _ *contract.Cell) { ch.Was.A += 1 << 50 })

// newestEntries refunds the newest n entries of a SlidingLog, whose decision ever.
var newestEntries = flaw{step: func(b *badStep, _ []store.Arg) {
	b.refund = func(tx store.Tx, key int, _ int64, _ contract.State, _ contract.Ask, _ contract.Cell, n, _, _ int64) (bool, error) {
		var texts []string
		for i := range n {
			if m, ok, err := tx.At(key, i); ok && err == nil {
				texts = append(texts, m.Text)
			}
		}
		for _, text := range texts {
			tx.Remove(key, text)
		}
		return len(texts) > 0, nil
	}
}}

var verbMutants = []mutant{
	{"refunds know nothing of each other", "GCRA/Refund", nil, bad[algorithm.GCRA](unaware)},
	{"refunds know nothing of each other", "TokenBucket/Refund", nil, bad[algorithm.TokenBucket](unaware)},
	{"what has come back is refunded again", "LeakyBucket/Refund", nil, bad[algorithm.LeakyBucket](refilledAgain)},
	{"one more is refunded", "FixedWindow/Refund", nil, bad[algorithm.FixedWindow](oneMoreBack)},
	{"one more is refunded", "SlidingCounter/Refund", nil, bad[algorithm.SlidingCounter](oneMoreBack)},
	{"one more is refunded", "SlidingBuckets/Refund", nil, bad[algorithm.SlidingBuckets](badStepRefund(func(_ contract.State, _ *contract.Cell, n *int64) { *n++ }))},
	{"the newest entries are refunded", "SlidingLog/Refund", nil, bad[algorithm.SlidingLog](newestEntries)},
	{"a debt is forgotten", "FixedWindow/Refund", []string{"Limiter/Modes"}, bad[algorithm.FixedWindow](flaw{meter: func(m *badMeter, args []store.Arg) {
		m.take = func(c contract.Cell, n int64) contract.Cell {
			c = m.Meter.Take(c, n)
			c.B = min(c.B, args[0].Int())
			return c
		}
	}})},
	{"no more than one at a time", "GCRA/Same", nil, oneAtATime("gcra")},
	{"no more than one at a time", "FixedWindow/Same", nil, oneAtATime("fixedwindow")},
	{"no more than one at a time", "MetadataWindow/Same", nil, oneAtATime("metadatawindow")},
	{"no more than one at a time", "SlidingBuckets/Same", nil, oneAtATime("slidingbuckets")},
	{"no more than one at a time", "SlidingCounter/Same", nil, oneAtATime("slidingcounter")},
	{"no more than one at a time", "SlidingLog/Same", nil, oneAtATime("slidinglog")},
	{"what has come back is refunded again", "GCRA/Refund", nil, bad[algorithm.GCRA](refilledAgain)},
	{"one more is refunded", "FixedWindow/Refund", nil, bad[algorithm.FixedWindow](oneMoreBack)},
	{"a refund knows only the sum of the others", "GCRA/Refund", nil, bad[algorithm.GCRA](badRefund(func(_ contract.Cell, ch *contract.Charge, note *contract.Cell) { note.B, ch.Held = 0, 0 }))},
	{"a late refund goes to the current window", "SlidingCounter/Refund", nil, bad[algorithm.SlidingCounter](badRefund(func(c contract.Cell, ch *contract.Charge, _ *contract.Cell) { ch.Was.A = c.A }))},
	{"a refund goes to the newest entries", "SlidingLog/Refund", nil, bad[algorithm.SlidingLog](newestEntries)},
	{"a refund goes to the newest bucket", "SlidingBuckets/Refund", nil, bad[algorithm.SlidingBuckets](badStepRefund(func(s contract.State, mark *contract.Cell, _ *int64) { mark.A, mark.B = s[4], s[5] }))},
	{"a turn is a millisecond late", "GCRA/MaxWait", nil, bad[algorithm.GCRA](lateDelays(1000))},
	{"every decision counts as the last", "GCRA/Refund", nil, bad[algorithm.GCRA](alwaysLast)},
	{"one more is consumed than granted", "Limiter/Mix", []string{"/Mix", "/Sixteen", "FixedWindow/", "Limiter/"}, oneMore("", ".upto", func(n *store.Nums) {
		if n.Tag == (store.Tag{'f', '2'}) {
			n.N[1]++
		}
	})},
	{"a marker stays", "Limiter/Refund", []string{"Calendar/", "GCRA/", "FixedWindow/", "SlidingBuckets/", "SlidingCounter/", "SlidingLog/", "TokenBucket/", "LeakyBucket/", "Limiter/"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if undoes(s) {
			return txFunc{Tx: tx, del: func(int) {}}
		}
		return tx
	}}},
	{"of many rules none is refunded", "Limiter/Modes", []string{"Limiter/"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if undoes(s) && composed(s) {
			return txFunc{Tx: tx, keep: func(int, store.Nums) {}}
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
	{"under other limits a key counts as missing", "Limiter/Limits", nil, mutation{tx: func(_ *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx {
		if !strings.HasPrefix(s.Name(), "gcra+slidingbuckets+fixedwindow") || args[1].Int() != 3 { // 3 per second
			return tx
		}
		return txFunc{Tx: tx, get: func(i int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			return n, ok && i > 0, err
		}}
	}}},
	{"nobody is told to wait", "Limiter/Wait", []string{"GCRA/", "Limiter/", "/Mix"}, bad[algorithm.GCRA](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.ready = func(now int64, c contract.Cell, n, wait int64) int64 {
			if wait == 0 {
				return now
			}
			return m.Meter.Ready(now, c, n, wait)
		}
	}})},
	{"a denied wait is charged", "Limiter/Refused", []string{"GCRA/", "Limiter/"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if s.Name() == "gcra.mark" && reply[0].Int() == 0 {
			spend(tx)
		}
	}}},
	{"nothing is refunded", "Limiter/Cancel", []string{"GCRA/", "Limiter/"}, bad[algorithm.GCRA](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.refund = func(_ int64, c contract.Cell, _ contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
			return c, note
		}
	}})},
	{"a window is reserved ahead of time", "Limiter/Unsupported", []string{"FixedWindow/", "Limiter/"}, bad[algorithm.FixedWindow](flaw{
		kind: func(k *contract.MeterKind) { k.Reserves = true },
		meter: func(m *badMeter, _ []store.Arg) {
			m.ready = func(now int64, c contract.Cell, n, wait int64) int64 {
				if m.Meter.Room(now, now, c) >= n {
					return now
				}
				return m.Meter.Ready(now, c, n, wait)
			}
		},
	})},
}
