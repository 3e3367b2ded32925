package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

func spans(width time.Duration, list ...algorithm.Span) algorithm.SlidingBuckets {
	return algorithm.SlidingBuckets{Width: width, Spans: list}
}

// A limit keeps no slice of its caller.
func TestSlidingBucketsCopies(t *testing.T) {
	t.Parallel()
	a := spans(time.Second, algorithm.Span{Window: 2 * time.Second, Limit: 3})
	b := newBench(t, a)
	a.Spans[0] = algorithm.Span{Window: time.Hour, Limit: 1}
	if got := b.take(epoch, 2); !got.Allowed || b.result.Limit != 3 || b.result.Window != 2*time.Second {
		t.Errorf("got %+v", b.result)
	}
}

// An answer does not depend on whether expired keys have been removed.
func TestSlidingBucketsExpiredKeys(t *testing.T) {
	t.Parallel()
	a := spans(time.Second, algorithm.Span{Window: 5 * time.Second, Limit: 9}, algorithm.Span{Window: 2 * time.Second, Limit: 5})
	r := rand.New(rand.NewPCG(3, 9))
	gone, kept := newBench(t, a), newBench(t, a)
	kept.state.keep = true
	now := int64(epoch)
	for step := range 3000 {
		now += r.Int64N(model.Pick[int64](r, 1_000_000, 1_000_000, 1_000_000, 12_000_000))
		cost := r.Int64N(4)
		got, want := kept.take(now, 1+cost), gone.take(now, 1+cost)
		if got != want {
			t.Fatalf("step %d at %d, cost %d: with expired keys %+v, without %+v", step, now-epoch, cost, got, want)
		}
	}
}

// A reply that no script makes does not cause a panic.
func TestSlidingBucketsNonsense(t *testing.T) {
	t.Parallel()
	p := mustProgram(t, mustLimit(t, spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5})))
	for _, ints := range []string{"1 0 0 0 0", "9007199254740992 9007199254740992 0 0 0", "0 9007199254740992 9007199254740992 9007199254740992 9007199254740992", "0 6 0 0 0"} {
		c := compose.Call{Cost: 1}
		o, err := p.Parse(script.Consume, []store.Value{store.BulkValue("1;1767225600 0;" + ints)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if a := p.Result(0, script.Consume, &o, &c); a.Remaining < 0 || a.RetryAfter < 0 || a.ResetAfter < 0 {
			t.Errorf("%s: %+v", ints, a)
		}
	}
}

// Limits with the same shape share a kind. The cache of shapes is bounded, and keeps the
// most recently used shapes.
func TestSlidingBucketsShapes(t *testing.T) {
	a := spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5}, algorithm.Span{Window: time.Second, Limit: 2})
	first := mustLimit(t, a).Kind
	other := func(n int) {
		mustLimit(t, spans(time.Second, algorithm.Span{Window: time.Duration(n) * time.Second, Limit: 1}))
	}
	for n := range 128 {
		other(n + 1)
		a.Width, a.Spans = a.Width*2, []algorithm.Span{{Window: a.Width * 6, Limit: int64(n + 1)}, {Window: a.Width * 2, Limit: 9}}
		if a.Width > time.Hour {
			a.Width, a.Spans = time.Second, []algorithm.Span{{Window: 3 * time.Second, Limit: 5}, {Window: time.Second, Limit: 2}}
		}
		if mustLimit(t, a).Kind != first {
			t.Fatalf("after %d other shapes, the shape that is in use has another kind", n)
		}
	}
	for n := range 128 {
		other(n + 1)
	}
	if mustLimit(t, a).Kind == first {
		t.Error("128 shapes later, the shape has the same kind: the cache has no bound")
	}
}
