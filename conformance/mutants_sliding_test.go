package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// badStepAnswer changes what an algorithm with a Step answers to a request that consumed
// n tokens.
func badStepAnswer(change func(ans *contract.Answer, s contract.State, n int64)) flaw {
	return flaw{step: func(b *badStep, _ []store.Arg) {
		b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
			ans := b.Step.Answer(now, s, n, a)
			change(&ans, s, n)
			return ans
		}
	}}
}

// badStepTx changes the view that an algorithm with a Step reads.
func badStepTx(change func(tx store.Tx, now int64, args []store.Arg) store.Tx) flaw {
	return flaw{step: func(b *badStep, args []store.Arg) {
		b.read = func(tx store.Tx, key int, now int64, a contract.Ask) (contract.State, error) {
			return b.Step.Read(change(tx, now, args), key, now, a)
		}
	}}
}

// ofRings changes the view of scripts that decide over SlidingBuckets.
func ofRings(change func(tx store.Tx) store.Tx) mutation {
	return mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "slidingbuckets") {
			return tx
		}
		return change(tx)
	}}
}

var slidingBucketsMutants = []mutant{
	{"no span is named", "SlidingBuckets/Same", nil, bad[algorithm.SlidingBuckets](badStepAnswer(func(ans *contract.Answer, _ contract.State, _ int64) { ans.Window = 0 }))},
	{"the current bucket is left out", "SlidingBuckets/Same", nil, bad[algorithm.SlidingBuckets](badStepTx(func(tx store.Tx, now int64, args []store.Arg) store.Tx {
		width := args[len(args)-1].Int()
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if now-n.N[0] < width {
				return store.Nums{}, false, err
			}
			return n, ok, err
		}}
	}))},
	{"remaining is negative", "SlidingBuckets/Same", nil, bad[algorithm.SlidingBuckets](badStepAnswer(func(ans *contract.Answer, s contract.State, n int64) {
		if used := s[1]; n == 0 && used > ans.Limit {
			ans.Remaining = ans.Limit - used
		}
	}))},
	{"a cost is miscounted", "SlidingBuckets/Same", nil, bad[algorithm.SlidingBuckets](miscounts)},
	{"the wait is rounded up", "SlidingBuckets/Exact", nil, bad[algorithm.SlidingBuckets](longer(func(wait int64) int64 { return (wait + 999_999) / 1_000_000 * 1_000_000 }))},
	{"reads and writes apart", "SlidingBuckets/HotKey", nil, torn("slidingbuckets")},
	{"the clock is fast", "SlidingBuckets/Refill", nil, hasty("slidingbuckets")},
	{"a bucket ahead of now is forgotten", "SlidingBuckets/Backwards", nil, bad[algorithm.SlidingBuckets](badStepTx(func(tx store.Tx, now int64, _ []store.Arg) store.Tx {
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if n.N[0] > now {
				return store.Nums{}, false, err
			}
			return n, ok, err
		}}
	}))},
	{"a very large cost is cut", "SlidingBuckets/Never", nil, cutCosts("slidingbuckets")},
	{"large numbers lose digits", "SlidingBuckets/Huge", nil, bad[algorithm.SlidingBuckets](rounded)},
	{"a foreign value passes for missing", "SlidingBuckets/Foreign", nil, ofRings(func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			return n, ok && n.Tag != scripts.PutTag, err
		}}
	})},
	{"a set passes for missing", "SlidingBuckets/ForeignType", nil, ofRings(func(tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(_ int, n store.Nums, ok bool, _ error) (store.Nums, bool, error) { return n, ok, nil }}
	})},
	{"a key of a ring is not read", "SlidingBuckets/Peek", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		start := len(values)
		values, err := f.Store.MGet(ctx, keys, values)
		for i, key := range keys {
			if err == nil && strings.Contains(key, "{peek0}") {
				values[start+i] = store.Value{}
			}
		}
		return values, err
	}}},
	{"a reset deletes the first key alone", "SlidingBuckets/Reset", nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if s.Name() != "slidingbuckets.reset" {
			return tx
		}
		return txFunc{Tx: tx, del: func(i int) {
			if i == 0 {
				tx.Del(i)
			}
		}}
	}}},
	{"two hundred keys are too many", "SlidingBuckets/Sixteen", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if len(keys) > 200 && s != scripts.Look {
			return reply, fmt.Errorf("%w: too many keys", store.ErrScript)
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
}

// oncePerTime keeps one decision of each microsecond.
func oncePerTime(tx store.Tx) store.Tx {
	held := map[int64]bool{}
	return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
		if last, ok, _ := tx.At(i, 0); ok && last.Score == m.Score || held[m.Score] {
			return
		}
		held[m.Score] = true
		tx.Add(i, m, ttl)
	}}
}

var slidingLogMutants = []mutant{
	{"a token leaves late", "SlidingLog/Same", nil, bad[algorithm.SlidingLog](flaw{limit: func(l *contract.Limit) { l.Args[1] = store.ConstArg(l.Args[1].Int() + 1) }})},
	{"the first log limits nobody", "SlidingLog/Mix", nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.HasPrefix(s.Name(), "slidinglog+") {
			return tx
		}
		return txFunc{Tx: tx, at: func(i int, fromEnd int64) (store.Member, bool, error) {
			if i == 0 {
				return store.Member{}, false, nil
			}
			return tx.At(i, fromEnd)
		}}
	}}},
	{"decisions of one microsecond are one", "SlidingLog/Same", nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "slidinglog") {
			return tx
		}
		return oncePerTime(tx)
	}}},
	{"nothing is trimmed", "SlidingLog/Same", nil, onlyFor("slidinglog", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, trim: func(int, int64) {}}
	})},
	{"a changed limit is not heeded", "SlidingLog/Same", nil, stale("slidinglog")},
	{"an entry of any layout is its own", "SlidingLog/Layout", []string{"MetadataWindow/Layout"}, onlyFor("gcra+slidinglog", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, at: func(i int, fromEnd int64) (store.Member, bool, error) {
			m, ok, err := tx.At(i, fromEnd)
			if m.Score == decisions.NewClock().Micros+1 {
				m.Text = "l3 1 0000001 0 1"
			}
			return m, ok, err
		}}
	})},
	{"a very large limit is cut", "SlidingLog/Huge", nil, bad[algorithm.SlidingLog](flaw{limit: func(l *contract.Limit) { l.Args[0] = store.ConstArg(min(l.Args[0].Int(), 1<<40)) }})},
	{"a cost is miscounted", "SlidingLog/Same", nil, bad[algorithm.SlidingLog](miscounts)},
	{"the wait is rounded up", "SlidingLog/Exact", nil, bad[algorithm.SlidingLog](wholeMillis)},
	{"reads and writes apart", "SlidingLog/HotKey", nil, torn("slidinglog")},
	{"the clock is fast", "SlidingLog/Refill", nil, hasty("slidinglog")},
	{"the newest is disregarded", "SlidingLog/Backwards", nil, bad[algorithm.SlidingLog](badStepTx(func(tx store.Tx, now int64, _ []store.Arg) store.Tx {
		return txFunc{Tx: tx, at: func(i int, fromEnd int64) (store.Member, bool, error) {
			m, ok, err := tx.At(i, fromEnd)
			if m.Score > now {
				return store.Member{}, false, err
			}
			return m, ok, err
		}}
	}))},
	{"a very large cost is cut", "SlidingLog/Never", nil, cutCosts("slidinglog")},
}
