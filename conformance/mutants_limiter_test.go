package conformance

import (
	"context"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

var limiterMutants = []mutant{
	{"the time of a mix is off", "Limiter/Mix", []string{"SlidingBuckets/PeekMany", "SlidingBuckets/Sixteen", "Limiter/PeekMany", "MetadataWindow/Entries", "Limiter/PeekEach", "Limiter/Many", "Limiter/Modes", "Limiter/UpTo"}, changed(func(s *store.Script, _ []string, reply []store.Value) {
		if composed(s) {
			reply[1] = store.IntegerValue(reply[1].Int() + 1)
		}
	})},
	{"a denial charges", "Limiter/AllOrNone", []string{"Limiter/Mix", "Limiter/Modes", "Limiter/Refund", "Limiter/UpTo"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if composed(s) && !asks(s) && reply[0].Int() == 0 {
			spend(tx)
		}
	}}},
	{"a cost is not charged in full", "Limiter/Cost", nil, bad[algorithm.FixedWindow](badAlgorithm{args: func(args []store.Arg) {
		if args[2].Int() == 10 {
			args[2] = store.IntArg(9)
		}
	}})},
	{"asking charges", "Limiter/Ask", []string{"Limiter/"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, _ []store.Value) {
		if composed(s) && asks(s) {
			spend(tx)
		}
	}}},
	{"many values are off by one", "Limiter/PeekMany", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		values, err := f.Store.MGet(ctx, keys, values)
		if err == nil && len(keys) > 0 && strings.HasSuffix(keys[0], "{tenant0}:a") {
			values = append(values[1:], values[0])
		}
		return values, err
	}}},
	{"a batch answers the wrong caller", "Limiter/PeekEach", []string{"Batch/"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			keys := c.Keys
			if len(keys) > 10 && i > 0 {
				keys = calls[i-1].Keys
			}
			c.Reply, c.Err = f.right(ctx, c.Script, keys, c.Args, c.Reply)
		}
	}}},
	{"a reset does nothing", "Limiter/Reset", []string{"SlidingBuckets/Reset", "SlidingBuckets/Sixteen", "Hygiene/Prefix", "MetadataWindow/Entries"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if strings.HasSuffix(s.Name(), ".reset") {
			return txFunc{Tx: tx, del: func(int) {}}
		}
		return tx
	}}},
	{"a foreign key passes for missing", "Limiter/Foreign", []string{"Limiter/ForeignType", "SlidingBuckets/", "MetadataWindow/Foreign", "Limiter/Many", "Limiter/Refund"}, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, _ error) (store.Nums, bool, error) { return n, ok, nil }}
	}}},
	{"a set passes for missing", "Limiter/ForeignType", []string{"SlidingBuckets/ForeignType", "MetadataWindow/Foreign"}, mutation{tx: func(f *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			if len(f.sets) > 0 {
				err = nil
			}
			return n, ok, err
		}}
	}}},
	{"seconds are rounded down", "Limiter/Throttle", nil, changed(func(_ *store.Script, keys []string, reply []store.Value) {
		if strings.HasSuffix(keys[0], ":throttle") {
			now := reply[1].Int()
			reply[1] = store.IntegerValue(now + (now/1_000_000+1)*1_000_000%now)
		}
	})},
}

var hygieneMutants = []mutant{
	{"a decision writes one key more", "Hygiene/Prefix", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		start := len(reply)
		got, err := f.right(ctx, s, keys, args, reply)
		if err == nil && composed(s) && !asks(s) && got[start].Int() == 1 {
			_, err = f.Store.Eval(ctx, putOne, []string{keys[0] + ":more"}, []store.Arg{store.IntArg(1000), store.IntArg(1)}, nil)
		}
		return got, err
	}}},
	{"a denial writes", "Hygiene/Nothing", []string{"SlidingBuckets/PeekMany", "Limiter/Mix", "MetadataWindow/Entries", "Limiter/PeekEach"}, mutation{after: func(_ *fake, s *store.Script, tx store.Tx, reply []store.Value) {
		if composed(s) && reply[0].Int() == 0 {
			if _, ok, err := tx.Get(0, store.Tag{'g', '1'}); !ok && err == nil {
				tx.Put(0, store.Nums{Tag: store.Tag{'g', '1'}, Len: 3, N: [store.MaxNums]int64{1, 0, 1}}, time.Hour)
			}
		}
	}}},
	{"a TTL is in whole seconds", "Hygiene/TTL", []string{"Hygiene/ClockTTL"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if s == putOne {
			return tx
		}
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			return n, max(ttl.Truncate(time.Second), min(ttl, time.Second))
		}}
	}}},
	{"a caller's clock lengthens nothing", "Hygiene/ClockTTL", []string{"GCRA/", "FixedWindow/", "SlidingBuckets/", "SlidingCounter/", "TokenBucket/", "LeakyBucket/", "Limiter/"}, mutation{tx: func(_ *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx {
		if s == wide || len(args) == 0 || args[0].Int() < 1<<40 {
			return tx
		}
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl - time.Hour }}
	}}},
}
