package prefetch_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
)

// A batch counts the calls that reach the store, a batch as one.
type batch struct {
	next weir.Decider
	n    *int
}

func (b batch) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	*b.n++
	return b.next.Decide(ctx, r, each)
}

func (b batch) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	*b.n++
	weir.DecideMany(ctx, b.next, requests, answers)
}

// While no time passes, DoMany answers each request as a limiter without a Pool does. The
// requests that held tokens do not answer are one batch.
func TestDoMany(t *testing.T) {
	t.Parallel()
	c, n := weirtest.NewClock(), 0
	a := algorithm.TokenBucket{Capacity: 1000, Refill: algorithm.PerSecond(1)}
	bare, pool := weirtest.New(t, weirtest.NewStore(c), a), prefetch.New(&prefetch.Options{Now: c.Now})
	lim := weirtest.Wrap(t, weirtest.New(t, weirtest.NewStore(c), a), pool.Wrap,
		weirtest.Around(func(next weir.Decider) batch { return batch{next, &n} }))
	const batches = 200
	prefetches := 0
	for step := range batches {
		requests := slices.Repeat([]weir.Request{{Key: weir.KeyOf("busy")}}, 6)
		for i := range 4 {
			requests = append(requests, weir.Request{Key: weir.KeyOf(fmt.Sprint("rare", step, "-", i))})
		}
		switch {
		case step == 100:
			requests = append(requests[:3], weir.Request{Key: weir.KeyOf("busy"), Op: weir.Reset}, weir.Request{Key: weir.KeyOf("x"), Cost: -1})
		case step%10 == 0:
			requests = requests[6:]
		}
		before := n
		for i, got := range lim.DoMany(t.Context(), requests) {
			want, err := bare.Decide(t.Context(), requests[i], nil)
			if want.Allowed {
				want.ResetAfter = got.Result.ResetAfter // tokens were consumed earlier
			}
			if got.Result != want || (got.Err == nil) != (err == nil) {
				t.Fatalf("batch %d, %+v: got %+v, %v, want %+v, %v", step, requests[i], got.Result, got.Err, want, err)
			}
		}
		if n == before {
			t.Fatalf("batch %d: no call", step)
		}
		prefetches += n - before - 1
	}
	if prefetches == 0 || prefetches > 40 {
		t.Errorf("%d calls besides the %d batches, want from 1 to 40", prefetches, batches)
	}
	if err := pool.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := weirtest.Left(t, lim, "busy"), weirtest.Left(t, bare, "busy"); got != want {
		t.Errorf("after Return: got %+v, want %+v", got, want)
	}
}

// If a prefetch brings too few tokens, later requests of the batch do not prefetch again.
func TestDoManyFew(t *testing.T) {
	t.Parallel()
	c, n := weirtest.NewClock(), 0
	other := weirtest.New(t, weirtest.NewStore(c), algorithm.TokenBucket{Capacity: 100_000, Refill: algorithm.PerHour(1)})
	lim := weirtest.Wrap(t, other, prefetch.New(&prefetch.Options{Now: c.Now}).Wrap,
		weirtest.Around(func(next weir.Decider) batch { return batch{next, &n} }))
	r := weir.Request{Key: weir.KeyOf("u"), Cost: 10}
	for range 200 {
		c.Advance(time.Millisecond)
		weirtest.Allow(t, lim, r)
	}
	weirtest.Allow(t, other, weir.Request{Key: r.Key, Cost: weirtest.Left(t, other, "u").Remaining - 5})
	c.Advance(2 * prefetch.DefaultMaxAge)
	n = 0
	if lim.DoMany(t.Context(), slices.Repeat([]weir.Request{r}, 100)); n > 5 || n == 0 {
		t.Errorf("%d calls, want at most 5", n)
	}
}
