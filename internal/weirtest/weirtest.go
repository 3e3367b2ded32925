// Package weirtest has what the tests of package weir and of its wrappers share.
package weirtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Long reports whether tests try everything of which .ci/run tries a random share. make
// long sets WEIR_LONG to 1.
func Long() bool { return os.Getenv("WEIR_LONG") == "1" }

// Histories returns the number of random histories in WEIR_HISTORIES, or n.
func Histories(t *testing.T, n int) int {
	t.Helper()
	if text := os.Getenv("WEIR_HISTORIES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Seed returns the seed in WEIR_SEED, or a random one, and logs it.
func Seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("WEIR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("to repeat it, set WEIR_SEED to %d", seed)
	return seed
}

// Epoch is the start of virtual time.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A Clock shows the time that a test sets.
type Clock struct{ micros atomic.Int64 }

// NewClock returns a Clock that shows Epoch.
func NewClock() *Clock {
	c := new(Clock)
	c.micros.Store(Epoch.UnixMicro())
	return c
}

// Now returns the time that c shows.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.micros.Load()) }

// Advance moves c by d.
func (c *Clock) Advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// NewStore returns a memory store whose clock is c.
func NewStore(c *Clock) *memory.Store { return memory.New(&memory.Options{Now: c.Now}) }

// New returns a limiter named "t" with one rule that has no name.
func New(t testing.TB, st store.Store, a algorithm.Algorithm) *weir.Limiter {
	t.Helper()
	return NewPolicy(t, st, Rules(weir.Rule{Algorithm: a}))
}

// NewPolicy returns a limiter for p. If p has no name, the name is "t".
func NewPolicy(t testing.TB, st store.Store, p weir.Policy) *weir.Limiter {
	t.Helper()
	if p.Name == "" {
		p.Name = "t"
	}
	return must(t)(weir.NewPolicy(st, p, nil))
}

// Rules returns a policy whose keys have one segment.
func Rules(list ...weir.Rule) weir.Policy { return weir.Policy{Rules: list} }

// PerSecond allows one request per second, and bursts of five.
var PerSecond = algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}

// Window returns a FixedWindow.
func Window(limit int64, d time.Duration) algorithm.FixedWindow {
	return algorithm.FixedWindow{Limit: limit, Window: d}
}

// Capped returns an algorithm that decides as a does, and can consume at most so many
// tokens at once.
func Capped(a algorithm.Algorithm, most int64) algorithm.Algorithm {
	return changed{Algorithm: a, most: most}
}

// Windowless returns an algorithm that decides as a does, and names no Window. It names
// this capacity, unless it is 0.
func Windowless(a algorithm.Algorithm, capacity int64) algorithm.Algorithm {
	return changed{a, 0, capacity, true}
}

type changed struct {
	algorithm.Algorithm
	most, capacity int64
	windowless     bool
}

func (c changed) NewLimit() (*contract.Limit, error) {
	l, err := c.Algorithm.NewLimit()
	if err != nil {
		return nil, err
	}
	other := *l
	if c.windowless {
		other.Window = 0
	}
	other.MaxCost, other.Capacity = cmp.Or(c.most, l.MaxCost), cmp.Or(c.capacity, l.Capacity)
	other.MaxDebt = min(l.MaxDebt, contract.MaxTokens-other.Capacity)
	return &other, nil
}

// With returns l with other rules.
func With(t testing.TB, l *weir.Limiter, rules ...weir.Rule) *weir.Limiter {
	t.Helper()
	return must(t)(l.With(rules...))
}

// Only returns l with one rule only.
func Only(t testing.TB, l *weir.Limiter, rule string) *weir.Limiter {
	t.Helper()
	return must(t)(l.Only(rule))
}

// Wrap returns l in the wrappers w.
func Wrap(t testing.TB, l *weir.Limiter, w ...weir.Wrapper) *weir.Limiter {
	t.Helper()
	return must(t)(l.Wrap(w...))
}

// must returns a function that returns l, or fails the test.
func must(t testing.TB) func(l *weir.Limiter, err error) *weir.Limiter {
	return func(l *weir.Limiter, err error) *weir.Limiter {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

// Decide makes the decision that r asks for.
func Decide(t testing.TB, l *weir.Limiter, r weir.Request, each ...weir.Result) weir.Result {
	t.Helper()
	res, err := l.Decide(t.Context(), r, each)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return res
}

// Allow fails the test unless the request is allowed.
func Allow(t testing.TB, l *weir.Limiter, r weir.Request) weir.Result {
	t.Helper()
	res := Decide(t, l, r)
	if !res.Allowed {
		t.Fatalf("%+v: got %+v, want it allowed", r, res)
	}
	return res
}

// Left returns the result of a Peek at key.
func Left(t testing.TB, l *weir.Limiter, key ...string) weir.Result {
	t.Helper()
	return Decide(t, l, weir.Request{Key: weir.KeyOf(key...), Op: weir.Peek})
}

// Degraded fails the test unless res is the answer of a fallback.
func Degraded(t testing.TB, res weir.Result, err error) weir.Result {
	t.Helper()
	if err != nil || !errors.Is(res.Degraded, store.ErrUnavailable) {
		t.Fatalf("got %+v, %v, want a degraded answer", res, err)
	}
	return res
}

// Healthy fails the test unless the store made the decision res.
func Healthy(t testing.TB, res weir.Result, err error) weir.Result {
	t.Helper()
	if err != nil || res.Degraded != nil {
		t.Fatalf("got %+v, %v, want an answer of the store", res, err)
	}
	return res
}

// WantError fails the test unless err is want, or any error if want is nil. The text of
// err must contain says, and must name the package pkg once, in its prefix.
func WantError(t testing.TB, err, want error, pkg, says string) {
	t.Helper()
	if err == nil || want != nil && !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	text, prefix := err.Error(), pkg+": "
	if !strings.HasPrefix(text, prefix) || strings.Count(text, prefix) > 1 || !strings.Contains(text, says) {
		t.Errorf("error %q, want one prefix %q and %q", text, prefix, says)
	}
}

// Number returns a short name, which differs for each i.
func Number(i int) string { return fmt.Sprint("k", i) }

// Pass is a [weir.Wrapper] that passes every request on.
func Pass(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) { return passing{next}, nil }

type passing struct{ next weir.Decider }

func (p passing) Unwrap() weir.Decider { return p.next }

func (p passing) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return p.next.Decide(ctx, r, each)
}

// Around returns a [weir.Wrapper] that makes d of the next Decider.
func Around[D weir.Decider](around func(next weir.Decider) D) weir.Wrapper {
	return func(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) { return around(next), nil }
}

// A Hooked store calls Before first in each Eval, and returns its error if there is one. If
// Lose is not nil, Eval makes the call, and then returns Lose, as if the reply was lost.
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
