package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// Views of sorted sets, each wrong in one way.
type (
	arrival   struct{ store.Tx } // equal scores are in the order of arrival
	inclusive struct{ store.Tx } // Count includes after
	hoarder   struct{ store.Tx } // Remove does nothing
	first     struct{ store.Tx } // Remove takes from the beginning
	blind     struct{ store.Tx } // Find finds nothing in the first half
	empty     struct{ store.Tx } // a set keeps its last member
	tolerant  struct{ store.Tx } // every text is an entry's
	forgetful struct {           // a member ahead of now is not seen
		store.Tx
		now int64
	}
	oncePerScore struct { // a score is held once
		store.Tx
		held map[int64]bool
	}
)

func (a arrival) Add(i int, m store.Member) {
	if m.Score%2 == 0 {
		m.Text = "\x00" + m.Text
	}
	a.Tx.Add(i, m)
}

func (c inclusive) Count(i int, after int64) (above, all int64, err error) {
	return c.Tx.Count(i, after-1)
}

func (hoarder) Remove(int, int64, int64) {}

func (f first) Remove(i int, _, n int64) { f.Tx.Remove(i, 0, n) }

func (b blind) Find(i int, text string) (int64, bool, error) {
	rank, ok, err := b.Tx.Find(i, text)
	_, all, _ := b.Tx.Count(i, 0)
	return rank, ok && rank >= all/2, err
}

func (e empty) Remove(i int, rank, n int64) {
	if _, all, _ := e.Tx.Count(i, 0); n > all {
		n = all - 1
	}
	e.Tx.Remove(i, rank, n)
}

func (t tolerant) At(i int, rank int64) (store.Member, bool, error) {
	m, ok, err := t.Tx.At(i, rank)
	m.Text = "l1 1 00000001"
	return m, ok, err
}

func (f forgetful) At(i int, rank int64) (store.Member, bool, error) {
	m, ok, err := f.Tx.At(i, rank)
	if m.Score > f.now {
		return store.Member{}, false, err
	}
	return m, ok, err
}

func (o oncePerScore) Add(i int, m store.Member) {
	if last, ok, _ := o.Tx.At(i, -1); ok && last.Score == m.Score || o.held[m.Score] {
		return
	}
	o.held[m.Score] = true
	o.Tx.Add(i, m)
}

