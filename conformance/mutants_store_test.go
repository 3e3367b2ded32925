package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// closedErrors are the errors of closed stores, of one method at a time, that are not marked.
func closedErrors() []mutant {
	var list []mutant
	for _, method := range []string{"Eval", "MGet", "Time", "EvalBatch"} {
		list = append(list, mutant{method + " of a closed database is not unavailable", "Store/Closed", nil, mutation{shut: func(m string) error {
			if m == method {
				return errors.New("database is closed")
			}
			return store.ErrUnavailable
		}}})
	}
	return list
}

var storeMutants = []mutant{
	{"a key that keeps its TTL gets an hour", "Store/Expiry", nil, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		if s != scripts.Keep {
			return tx
		}
		return txFunc{Tx: tx, keep: func(i int, n store.Nums) {
			if _, ok, _ := tx.Get(i); ok {
				tx.Put(i, n, time.Hour)
			}
		}}
	}}},
	{"nil becomes empty", "Store/Reply", nil, changed(func(s *store.Script, _ []string, reply []store.Value) {
		for i, v := range reply {
			if s == scripts.Kinds && v.Kind() == store.Nil {
				reply[i] = store.BulkValue("")
			}
		}
	})},
	{"reply is not appended to", "Store/Reply", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s != scripts.Kinds {
			return f.right(ctx, s, keys, args, reply)
		}
		return f.right(ctx, s, keys, args, nil)
	}}},
	{"arguments end at a NUL", "Store/Args", []string{"Store/Set", "MetadataWindow/Same", "Concurrency/", "Limiter/Mix", "MetadataWindow/Same"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		args = slices.Clone(args)
		for i, a := range args {
			if before, _, cut := strings.Cut(a.String(), "\x00"); cut {
				args[i] = store.StringArg(before)
			}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"keys end at a NUL", "Store/Keys", []string{"Limiter/Names", "List/Prefix"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		keys = slices.Clone(keys)
		for i, key := range keys {
			keys[i], _, _ = strings.Cut(key, "\x00")
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"numbers are cut to eight", "Store/Nums", []string{"Limiter/", "/Refund", "/Same", "/Layout"}, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if !slices.Contains(markTags, n.Tag) { // a marker has nine too: every check of refunds would fail
				n.Len = min(n.Len, 8)
			}
			return n, ttl
		}}
	}}},
	{"a missing key that keeps its TTL is written", "Store/Nums", nil, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, keep: func(i int, n store.Nums) {
			if _, ok, err := tx.Get(i); !ok && err == nil {
				tx.Put(i, n, scripts.LongTTL)
				return
			}
			tx.Keep(i, n)
		}}
	}}},
	{"a foreign value of the second key names the first", "Store/Foreign", []string{"Store/Unreadable"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrForeign) && s.Name() == "read" {
			err = store.Foreign(keys[0])
		}
		return got, err
	}}},
	{"a foreign value is a failed script", "Store/Foreign", []string{"Store/Unreadable"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrForeign) && s.Name() == "read" {
			err = fmt.Errorf("%w: %v", store.ErrScript, err)
		}
		return got, err
	}}},
	{"a number passes for a set without members", "Store/Foreign", []string{"Store/Unreadable"}, onlyFor("read", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, score: func(i int, text string) (int64, bool, error) {
			score, ok, _ := tx.Score(i, text)
			return score, ok, nil
		}}
	})},
	{"a form that finds a foreign value writes before", "Store/Foreign", []string{"Store/Unreadable"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrForeign) && s.Name() == "read" {
			if _, err := f.right(ctx, scripts.Put, keys[:1], []store.Arg{scripts.LongMillis, store.IntArg(1)}, nil); err != nil {
				return reply, err
			}
		}
		return got, err
	}}},
	{"a script does not see what it wrote", "Store/Nums", nil, onlyFor("steps", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, get: func(int, store.Nums, bool, error) (store.Nums, bool, error) { return store.Nums{}, false, nil }}
	})},
	{"steps interleave", "Store/Atomic", []string{"Store/Peer"}, torn("counter")},
	{"the clock is read before the locks", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		before := time.Now().UnixMicro()
		if s.Name() == "counter" && before%2 == 0 {
			time.Sleep(100 * time.Microsecond) // for the locks, while others pass
		}
		got, err := f.right(ctx, s, keys, args, reply)
		if s.Name() == "counter" && err == nil {
			got[len(got)-1] = store.IntegerValue(before)
		}
		return got, err
	}}},
	{"a store locks only its own callers", "Store/Peer", nil, mutation{peer: true}},
	{"steps run twice at times", "Store/Atomic", []string{"Store/Peer", "Store/Interrupted"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if got, err := f.right(ctx, s, keys, args, reply); s.Name() != "counter" || err != nil || got[len(got)-3].Int()%100 != 50 {
			return got, err
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"replies are swapped", "Store/OwnReply", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s != scripts.Echo || len(args) != 1 || err != nil {
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
	{"a failed script is an outage", "Store/ScriptError", []string{"Store/Panic"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrScript) {
			err = fmt.Errorf("%w: %v", store.ErrUnavailable, err)
		}
		return got, err
	}}},
	{"the error of a form is returned as it is", "Store/ScriptError", []string{"Batch/Independent", "Batch/ScriptLoss"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s.Name() == scripts.Broken.Name() && err != nil {
			err = errors.New("broken on purpose")
		}
		return got, err
	}}},
	{"a failed script spoils the reply", "Store/ScriptError", []string{"Store/Panic"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrScript) {
			got = nil
		}
		return got, err
	}}},
	{"Lua is run wrongly", "Store/GoForm", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s == scripts.LuaOnly {
			return append(reply, store.IntegerValue(2)), nil
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"slots are not checked", "Store/CrossSlot", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s == scripts.Put && errors.Is(err, store.ErrCrossSlot) {
			for i := range keys {
				if got, err = f.right(ctx, scripts.Put, keys[i:i+1], []store.Arg{args[0], args[i+1]}, reply); err != nil {
					return got, err
				}
			}
		}
		return got, err
	}}},
	{"values come in the order of slots", "Store/MGet", []string{"SlidingBuckets/Peek"}, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		if len(keys) > 250 {
			keys = slices.Clone(keys)
			slices.SortStableFunc(keys, func(a, b string) int { return store.Slot(a) - store.Slot(b) })
		}
		return f.Store.MGet(ctx, keys, values)
	}}},
	{"sets pass for strings", "Store/MGet", []string{"Store/Delete", "Store/Expiry", "GCRA/ForeignType", "SlidingBuckets/ForeignType"}, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
		start := len(values)
		values, err := f.Store.MGet(ctx, keys, values)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, key := range keys {
			if err == nil && f.sets[key] && values[start+i].Kind() == store.Nil && f.has(key) {
				values[start+i] = store.BulkValue("x")
			}
		}
		return values, err
	}}},
	{"equal scores are not ordered by text", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, at: func(i int, fromEnd int64) (store.Member, bool, error) {
			m, ok, err := tx.At(i, fromEnd)
			if next, more, _ := tx.At(i, fromEnd+1); ok && more && next.Score == m.Score {
				return next, true, nil
			}
			return m, ok, err
		}}
	})},
	{"a member that is added again keeps its score", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			if score, ok, _ := tx.Score(i, m.Text); ok {
				m.Score = score
			}
			tx.Add(i, m, ttl)
		}}
	})},
	{"a removal removes the lowest member", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, remove: func(i int, text string) {
			if _, ok, _ := tx.Score(i, text); ok {
				tx.Trim(i, 1)
			}
		}}
	})},
	{"a text is not found everywhere", "Store/Set", []string{"Store/Large"}, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, score: func(i int, text string) (int64, bool, error) {
			score, ok, err := tx.Score(i, text)
			return score, ok && score >= 10, err
		}}
	})},
	{"long texts are cut", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			m.Text = m.Text[:min(len(m.Text), store.MaxText-1)]
			tx.Add(i, m, ttl)
		}}
	})},
	{"a trim leaves one more", "Store/Set", []string{"Store/Large", "Store/Expiry"}, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, trim: func(i int, n int64) { tx.Trim(i, n-1) }}
	})},
	{"a set cannot be emptied", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, trim: func(i int, n int64) {
			_, all, _ := tx.Count(i, 0)
			tx.Trim(i, min(n, all-1))
		}}
	})},
	{"a count includes its bound", "Store/Set", []string{"Store/Large", "SlidingLog/", "Concurrency/", "Limiter/Mix", "Limiter/Limits", "Limiter/Modes", "Limiter/Refund", "Pause/Full"}, mutation{tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, count: func(i int, after int64) (above, all int64, err error) { return tx.Count(i, after-1) }}
	}}},
	{"a set keeps its first TTL", "Store/Expiry", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			if _, all, _ := tx.Count(i, 0); all > 0 {
				ttl = scripts.LongTTL
			}
			tx.Add(i, m, ttl)
		}}
	})},
	{"a set of which members are removed never expires", "Store/Expiry", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, remove: func(i int, text string) {
			tx.Remove(i, text)
			if m, ok, _ := tx.At(i, 0); ok && m.Text != text {
				tx.Add(i, m, scripts.LongTTL)
			}
		}}
	})},
	{"keys expire early", "Store/Expiry", []string{"Store/Durable"}, onlyFor("put", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl / 10 }}
	})},
	{"a TTL is not renewed", "Store/Expiry", []string{"Store/Keys"}, onlyFor("put", func(f *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(i int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if _, held, _ := tx.Get(i); held {
				ttl = 250 * time.Millisecond
			}
			return n, ttl
		}}
	})},
	{"keys never expire", "Store/Expiry", []string{"Store/Durable"}, onlyFor("put", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) { return n, ttl + time.Hour }}
	})},
	{"deleting does nothing", "Store/Delete", []string{"Store/Unreadable", "Store/Set", "Store/Foreign", "Store/Expiry", "/Refund", "List/Prefix"}, onlyFor("clean", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, del: func(int) {}}
	})},
	{"contexts are ignored", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		return f.right(context.WithoutCancel(ctx), s, keys, args, reply)
	}}},
	{"a cancellation is an outage", "Store/Cancelled", []string{"Limiter/Cancel"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if ctx.Err() != nil {
			return reply, store.ErrUnavailable
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"Time is another clock", "Store/Time", []string{"Store/Expiry", "/OwnClock"}, mutation{time: func(f *fake, ctx context.Context) (time.Time, error) {
		now, err := f.Store.Time(ctx)
		return now.Add(-time.Second), err
	}}},
	{"keys are kept", "Store/Borrowed", nil, mutation{
		eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			if s == scripts.Put {
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
	{"the clock is in another time zone", "Store/Time", nil, mutation{
		time: func(f *fake, ctx context.Context) (time.Time, error) {
			now, err := f.Store.Time(ctx)
			return now.Add(-5 * time.Hour), err
		},
		tx: func(_ *fake, _ *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
			return txFunc{Tx: tx, now: func() int64 { return tx.Now() - (5 * time.Hour).Microseconds() }}
		},
	}},
	{"TTLs are at most a week", "Limiter/Prefix", []string{"Calendar/"}, mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			return n, min(ttl, 7*24*time.Hour)
		}}
	}}},
	{"MGet reads key by key", "Store/Atomic", []string{"Store/Peer"}, mutation{mget: func(f *fake, ctx context.Context, keys []string, values []store.Value) (_ []store.Value, err error) {
		for i := range keys {
			if values, err = f.Store.MGet(ctx, keys[i:i+1], values); err != nil {
				return values, err
			}
			if len(keys) == 2 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		return values, nil
	}}},
	{"a cancellation has its cause as its error", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if ctx.Err() != nil {
			return reply, context.Cause(ctx)
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"scripts that only read ignore contexts", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s.ReadOnly() {
			ctx = context.WithoutCancel(ctx)
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"texts are kept", "Store/Borrowed", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s == scripts.SetStep && strings.Contains(args[2].String(), ":{a}:10") {
			kept, _ := f.memo.([]string)
			f.memo = append(kept, args[2].String()) // where a copy is due
		}
		got, err := f.right(ctx, s, keys, args, reply)
		if kept, ok := f.memo.([]string); ok && s == scripts.Count && err == nil {
			got[len(got)-1] = store.IntegerValue(int64(len(slices.Compact(slices.Sorted(slices.Values(kept))))))
		}
		return got, err
	}}},
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
	{"concurrent batches lose updates", "Store/Atomic", []string{"Store/Peer"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			c.Reply, c.Err = torn("counter").eval(f, ctx, c.Script, c.Keys, c.Args, c.Reply)
		}
	}}},
	{"a failed call ends the batch", "Batch/Independent", []string{"Batch/ScriptLoss", "Limiter/PeekMany", "Limiter/Many", "Store/Panic"}, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
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
