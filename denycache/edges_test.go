package denycache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// A delayed is a wrapper that calls then once, after the next decision and before its
// caller gets the answer.
type delayed struct {
	next weir.Decider
	then *func()
}

func (d delayed) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	res, err := d.next.Decide(ctx, r, each)
	if then := *d.then; then != nil {
		*d.then = nil
		then()
	}
	return res, err
}

// A denial that the store made before a reset is not remembered, even if its answer comes
// after the reset.
func TestDenyCacheOvertaken(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} { // whether the cache has held a denial before
		c := weirtest.NewClock()
		then, n := new(func()), new(int)
		l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1, time.Minute)),
			denycache.New(&denycache.Options{Now: c.Now}).Wrap,
			weirtest.Around(func(next weir.Decider) delayed { return delayed{next, then} }), counting(n))
		ctx := t.Context()
		allow := func() bool {
			res, err := l.Allow(ctx, "u")
			if err != nil {
				t.Fatal(err)
			}
			return res.Allowed
		}
		allow()
		if before {
			allow()
			c.Advance(2 * time.Second)
		}
		*then = func() { _ = l.Reset(ctx, "u") }
		if allow() {
			t.Fatal("allowed, want denied: the reset comes later")
		}
		if !allow() {
			t.Error("denied after the reset")
		}
		*then = func() { _, _ = l.Peek(ctx, "u") }
		if allow() {
			t.Fatal("allowed, want denied")
		}
		if reached := *n; allow() || *n != reached {
			t.Error("a Peek forgot the denial")
		}
	}
}

// Every result of a remembered denial agrees with itself: a rule that denies has a time
// to wait, and a rule that is not full has a time until it is.
func TestDenyCacheAgrees(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, n := cached(t, weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(
		weir.Rule{Name: "fast", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 1}},
		weir.Rule{Name: "medium", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(5), Burst: 2}},
		weir.Rule{Name: "slow", Algorithm: weirtest.Window(1, time.Minute)},
	)), c, denycache.Options{MaxAge: time.Hour})
	each := make([]weir.Result, 3)
	for _, r := range []weir.Request{{Key: weir.KeyOf("u")}, {Key: weir.KeyOf("v"), Cost: 3}} {
		if _, err := l.Decide(t.Context(), weir.Request{Key: r.Key}, nil); err != nil {
			t.Fatal(err)
		}
		*n = 0
		const steps = 300
		for step := range steps {
			res, err := l.Decide(t.Context(), r, each[:3*(step%2)])
			if err != nil || res.Allowed {
				t.Fatalf("got %+v, %v", res, err)
			}
			results := []weir.Result{res}
			if step%2 == 1 {
				results = append(results, each...)
			}
			for _, res := range results {
				if !res.Allowed && res.RetryAfter <= 0 || res.ResetAfter <= 0 && res.Remaining < res.Limit {
					t.Fatalf("%v, step %d: %+v contradicts itself", r, step, res)
				}
			}
			c.Advance(time.Millisecond)
		}
		if *n > 6 {
			t.Errorf("%v: %d of %d decisions reached the store, want at most 6", r, *n, steps)
		}
	}
}

// A call whose context has ended gets that error, and not the remembered denial.
func TestDenyCacheCancelled(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, n := cached(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1, time.Minute)), c, denycache.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 {
		if _, err := l.Allow(ctx, "u"); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if *n != 2 {
		t.Fatalf("%d calls reached the store, want 2: the denial is not remembered", *n)
	}
	_, err := l.Allow(ctx, "u")
	wantError(t, err, context.Canceled, "")
	if res, err := l.Allow(t.Context(), "u"); err != nil || res.Allowed || *n != 2 {
		t.Errorf("got %+v, %v after %d calls of the store, want that the denial is still remembered", res, err, *n)
	}
}

// A MaxAge of Never is no limit, even for a denial with the RetryAfter Never. A cost of 0
// is a cost of 1.
func TestDenyCacheBounds(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, n := cached(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1, time.Minute)), c, denycache.Options{MaxAge: weir.Never})
	c.Advance(time.Second)
	ask := func(cost int64, reached bool) {
		t.Helper()
		before := *n
		if _, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Cost: cost}, nil); err != nil != (cost < 0) {
			t.Fatal(err)
		}
		if got := *n > before; got != reached {
			t.Errorf("cost %d: it reached the store: %v, want %v", cost, got, reached)
		}
	}
	ask(5, true)
	ask(5, false)
	ask(0, true)
	ask(0, true)
	ask(0, false)
	ask(1, false)
	ask(-1, true)
	ask(1, true) // the error has forgotten the denial
	ask(1, false)
	ask(0, false)
}

