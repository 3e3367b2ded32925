package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/script"
)

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
