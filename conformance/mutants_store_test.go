package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

var storeMutants = []mutant{
	{"what keeps its time gets an hour", "Store/Expiry", nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if s != keepOne {
			return tx
		}
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, _ time.Duration) (store.Nums, time.Duration) { return n, time.Hour }}
	}}},
	{"nil becomes empty", "Store/Reply", nil, changed(func(s *store.Script, _ []string, reply []store.Value) {
		for i, v := range reply {
			if s == kinds && v.Kind() == store.Nil {
				reply[i] = store.BulkValue("")
			}
		}
	})},
	{"reply is not appended to", "Store/Reply", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s != kinds {
			return f.right(ctx, s, keys, args, reply)
		}
		return f.right(ctx, s, keys, args, nil)
	}}},
	{"arguments end at a NUL", "Store/Args", []string{"Store/Set", "MetadataWindow/Entries", "Concurrency/"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		args = slices.Clone(args)
		for i, a := range args {
			if before, _, cut := strings.Cut(a.String(), "\x00"); cut {
				args[i] = store.StringArg(before)
			}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"keys end at a NUL", "Store/Keys", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		keys = slices.Clone(keys)
		for i, key := range keys {
			keys[i], _, _ = strings.Cut(key, "\x00")
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"numbers are cut to three", "Store/Nums", []string{"FixedWindow/Refund", "GCRA/Cancel", "GCRA/Refund", "Limiter/Cancel", "Limiter/Modes", "Limiter/Refund", "SlidingBuckets/Refund", "SlidingCounter/Refund", "SlidingLog/Refund", "TokenBucket/Refund", "TokenBucket/Cancel", "LeakyBucket/Refund", "LeakyBucket/Cancel", "GCRA/Refunds", "LeakyBucket/Refunds", "SlidingBuckets/Refunds", "SlidingCounter/Refunds", "SlidingLog/Refunds", "TokenBucket/Refunds"}, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			n.Len = min(n.Len, 3)
			return n, ttl
		}}
	}}},
	{"a script does not see what it put", "Store/Nums", nil, onlyFor("steps", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(store.Nums, bool, error) (store.Nums, bool, error) { return store.Nums{}, false, nil }}
	})},
	{"steps interleave", "Store/Atomic", []string{"Store/Peer"}, torn("counter")},
	{"the clock is read before the locks", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		before := time.Now().UnixMicro()
		if s == counter && before%2 == 0 {
			time.Sleep(100 * time.Microsecond) // for the locks, while others pass
		}
		got, err := f.right(ctx, s, keys, args, reply)
		if s == counter && err == nil {
			got[len(got)-1] = store.IntegerValue(before)
		}
		return got, err
	}}},
	{"a store locks its own callers out alone", "Store/Peer", nil, mutation{peer: true}},
	{"steps run twice at times", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if got, err := f.right(ctx, s, keys, args, reply); s != counter || err != nil || got[len(got)-3].Int()%100 != 50 {
			return got, err
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"replies are swapped", "Store/OwnReply", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s != echo || len(args) != 1 || err != nil {
			return got, err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if last, ok := f.memo.(store.Value); ok {
			f.memo, got[len(got)-1] = got[len(got)-1], last
			return got, nil
		}
		f.memo = got[len(got)-1]
		return got, nil
	}}},
	{"a failed script is an outage", "Store/ScriptError", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrScript) {
			err = fmt.Errorf("%w: %v", store.ErrUnavailable, err)
		}
		return got, err
	}}},
	{"a failed script spoils the reply", "Store/ScriptError", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrScript) {
			got = nil
		}
		return got, err
	}}},
	{"Lua is run wrongly", "Store/GoForm", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s == luaOnly {
			return append(reply, store.IntegerValue(2)), nil
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"slots are not looked at", "Store/CrossSlot", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s == putTwo && errors.Is(err, store.ErrCrossSlot) {
			for i := range keys {
				if got, err = f.right(ctx, putOne, keys[i:i+1], []store.Arg{args[0], args[i+1]}, reply); err != nil {
					return got, err
				}
			}
		}
		return got, err
	}}},
	{"values come in the order of slots", "Store/MGet", nil, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		if len(keys) > 250 {
			keys = slices.Clone(keys)
			slices.SortStableFunc(keys, func(a, b string) int { return store.Slot(a) - store.Slot(b) })
		}
		return f.Store.MGet(ctx, keys, values)
	}}},
	{"sets pass for strings", "Store/MGetType", []string{"Limiter/ForeignType", "SlidingBuckets/ForeignType"}, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		start := len(values)
		values, err := f.Store.MGet(ctx, keys, values)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, key := range keys {
			if err == nil && f.sets[key] {
				values[start+i] = store.BulkValue("x")
			}
		}
		return values, err
	}}},
	{"equal scores are in the order of arrival", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx { return arrival{tx} })},
	{"a removal ignores its rank", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx { return first{tx} })},
	{"a text is not found everywhere", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx { return blind{tx} })},
	{"a set cannot be emptied", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx { return empty{tx} })},
	{"a count includes its bound", "Store/Set", []string{"SlidingLog/", "Concurrency/", "Limiter/Mix", "Limiter/Refund"}, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx { return inclusive{tx} }}},
	{"keys expire early", "Store/Expiry", nil, onlyFor("put", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl / 10 }}
	})},
	{"a TTL is not renewed", "Store/Expiry", []string{"Store/Keys"}, onlyFor("put", func(f *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(i int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if _, held, _ := tx.Get(i, n.Tag); held {
				ttl = 250 * time.Millisecond
			}
			return n, ttl
		}}
	})},
	{"keys never expire", "Store/Expiry", nil, onlyFor("put", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl + time.Hour }}
	})},
	{"deleting does nothing", "Store/Delete", []string{"Store/Set"}, onlyFor("del", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, del: func(int) {}}
	})},
	{"contexts are ignored", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		return f.right(context.WithoutCancel(ctx), s, keys, args, reply)
	}}},
	{"a cancellation is an outage", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if ctx.Err() != nil {
			return reply, store.ErrUnavailable
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"Time is another clock", "Store/Time", []string{"Store/Expiry"}, mutation{time: func(f *fake, ctx context.Context) (time.Time, error) {
		now, err := f.Store.Time(ctx)
		return now.Add(-time.Second), err
	}}},
	{"keys are kept", "Store/Borrowed", nil, mutation{
		eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			if s == putOne {
				kept, _ := f.memo.([]string)
				f.memo = append(kept, keys[0]) // where a copy is due
			}
			return f.right(ctx, s, keys, args, reply)
		},
		mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
			if kept, _ := f.memo.([]string); len(keys) == 1 && strings.Contains(keys[0], ":{a}:10") && !slices.Contains(kept, keys[0]) {
				return append(values, store.Value{}), nil
			}
			return f.Store.MGet(ctx, keys, values)
		},
	}},
	{"a lost script runs twice", "Store/ScriptLoss", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if f.scriptsLost() {
			if _, err := f.right(ctx, s, keys, args, nil); err != nil {
				return reply, err
			}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
}

var batchMutants = []mutant{
	{"a failed call ends the batch", "Batch/Independent", []string{"Limiter/PeekEach", "Limiter/Many"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		var err error
		for i := range calls {
			c := &calls[i]
			if err == nil {
				c.Reply, err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply)
			}
			c.Err = err
		}
	}}},
	{"a batch has no second try", "Batch/ScriptLoss", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		lost := f.scriptsLost()
		for i := range calls {
			c := &calls[i]
			if c.Err = fmt.Errorf("%w: NOSCRIPT", store.ErrScript); !lost {
				c.Reply, c.Err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply)
			}
		}
	}}},
	{"a batch ignores its context", "Batch/Cancelled", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			c.Reply, c.Err = f.right(context.WithoutCancel(ctx), c.Script, c.Keys, c.Args, c.Reply)
		}
	}}},
}