var slidingBucketsMutants = []mutant{
	{"no span is named", "SlidingBuckets/Spans", []string{"SlidingBuckets/", "Limiter/Mix", "Limiter/Modes"}, bad[algorithm.SlidingBuckets](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		v.Span = 0
		return v
	}})},
	{"the current bucket is left out", "SlidingBuckets/Edges", []string{"SlidingBuckets/", "Limiter/Mix", "Hygiene/"}, bad[algorithm.SlidingBuckets](badAlgorithm{check: func(tx store.Tx, now int64, args []store.Arg) store.Tx {
		width := args[len(args)-1].Int()
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if width == 2_000_000 && now-n.N[0] < width {
				return store.Nums{}, false, err
			}
			return n, ok, err
		}}
	}})},
	{"remaining is negative", "SlidingBuckets/Carry", nil, bad[algorithm.SlidingBuckets](badAlgorithm{verdict: func(v algorithm.Verdict, committed bool, s algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if !committed {
			v.Remaining = v.Limit - s[1]
		}
		return v
	}})},
	{"a cost is miscounted", "SlidingBuckets/History", []string{"Limiter/Mix"}, bad[algorithm.SlidingBuckets](badAlgorithm{verdict: sevens})},
	{"the wait is rounded up", "SlidingBuckets/Exact", []string{"SlidingBuckets/", "Limiter/Mix", "Limiter/Modes"}, bad[algorithm.SlidingBuckets](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	}})},
	{"reads and writes apart", "SlidingBuckets/HotKey", []string{"Hygiene/TTL"}, torn("slidingbuckets")},
	{"the clock is fast", "SlidingBuckets/Refill", []string{"SlidingBuckets/HotKey", "Hygiene/"}, hasty("slidingbuckets")},
	{"a bucket ahead of now is forgotten", "SlidingBuckets/Backwards", []string{"SlidingBuckets/History", "Limiter/Mix", "Limiter/Modes", "SlidingBuckets/UpTo"}, bad[algorithm.SlidingBuckets](unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"never is an hour", "SlidingBuckets/Never", []string{"SlidingBuckets/", "Limiter/Mix"}, bad[algorithm.SlidingBuckets](badAlgorithm{verdict: mayBeNever})},
	{"large numbers lose digits", "SlidingBuckets/Huge", nil, bad[algorithm.SlidingBuckets](badAlgorithm{args: roundArgs})},
	{"a foreign key passes for missing", "SlidingBuckets/Foreign", []string{"SlidingBuckets/ForeignType", "Limiter/Refund"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "slidingbuckets") {
			return tx
		}
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, _ error) (store.Nums, bool, error) { return n, ok, nil }}
	}}},
	{"a set passes for missing", "SlidingBuckets/ForeignType", nil, mutation{tx: func(f *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "slidingbuckets") {
			return tx
		}
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if len(f.sets) > 0 {
				err = nil
			}
			return n, ok, err
		}}
	}}},
	{"a key of a ring is not read", "SlidingBuckets/PeekMany", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		start := len(values)
		values, err := f.Store.MGet(ctx, keys, values)
		for i, key := range keys {
			if err == nil && strings.HasSuffix(key, "{many1}:ring:0") {
				values[start+i] = store.Value{}
			}
		}
		return values, err
	}}},
	{"a reset takes the first key alone", "SlidingBuckets/Reset", nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
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
		if len(keys) > 200 {
			return reply, fmt.Errorf("%w: too many keys", store.ErrScript)
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
}

var slidingLogMutants = []mutant{
	{"a token leaves late", "SlidingLog/Trace", []string{"SlidingLog/", "Limiter/Mix", "Hygiene/"}, bad[algorithm.SlidingLog](badAlgorithm{args: func(args []store.Arg) { args[2] = store.IntArg(args[2].Int() + 1) }})},
	{"the second rule is named", "SlidingLog/Demonstration", nil, changed(func(s *store.Script, keys []string, reply []store.Value) {
		if s.Name() == "slidinglog+slidinglog" && strings.Contains(keys[0], "{calc}") && reply[0].Int() == 0 { // the resource passes for free
			reply[2], reply[5] = store.IntegerValue(0), store.IntegerValue(3)
		}
	})},
	{"tokens of one microsecond are one", "SlidingLog/SameMicrosecond", []string{"SlidingLog/", "Limiter/Mix"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if !strings.Contains(s.Name(), "slidinglog") {
			return tx
		}
		return oncePerScore{tx, map[int64]bool{}}
	}}},
	{"nothing is trimmed", "SlidingLog/Bounded", []string{"SlidingLog/Refund", "SlidingLog/Refunds"}, onlyFor("slidinglog", func(_ *fake, tx store.Tx) store.Tx { return hoarder{tx} })},
	{"a limit of 4 is one of 5", "SlidingLog/Lowered", []string{"SlidingLog/", "Limiter/Mix"}, bad[algorithm.SlidingLog](badAlgorithm{args: func(args []store.Arg) {
		if args[0].Int() == 4 {
			args[0] = store.IntArg(5)
		}
	}})},
	{"an entry of any layout is its own", "SlidingLog/Layout", []string{"MetadataWindow/Foreign"}, onlyFor("slidinglog", func(_ *fake, tx store.Tx) store.Tx { return tolerant{tx} })},
	{"any cost is taken", "SlidingLog/Cost", nil, bad[algorithm.SlidingLog](badAlgorithm{anyCost: true})},
	{"a cost is miscounted", "SlidingLog/History", []string{"Limiter/Mix"}, bad[algorithm.SlidingLog](badAlgorithm{verdict: sevens})},
	{"the wait is rounded up", "SlidingLog/Exact", []string{"SlidingLog/", "Limiter/Mix"}, bad[algorithm.SlidingLog](badAlgorithm{verdict: func(v algorithm.Verdict, _ bool, _ algorithm.State, _ algorithm.Request) algorithm.Verdict {
		if v.RetryAfter != algorithm.Never {
			v.RetryAfter = (v.RetryAfter + time.Millisecond - 1).Truncate(time.Millisecond)
		}
		return v
	}})},
	{"reads and writes apart", "SlidingLog/HotKey", []string{"Hygiene/TTL"}, torn("slidinglog")},
	{"the clock is fast", "SlidingLog/Refill", []string{"Hygiene/"}, hasty("slidinglog")},
	{"the newest is disregarded", "SlidingLog/Backwards", []string{"SlidingLog/", "Limiter/Mix"}, bad[algorithm.SlidingLog](badAlgorithm{check: func(tx store.Tx, now int64, _ []store.Arg) store.Tx { return forgetful{tx, now} }})},
	{"never is an hour", "SlidingLog/Never", []string{"SlidingLog/", "Limiter/Mix"}, bad[algorithm.SlidingLog](badAlgorithm{verdict: mayBeNever})},
}
