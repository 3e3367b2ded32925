package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/script"
)

// A refund returns the tokens that have not been refilled, unless others wait for theirs behind
// them. No caller waits if the consumed tokens are at most the capacity.
func TestRefund(t *testing.T) {
	t.Parallel()
	const s = 1_000_000
	one := algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}
	once := algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true}
	whole, third := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}
	queue := algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 5}
	for _, tt := range []struct {
		name  string
		limit algorithm.Algorithm
		costs []int64 // of requests at the time 0, which can wait
		which int     // the request that is refunded
		after int64   // when, in microseconds
		gave  bool
		full  time.Duration // the time until all tokens are available, after the refund
	}{
		{"at once", one, []int64{2}, 0, 0, true, 0},
		{"half of it is back", one, []int64{2, 3}, 0, 1 * s, true, 3 * time.Second},
		{"half of a token more is back", one, []int64{2, 3}, 0, 1.5 * s, true, 2500 * time.Millisecond},
		{"a microsecond before all of it is back", one, []int64{2, 3}, 0, 2*s - 1, true, 2*time.Second + us},
		{"all of it is back", one, []int64{2, 3}, 0, 2 * s, false, 3 * time.Second},
		{"long ago", one, []int64{2}, 0, 1000 * s, false, 0},
		{"one less waits behind than it took", one, []int64{4, 3}, 0, 0, true, 6 * time.Second},
		{"as many wait behind as it took", one, []int64{4, 4}, 0, 0, false, 8 * time.Second},
		{"more wait behind than it took", one, []int64{2, 5}, 0, 0, false, 7 * time.Second},
		{"capacity and one, a microsecond before it is capacity", one, []int64{3, 3}, 0, s - 1, false, 5*time.Second + us},
		{"capacity and one, when it is capacity", one, []int64{3, 3}, 0, s, true, 3 * time.Second},
		{"refilled at once", once, []int64{3, 2}, 0, s - 1, true, us},
		{"refilled at once, all is back", once, []int64{3, 2}, 0, s, false, time.Second},
		{"refilled at once, a microsecond before it is capacity", once, []int64{4, 4}, 0, s - 1, false, 2*time.Second + us},
		{"refilled at once, when it is capacity", once, []int64{4, 4}, 0, s, true, 2 * time.Second},
		{"whole interval, capacity", whole, []int64{2, 3}, 0, 0, true, 3 * time.Second},
		{"whole interval, capacity and one", whole, []int64{2, 4}, 0, 0, false, 6 * time.Second},
		{"whole interval, a microsecond before it is capacity", whole, []int64{3, 3}, 0, s - 1, false, 5*time.Second + us},
		{"whole interval, when it is capacity", whole, []int64{3, 3}, 0, s, true, 3 * time.Second},
		{"whole interval, first and two more", whole, []int64{5, 2}, 0, 0, true, 4 * time.Second},
		{"third, capacity", third, []int64{2, 3}, 0, 0, true, time.Second},
		{"third, a part of a microsecond before it is capacity", third, []int64{3, 3}, 0, 333_333, false, 1_666_667 * us},
		{"third, when it is capacity", third, []int64{3, 3}, 0, 333_334, true, time.Second},
		{"the last of a queue", queue, []int64{1, 1, 1, 1}, 3, 0, true, 3 * time.Second},
		{"one in the middle of a queue", queue, []int64{1, 1, 1, 1}, 2, 0, false, 4 * time.Second},
		{"the last, a moment before its turn", queue, []int64{1, 1, 1, 1}, 3, 3*s - 1, true, us},
		{"the last, a moment before the next turn", queue, []int64{1, 1, 1, 1}, 3, 4*s - 1, true, 0},
		{"the last, at the next turn", queue, []int64{1, 1, 1, 1}, 3, 4 * s, false, 0},
	} {
		b := newBench(t, tt.limit)
		var charges []charge
		for _, cost := range tt.costs {
			c, v := b.charge(epoch, cost, time.Minute)
			if !v.Allowed {
				t.Fatalf("%s: got %+v", tt.name, v)
			}
			charges = append(charges, c)
		}
		gave := b.refund(epoch+tt.after, charges[tt.which])
		if got := b.peek(epoch+tt.after, 1); gave != tt.gave || got.ResetAfter != tt.full {
			t.Errorf("%s: refunded: %v, then full after %v; want %v, %v", tt.name, gave, got.ResetAfter, tt.gave, tt.full)
		}
	}
}

// inParts are limits of 9 tokens, each with a time in which at most one token is
// refilled, in µs.
var inParts = []struct {
	limit algorithm.Algorithm
	one   int64
}{
	{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 9}, 1_000_000},
	{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9}, 333_333},
	{algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 9}, 142_857},
	{algorithm.GCRA{Rate: algorithm.PerSecond(90_000), Burst: 9}, 11},
	{algorithm.GCRA{Rate: algorithm.Rate{Count: 2, Period: 2*time.Second + 2}, Burst: 9}, 1_000_001},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 8}, 1_000_000},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 8}, 333_333},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(90_000), Queue: 8}, 11},
	{algorithm.TokenBucket{Capacity: 9, Refill: algorithm.PerSecond(3)}, 333_333},
	{algorithm.TokenBucket{Capacity: 9, Refill: algorithm.PerSecond(3), AtOnce: true}, 0},
	{algorithm.FixedWindow{Limit: 9, Window: time.Second}, 0},
	{algorithm.SlidingCounter{Limit: 9, Window: time.Second}, 0},
	{algorithm.SlidingLog{Limit: 9, Window: time.Second}, 0},
	{spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 9}), 0},
}

