package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// reserving are limits of 10 tokens that can be reserved ahead of time, each with the
// approximate number of microseconds in which one token is refilled.
var reserving = []struct {
	limit algorithm.Algorithm
	one   int64
}{
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3)}, 333_333},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)}, 100_000},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3), AtOnce: true}, 333_333},
	{algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(300_000)}, 3},
	{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 10}, 333_333},
	{algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 10}, 100_000},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 9}, 333_333},
	{algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 9}, 100_000},
}

// UpTo consumes the largest cost that is allowed, and changes the key like a request with
// that cost.
func TestUpTo(t *testing.T) {
	t.Parallel()
	for i, tt := range append(reserving, []struct {
		limit algorithm.Algorithm
		one   int64
	}{
		{algorithm.FixedWindow{Limit: 10, Window: time.Second}, 100_000},
		{algorithm.SlidingCounter{Limit: 10, Window: time.Second}, 100_000},
		{algorithm.MetadataWindow{Limit: 10, Window: time.Second}, 100_000},
		{algorithm.SlidingLog{Limit: 10, Window: time.Second}, 100_000},
		{spans(100*time.Millisecond, algorithm.Span{Window: time.Second, Limit: 10}, algorithm.Span{Window: 300 * time.Millisecond, Limit: 6}), 100_000},
	}...) {
		t.Run(fmt.Sprintf("%+v", tt.limit), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 4))
			b, now := newBench(t, tt.limit), int64(epoch)
			for range 1000 {
				now += r.Int64N(2*tt.one) - tt.one/3
				wait := time.Duration(0)
				if reserves(b.limit) && r.IntN(2) == 0 {
					wait = time.Duration(r.Int64N(9000*tt.one)) * us / 1000
				}
				most := int64(0)
				for n := int64(1); n <= 10; n++ {
					if b.wait(script.Peek, now, n, wait).Allowed {
						most = n
					}
				}
				asked := 1 + r.Int64N(12)
				other := &bench{t: t, state: newState(now, len(b.state.keys)), limit: b.limit, program: b.program}
				copy(other.state.keys, b.state.keys)
				call := compose.Call{Cost: asked, Wait: wait.Microseconds()}
				got, upTo := b.do(script.UpTo, now, call)
				if got != min(asked, most) {
					t.Fatalf("at %d, wait %v: up to %d consumed %d, and %d pass", now-epoch, wait, asked, got, most)
				}
				if call.Cost = got; got > 0 {
					if _, paid := other.do(script.Consume, now, call); upTo != paid || fmt.Sprint(b.state.keys) != fmt.Sprint(other.state.keys) {
						t.Fatalf("up to %d answered %+v, and a cost of %d %+v; the keys hold %v and %v", asked, upTo, got, paid, b.state.keys, other.state.keys)
					}
				}
			}
		})
	}
}

// A request is denied if its Delay would be longer than MaxWait, even by one microsecond.
// Its tokens are available when the Delay ends, and not before.
func TestMaxWait(t *testing.T) {
	t.Parallel()
	for i, tt := range reserving {
		t.Run(fmt.Sprintf("%+v", tt.limit), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 5))
			b, now, denied := newBench(t, tt.limit), int64(epoch), 0
			for range 2000 {
				now += r.Int64N(2 * tt.one)
				cost, wait := 1+r.Int64N(3), us+time.Duration(r.Int64N(12*tt.one))*us
				v := b.wait(script.Peek, now, cost, wait)
				if d := b.wait(script.Peek, now, cost, time.Minute); d.Allowed && (v.Allowed != (d.Delay <= wait) || v.Allowed && v.Delay != d.Delay) {
					t.Fatalf("cost %d, wait %v: got %+v, with a minute %+v", cost, wait, v, d)
				}
				if !v.Allowed {
					denied++
					if v.RetryAfter <= 0 || v.Delay != 0 {
						t.Fatalf("cost %d, wait %v: denied with %+v", cost, wait, v)
					}
					b.checkExact(now, cost, wait, v)
					continue
				}
				if v.Delay > 0 {
					if d := b.wait(script.Peek, now, cost, v.Delay-us); d.Allowed {
						t.Fatalf("a Delay of %v within %v: %+v", v.Delay, v.Delay-us, d)
					}
				}
				if r.IntN(3) > 0 {
					b.wait(script.Consume, now, cost, wait)
				}
			}
			if denied < 20 {
				t.Errorf("only %d denials", denied)
			}
		})
	}
}

// For any wait of a caller, no time and no count reaches 2^53.
func TestLongestWait(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3)},
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3), AtOnce: true},
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(4_000_000_000)},
		algorithm.TokenBucket{Capacity: 1 << 52, Refill: algorithm.PerSecond(1_000_000_000)},
		algorithm.TokenBucket{Capacity: 1, Refill: algorithm.Every(maxSpan)},
		algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 1000, Refill: algorithm.PerSecond(1_000_000_000)},
		algorithm.TokenBucket{Capacity: algorithm.MaxTokens - 1000, Refill: algorithm.Rate{Count: 1000, Period: us}, AtOnce: true},
		algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 10},
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 10},
		algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan},
		algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 9},
		algorithm.LeakyBucket{Rate: algorithm.Every(us), Queue: contract.MaxSpan - 1},
	} {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			b, allowed := newBench(t, a), 0
			for range 100 {
				v := b.wait(script.Consume, 1<<52-1, b.limit.Capacity, 1<<63-1)
				if !v.Allowed {
					break
				}
				allowed++
			}
			if b.integers(); allowed == 0 {
				t.Errorf("nothing was allowed")
			}
			if v := b.peek(1<<52-1, 1); v.ResetAfter > 2*maxSpan {
				t.Errorf("full after %v", v.ResetAfter)
			}
		})
	}
}

// The longest wait is never negative. A bucket that fills in exactly MaxSpan can be used,
// but no caller can wait for it.
func TestNoWait(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.Every(us), Burst: contract.MaxSpan},
		algorithm.LeakyBucket{Rate: algorithm.Every(us), Queue: contract.MaxSpan - 1},
		algorithm.TokenBucket{Capacity: contract.MaxSpan, Refill: algorithm.Every(us)},
	} {
		b := newBench(t, a)
		if b.limit.MaxWait != 0 {
			t.Errorf("%+v: MaxWait is %d, want 0", a, b.limit.MaxWait)
		}
		if v := b.wait(script.Consume, epoch, 1, time.Hour); !v.Allowed {
			t.Errorf("%+v: got %+v", a, v)
		}
	}
}
