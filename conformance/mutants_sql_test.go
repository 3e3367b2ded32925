package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// sqlMutants are mistakes of stores over a database. conformance/integration has more of them,
// in the code of store/postgres.
var sqlMutants = []mutant{
	{"a read-only script reads its keys one after the other", "Store/Atomic", []string{"Store/Expiry", "Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s != scripts.Look || len(keys) != 2 {
			return f.right(ctx, s, keys, args, reply)
		}
		var now store.Value
		for _, key := range keys {
			got, err := f.right(ctx, s, []string{key}, []store.Arg{store.IntArg(1)}, nil)
			if err != nil {
				return reply, err
			}
			reply, now = append(reply, got[0]), got[1]
			time.Sleep(50 * time.Microsecond)
		}
		return append(reply, now), nil
	}}},
	{"a read-only script reads what a copy holds", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, nil)
		if s != scripts.Look || len(keys) != 2 || err != nil {
			return append(reply, got...), err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		late, _ := f.memo.([]store.Value)
		if f.memo = got; late == nil {
			late = got
		}
		return append(reply, late...), nil
	}}},
	{"a key that was deleted is not locked", "Store/Atomic", []string{"Store/Peer"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s != scripts.CounterThree || len(args) == 0 {
			return f.right(ctx, s, keys, args, reply)
		}
		return torn("counter").eval(f, ctx, s, keys, args, reply)
	}}},
	{"a script finds an expired key", "Store/Expiry", nil, mutation{tx: func(_ *fake, s *store.Script, args []store.Arg, tx store.Tx) store.Tx {
		if s != scripts.Look || args[0].Int() != 7 {
			return tx
		}
		return txFunc{Tx: tx, get: func(i int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
			return n, ok || i == 2, err
		}}
	}}},
	{"a key is found in the microsecond in which it expires", "Store/Expiry", nil, onlyFor("put", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			return n, ttl + time.Microsecond
		}}
	})},
	{"a Keep after a Put keeps the older TTL", "Store/Expiry", nil, onlyFor("keep", func(_ *fake, tx store.Tx) store.Tx { return keepsOlder{tx} })},
	{"members of an expired set come back", "Store/Expiry", []string{"Store/Delete"}, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, add: func(i int, m store.Member, ttl time.Duration) {
			if tx.Add(i, m, ttl); m.Text == "new" {
				tx.Add(i, store.Member{Score: 1, Text: "x"}, ttl)
			}
		}}
	})},
	{"a number in place of a set is not found by scripts", "Store/Nums", []string{"Store/Delete"}, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if s == scripts.Look && len(keys) == 1 && err == nil && got[0].Int() == 9 {
			return reply, store.Foreign(keys[0])
		}
		return got, err
	}}},
	{"the clock of scripts has milliseconds", "Store/Time", nil, onlyFor("moments", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, now: func() int64 { return tx.Now() / 1000 * 1000 }}
	})},
	{"the clock moves within a step", "Store/Time", nil, onlyFor("moments", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, now: func() int64 { return time.Now().UnixMicro() }}
	})},
	{"keys are cut at 2,048 bytes", "Store/Keys", nil, mutation{keys: func(key string) string { return key[:min(len(key), 2048)] }}},
	{"keys lose what is not UTF-8", "Store/Keys", []string{"List/Prefix"}, mutation{keys: func(key string) string { return strings.ToValidUTF8(key, "\ufffd") }}},
	{"texts lose what is not UTF-8", "Store/Set", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s == scripts.SetStep {
			args = slices.Clone(args)
			for _, i := range []int{0, 2, 6} {
				args[i] = store.StringArg(strings.ToValidUTF8(args[i].String(), "\ufffd"))
			}
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"members are ordered by the alphabet", "Store/Set", nil, onlyFor("setstep", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, at: func(i int, fromEnd int64) (store.Member, bool, error) {
			var list []store.Member
			for n := int64(0); ; n++ {
				m, ok, err := tx.At(i, n)
				if !ok {
					slices.SortStableFunc(list, func(a, b store.Member) int {
						return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(strings.ToLower(b.Text), strings.ToLower(a.Text)))
					})
					if fromEnd >= n {
						return m, ok, err
					}
					return list[fromEnd], true, nil
				}
				list = append(list, m)
			}
		}}
	})},
	{"a form that failed runs again", "Store/ScriptError", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrUnavailable) {
			return f.right(ctx, s, keys, args, reply)
		}
		return got, err
	}}},
	{"an outage that a form reports is a failed script", "Store/ScriptError", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		got, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrUnavailable) {
			err = fmt.Errorf("%w: %v", store.ErrScript, err)
		}
		return got, err
	}}},
	{"a context is ignored during the wait for a lock", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if err := ctx.Err(); err != nil {
			return reply, err
		}
		return f.right(context.WithoutCancel(ctx), s, keys, args, reply)
	}}},
	{"a call waits longer than its context", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		ended := make(chan struct{})
		var got []store.Value
		var err error
		go func() {
			defer close(ended)
			got, err = f.right(ctx, s, slices.Clone(keys), slices.Clone(args), reply)
		}()
		select {
		case <-ended:
			return got, err
		case <-ctx.Done():
			time.Sleep(500 * time.Millisecond)
			return reply, ctx.Err()
		}
	}}},

	{"a batch is not committed", "Batch/Independent", []string{"Store/Atomic", "Store/Peer", "Batch/ScriptLoss", "Store/Panic"}, miscounting(func(f *fake, ctx context.Context, calls []store.Eval) { undo(f, ctx, calls) })},
	{"a failed call undoes its batch", "Batch/Independent", []string{"Batch/ScriptLoss"}, miscounting(func(f *fake, ctx context.Context, calls []store.Eval) {
		if slices.ContainsFunc(calls, func(c store.Eval) bool { return c.Script == scripts.Broken }) {
			undo(f, ctx, calls)
		}
	})},
	{"the calls of a batch lose each other's updates", "Batch/Independent", []string{"Batch/ScriptLoss"}, miscounting(func(_ *fake, _ context.Context, calls []store.Eval) {
		first := map[string][]store.Value{}
		for i, c := range calls {
			if c.Err != nil {
				continue
			}
			if reply, ok := first[c.Keys[0]]; ok {
				calls[i].Reply = reply
			}
			first[c.Keys[0]] = calls[i].Reply
		}
	})},
	{"a failed call of a batch is written", "Batch/Independent", []string{"Batch/ScriptLoss"}, miscounting(func(f *fake, ctx context.Context, calls []store.Eval) {
		for _, c := range calls {
			if c.Script == scripts.Broken {
				_, _ = f.Store.Eval(ctx, scripts.Wide, c.Keys[:1], []store.Arg{store.IntArg(0)}, nil)
			}
		}
	})},
}

// A keepsOlder is a Tx whose Put does not change the TTL of a key.
type keepsOlder struct{ store.Tx }

func (k keepsOlder) Put(i int, n store.Nums, ttl time.Duration) {
	if _, ok, _ := k.Get(i); ok {
		k.Keep(i, n)
		return
	}
	k.Tx.Put(i, n, ttl)
}

// miscounting runs a batch, and then, if it counts, wrong.
func miscounting(wrong func(f *fake, ctx context.Context, calls []store.Eval)) mutation {
	return mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			c.Reply, c.Err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply)
		}
		if ctx.Err() == nil && slices.ContainsFunc(calls, func(c store.Eval) bool { return c.Script == scripts.Counter }) {
			wrong(f, ctx, calls)
		}
	}}
}

// undo deletes the keys of calls.
func undo(f *fake, ctx context.Context, calls []store.Eval) {
	for _, c := range calls {
		for _, key := range c.Keys {
			_, _ = f.Store.Eval(ctx, scripts.Clean, []string{key}, []store.Arg{store.IntArg(1)}, nil)
		}
	}
}