// If a decision is refunded in parts, the limit is after each part as if the decision had
// consumed fewer tokens: exactly, even in debt, and if tokens before the decision have
// been refilled.
func TestRefundInParts(t *testing.T) {
	t.Parallel()
	for i, tt := range inParts {
		t.Run(fmt.Sprintf("%+v", tt.limit), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 12))
			for range 300 {
				b := newBench(t, tt.limit)
				wait := time.Duration(0)
				if reserves(b.limit) {
					wait = time.Minute
				}
				before, n, behind, now := 1+r.Int64N(2), 1+r.Int64N(5), r.Int64N(3), int64(epoch)
				forced := r.IntN(2) == 0
				if _, queue := tt.limit.(algorithm.LeakyBucket); queue || forced {
					behind = 0 // tokens that later requests depend on are not refunded
				}
				if forced {
					n *= 9
				}
				run := func(b *bench, n int64) (was charge) {
					b.wait(script.Consume, epoch, before, wait)
					switch {
					case n == 0:
					case forced:
						_, was = b.force(epoch, n)
					default:
						was, _ = b.charge(epoch, n, wait)
					}
					if behind > 0 {
						b.wait(script.Consume, epoch, behind, wait)
					}
					return was
				}
				was := run(b, n)
				for n > 0 {
					if now == epoch && r.IntN(4) == 0 {
						now += r.Int64N(before*tt.one + 1)
					}
					k := 1 + r.Int64N(n)
					n -= k
					if !b.part(now, &was, k) {
						t.Fatalf("the refund of %d tokens, with %d left, gave nothing: %d before, %d behind, forced %v", k, n, before, behind, forced)
					}
					without := &bench{t: t, state: newState(epoch, len(b.state.keys)), limit: b.limit, program: b.program}
					run(without, n)
					if got, want := b.peek(now, 1), without.peek(now, 1); got != want {
						t.Fatalf("after a refund of %d tokens, with %d left, %d µs later: got %+v, want %+v: %d before, %d behind, forced %v", k, n, now-epoch, got, want, before, behind, forced)
					}
				}
			}
		})
	}
}

// If later requests had another limit, a refund returns no tokens that have been
// refilled.
func TestRefundBetweenLimits(t *testing.T) {
	t.Parallel()
	third, seventh := algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9}, algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 9}
	b := newBench(t, third)
	first, _ := b.charge(epoch, 1, 0)
	second, _ := b.charge(epoch, 1, 0)
	if !b.refund(epoch, first) {
		t.Fatal("the first was not refunded")
	}
	b.change(seventh)
	b.take(epoch, 1) // refilled 142,858 µs after the second
	b.change(third)
	if !b.refund(epoch+200_000, second) {
		t.Fatal("the rest of the second was not refunded")
	}
	if v := b.peek(epoch+200_000, 1); v.ResetAfter < 142_857*us || v.ResetAfter > 142_860*us {
		t.Errorf("full after %v, want the time of the third", v.ResetAfter)
	}
}

// Each of several decisions refunds the tokens that it still holds, in whatever order they
// are refunded.
func TestRefundInOrder(t *testing.T) {
	t.Parallel()
	costs := []int64{1, 2, 1, 1, 2, 1}
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 9}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9},
		algorithm.TokenBucket{Capacity: 9, Refill: algorithm.PerSecond(3), AtOnce: true}, algorithm.SlidingLog{Limit: 9, Window: time.Second},
	} {
		r := rand.New(rand.NewPCG(1, 7))
		for range 10 {
			b, order, left := newBench(t, a), r.Perm(6), int64(0)
			b.take(epoch, 1)
			charges := make([]charge, len(costs))
			for i, n := range costs {
				charges[i], _ = b.charge(epoch, n, 0)
			}
			for _, i := range order {
				left += costs[i]
				if gave, got := b.refund(epoch, charges[i]), b.peek(epoch, 1).Remaining; !gave || got != left {
					t.Errorf("%+v in the order %v: decision %d refunded %v, and %d are left, want %d", a, order, i, gave, got, left)
				}
			}
		}
	}
}

// The end of a decision that refunds have moved is rounded down to a microsecond, also in the
// microsecond in which the decision ended before.
func TestRefundWithinAMicrosecond(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.GCRA{Rate: algorithm.PerSecond(7_000_000), Burst: 30})
	_, first := b.force(epoch, 10)
	b.take(epoch+1, 12)
	b.part(epoch+1, &first, 1)
	for _, n := range []int64{3, 3, 4} {
		b.force(epoch+1, n)
	}
	b.part(epoch+1, &first, 9)
	if got := b.peek(epoch+1, 1); got.Remaining > 8 || got.ResetAfter < 4*time.Microsecond {
		t.Errorf("%+v, but 22 of 30 tokens were consumed in this microsecond", got)
	}
}
