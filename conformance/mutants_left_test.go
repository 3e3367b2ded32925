package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// leftMutants are mistakes in what calls leave: a panic, a context that ended, a restart.
var leftMutants = []mutant{
	{"a panic leaves the lock", "Store/Panic", nil, locking(func(_ context.Context, s *store.Script) bool { return s == scripts.Panics })},
	{"a panic is swallowed", "Store/Panic", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		reply, err := f.right(ctx, s, keys, args, reply)
		if s == scripts.Panics {
			err = nil
		}
		return reply, err
	}}},
	{"a panic passes through", "Store/Panic", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		reply, err := f.right(ctx, s, keys, args, reply)
		if s == scripts.Panics {
			panic(err)
		}
		return reply, err
	}}},
	{"a panic is written", "Store/Panic", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if s == scripts.Panics {
			_, _ = f.Store.Eval(ctx, scripts.Counter, keys, nil, nil)
		}
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"a panic in a batch is swallowed", "Store/Panic", nil, panicking(func(c *store.Eval) { c.Err = nil })},
	{"a panic in a batch fails the calls after it", "Store/Panic", nil, mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		var failed error
		for i := range calls {
			c := &calls[i]
			if c.Err = failed; failed == nil {
				c.Reply, c.Err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply)
			}
			if c.Script == scripts.Panics {
				failed = c.Err
			}
		}
	}}},
	{"a transaction is ended with the caller's context", "Store/Interrupted", []string{"Store/Cancelled"}, locking(func(ctx context.Context, _ *store.Script) bool { return ctx.Err() != nil })},
	{"the transaction of a reader is ended with the caller's context", "Store/Interrupted", nil, locking(func(ctx context.Context, s *store.Script) bool { return ctx.Err() != nil && s.ReadOnly() })},
	{"a commit whose context ended is not made, and returns no error", "Store/Interrupted", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		out, err := f.right(ctx, s, keys, args, reply)
		if s.Name() == "counter" && err == nil && ctx.Err() != nil {
			undo(f, context.WithoutCancel(ctx), []store.Eval{{Keys: keys}})
		}
		return out, err
	}}},
	{"an error of a form is lost if the context ended", "Store/Interrupted", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		out, err := f.right(ctx, s, keys, args, reply)
		if errors.Is(err, store.ErrScript) && ctx.Err() != nil {
			err = nil
		}
		return out, err
	}}},
	{"a call that waited in vain gets the lock later, and keeps it", "Store/Cancelled", nil, mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if err := ctx.Err(); err != nil {
			return reply, err
		}
		lock := f.lockOf()
		got := make(chan struct{})
		go func() {
			lock <- struct{}{}
			close(got)
		}()
		select {
		case <-got:
		case <-ctx.Done():
			return reply, ctx.Err()
		}
		defer func() { <-lock }()
		return f.right(ctx, s, keys, args, reply)
	}}},
	{"the state is lost on close", "Store/Durable", nil, mutation{reopen: func(f *fake) *fake { return newFake(f.mutation) }}},
	{"TTLs begin again on close", "Store/Durable", nil, reopened(func(tx store.Tx) {
		if n, ok, err := tx.Get(0); ok && err == nil {
			tx.Put(0, n, time.Hour)
		}
	})},
	{"the TTLs of sets are lost on close", "Store/Durable", nil, reopened(func(tx store.Tx) {
		if m, ok, err := tx.At(0, 0); ok && err == nil {
			tx.Add(0, m, time.Hour)
		}
	})},
	{"sets are lost on close", "Store/Durable", nil, reopened(func(tx store.Tx) {
		if _, _, err := tx.Get(0); err != nil {
			tx.Del(0)
		}
	})},
	{"the last member of a set is lost on close", "Store/Durable", nil, reopened(func(tx store.Tx) {
		if m, ok, err := tx.At(0, 0); ok && err == nil && m.Text == "y" {
			tx.Remove(0, "y")
		}
	})},
}

// locking holds one lock during each call, and leaves it locked if left returns true.
func locking(left func(ctx context.Context, s *store.Script) bool) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		if err := ctx.Err(); err != nil {
			return reply, err
		}
		lock := f.lockOf()
		lock <- struct{}{}
		reply, err := f.right(ctx, s, keys, args, reply)
		if !left(ctx, s) {
			<-lock
		}
		return reply, err
	}}
}

// lockOf returns a lock that a mutant remembers. It is full while a call holds it, and goes to
// the call that waited longest.
func (f *fake) lockOf() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.memo == nil {
		f.memo = make(chan struct{}, 1)
	}
	return f.memo.(chan struct{})
}

// panicking changes the calls of batches whose form panics.
func panicking(change func(c *store.Eval)) mutation {
	return mutation{batch: func(f *fake, ctx context.Context, calls []store.Eval) {
		for i := range calls {
			c := &calls[i]
			if c.Reply, c.Err = f.right(ctx, c.Script, c.Keys, c.Args, c.Reply); c.Script == scripts.Panics {
				change(c)
			}
		}
	}}
}

// reopened changes each key when the store is opened again.
func reopened(change func(tx store.Tx)) mutation {
	return mutation{reopen: func(f *fake) *fake {
		script := store.NewScript("reopened", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			change(tx)
			return reply, nil
		})
		for key := range f.All() {
			_, _ = f.Store.Eval(context.Background(), script, []string{key}, nil, nil)
		}
		return f
	}}
}
