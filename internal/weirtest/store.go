package weirtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A Hooked store calls Before before each Eval, and returns its error. If Lose is not
// nil, it makes the call, and then returns Lose, as if the reply was lost.
type Hooked struct {
	store.Store
	Before func(ctx context.Context, s *store.Script) error
	Lose   error
}

// Eval implements [store.Store].
func (h *Hooked) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	if h.Before != nil {
		if err := h.Before(ctx, s); err != nil {
			return reply, err
		}
	}
	if h.Lose != nil {
		_, _ = h.Store.Eval(context.WithoutCancel(ctx), s, keys, args, nil)
		return reply, h.Lose
	}
	return h.Store.Eval(ctx, s, keys, args, reply)
}

// A Fault is what a [Faulty] store does with a call.
type Fault int32

// The faults.
const (
	Up   Fault = iota
	Down       // it is unavailable
	Hang       // it does not answer until the context ends
	Lost       // it makes the call, and does not answer until the context ends
	Slow       // it answers after 2 s, whatever the context does
)

// A Faulty is a store with a fault.
type Faulty struct {
	store.Store
	fault atomic.Int32
	Asked atomic.Int64 // calls
}

// NewFaulty returns a Faulty over a memory store, without a fault.
func NewFaulty() *Faulty { return &Faulty{Store: memory.New(nil)} }

// Set sets the fault.
func (f *Faulty) Set(to Fault) { f.fault.Store(int32(to)) }

// Call calls f.Store with call, if there is no fault. A hanging or slow store takes that
// long.
func (f *Faulty) Call(ctx context.Context, call func(ctx context.Context) error) error {
	f.Asked.Add(1)
	switch Fault(f.fault.Load()) {
	case Down:
		return fmt.Errorf("faulty: %w", store.ErrUnavailable)
	case Lost:
		_ = call(ctx)
		fallthrough
	case Hang:
		<-ctx.Done()
		return fmt.Errorf("faulty: %w", ctx.Err())
	case Slow:
		time.Sleep(2 * time.Second)
		ctx = context.WithoutCancel(ctx)
	}
	return call(ctx)
}

// Eval implements [store.Store].
func (f *Faulty) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) (out []store.Value, err error) {
	out = reply
	err = f.Call(ctx, func(ctx context.Context) error {
		out, err = f.Store.Eval(ctx, s, keys, args, reply)
		return err
	})
	return out, err
}

// MGet implements [store.Store].
func (f *Faulty) MGet(ctx context.Context, keys []string, values []store.Value) (out []store.Value, err error) {
	err = f.Call(ctx, func(ctx context.Context) error {
		out, err = f.Store.MGet(ctx, keys, values)
		return err
	})
	return out, err
}

// Time implements [store.Store].
func (f *Faulty) Time(ctx context.Context) (now time.Time, err error) {
	err = f.Call(ctx, func(ctx context.Context) error {
		now, err = f.Store.Time(ctx)
		return err
	})
	return now, err
}

// Change runs f on one key of st.
func Change(t testing.TB, st store.Store, key string, f func(tx store.Tx)) {
	t.Helper()
	script := store.NewScript("change", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		f(tx)
		return reply, nil
	})
	if _, err := st.Eval(t.Context(), script, []string{key}, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// Plant sets key to the value with this tag and the integers n.
func Plant(t testing.TB, st store.Store, key string, tag store.Tag, n ...int64) {
	t.Helper()
	Change(t, st, key, func(tx store.Tx) {
		nums := store.Nums{Tag: tag, Len: uint8(len(n))}
		copy(nums.N[:], n)
		tx.Put(0, nums, time.Hour)
	})
}