// Answers counts the requests that the store did not see, in all limiters of the Cache.
func TestAnswers(t *testing.T) {
	t.Parallel()
	c := denycache.New(nil)
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Window(1, time.Hour)), c.Wrap)
	for _, l := range []*weir.Limiter{l, weirtest.With(t, l)} {
		before := c.Answers()
		for range 5 { // the first denial is the store's
			if _, err := l.Allow(t.Context(), "ann"); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.Answers() - before; got < 3 || got > 4 {
			t.Errorf("the cache answered %d requests of 5", got)
		}
	}
	if got := c.Answers(); got != 3+4 {
		t.Errorf("the cache answered %d requests, want 7", got)
	}
	if got := (*denycache.Cache)(nil).Answers(); got != 0 {
		t.Errorf("a nil Cache answered %d requests", got)
	}
}

// A batcher is a counter that counts a batch as one decision.
type batcher struct{ counter }

func (b batcher) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	*b.n++
	weir.DecideMany(ctx, b.next, requests, answers)
}

// DoMany answers each request as Decide does. Those without a remembered denial are one
// batch.
func TestDoMany(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng, c, n := rand.New(rand.NewPCG(seed, 0)), weirtest.NewClock(), 0
	a := algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4}
	bare := weirtest.New(t, weirtest.NewStore(c), a)
	lim := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(c), a), denycache.New(&denycache.Options{MaxAge: time.Hour, Now: c.Now}).Wrap,
		weirtest.Around(func(next weir.Decider) batcher { return batcher{counter{next, &n}} }))
	if err := lim.Reset(t.Context(), "u0"); err != nil || n != 1 {
		t.Fatalf("Reset: %v, %d calls", err, n)
	}
	asked, none := 0, 0
	for step := range 2000 {
		c.Advance(time.Duration(rng.Int64N(200_000)) * time.Microsecond * time.Duration(rng.IntN(2)))
		var requests []weir.Request
		for u := range 1 + rng.IntN(6) {
			r := weir.Request{Key: weir.KeyOf(fmt.Sprint("u", u)), Cost: 1 + rng.Int64N(3)}
			switch rng.IntN(20) {
			case 0:
				r.Op = weir.TakeUpTo
			case 1:
				r = weir.Request{Key: r.Key, Op: weir.Reset}
			case 2:
				r.Cost = -1
			}
			requests = append(requests, r)
		}
		before := n
		for i, got := range lim.DoMany(t.Context(), requests) {
			want, err := bare.Decide(t.Context(), requests[i], nil)
			got.Result.Remaining, want.Remaining = 0, 0 // the cache has those of the denial
			if got.Result != want || (got.Err == nil) != (err == nil) {
				t.Fatalf("seed %d, step %d, %+v: got %+v, %v, want %+v, %v", seed, step, requests[i], got.Result, got.Err, want, err)
			}
		}
		switch n - before {
		case 0:
			none++
		case 1:
			asked++
		default:
			t.Fatalf("seed %d, step %d: %d batches", seed, step, n-before)
		}
	}
	if asked < 20 || none < 20 {
		t.Errorf("seed %d: %d batches reached the store, and %d did not: want 20 of both", seed, asked, none)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, a := range lim.DoMany(ended, []weir.Request{{Key: weir.KeyOf("u0"), Cost: 2}, {Key: weir.KeyOf("u1"), Cost: 2}}) {
		if !errors.Is(a.Err, context.Canceled) {
			t.Errorf("with an ended context: got %+v", a)
		}
	}
	if _, err := lim.Wrap(denycache.New(nil).Wrap); err == nil {
		t.Error("a second Cache is no error")
	}
}

// A denied repeat of a piece of work is not remembered: other work is not a repeat.
func TestDenyCacheRepeat(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, err := weir.NewPolicy(weirtest.NewStore(c), weir.Policy{Name: "work", Rules: []weir.Rule{
		{Name: "place", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Minute}, Cost: 1},
		{Name: "tokens", Algorithm: weirtest.Window(9, time.Hour)},
	}}, &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	l = weirtest.Wrap(t, l, denycache.New(&denycache.Options{Now: c.Now}).Wrap)
	ask := func(op weir.Op, id string) weir.Result {
		return weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("u"), Op: op, ID: id})
	}
	ask(weir.Consume, "a")
	ask(weir.Release, "a")
	ask(weir.Consume, "b")
	if again, other := ask(weir.Consume, "a"), ask(weir.Consume, "c"); !again.Replayed || again.Allowed || other.Replayed || other.Allowed {
		t.Errorf("got %+v and %+v, want a repeat and other work to be denied", again, other)
	}
}
