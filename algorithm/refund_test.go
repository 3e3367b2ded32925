package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

func TestTokenBucketRefund(t *testing.T) {
	t.Parallel()
	const s = 1_000_000
	one := algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}
	two := algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(2), AtOnce: true}
	for _, tt := range []struct {
		name   string
		limit  algorithm.TokenBucket
		charge int64 // the tokens that are refunded
		then   int64 // tokens consumed after it, by a caller who can wait; 0 means none
		after  int64 // µs
		gave   bool
		left   int64
		reset  time.Duration
	}{
		{"at once", one, 2, 0, 0, true, 5, 0},
		{"with another", one, 2, 1, 0, true, 4, time.Second},
		{"half of it is back", one, 2, 3, 1 * s, true, 2, 3 * time.Second},
		{"half of a token more", one, 2, 3, 1.5 * s, true, 2, 2500 * time.Millisecond},
		{"a microsecond before all of it is back", one, 2, 3, 2*s - 1, true, 2, 2*time.Second + us},
		{"all of it is back", one, 2, 3, 2 * s, false, 2, 3 * time.Second},
		{"long ago", one, 2, 0, 1000 * s, false, 5, 0},
		{"a caller waits", one, 5, 3, 0, true, 0, 6 * time.Second},
		{"one less waits behind than it took", one, 4, 3, 0, true, 0, 6 * time.Second},
		{"as many wait behind as it took", one, 4, 4, 0, false, 0, 8 * time.Second},
		{"more wait behind than it took", one, 2, 5, 0, false, 0, 7 * time.Second},
		{"all at once", two, 3, 2, s - 1, true, 3, us},
		{"all at once, a part is back", two, 3, 2, s, true, 3, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.limit)
			was, v := b.charge(epoch, tt.charge, 0)
			if !v.Allowed {
				t.Fatalf("got %+v", v)
			}
			if tt.then > 0 {
				if v := b.wait(script.Consume, epoch, tt.then, 10*time.Second); !v.Allowed {
					t.Fatalf("got %+v", v)
				}
			}
			now := epoch + tt.after
			if gave := b.refund(now, was); gave != tt.gave {
				t.Errorf("refunded: %v, want %v", gave, tt.gave)
			}
			got := b.peek(now, 1)
			if got.Remaining != tt.left || got.ResetAfter != tt.reset {
				t.Errorf("then %d are left, full after %v; want %d, %v", got.Remaining, got.ResetAfter, tt.left, tt.reset)
			}
		})
	}
}

// If a caller waits, tokens that were reserved after the refunded decision are not
// refunded. No caller waits if the consumed tokens are at most the capacity. The TAT is
// then at most the time of a full bucket ahead. The test also has one token, one
// microsecond and one part of a microsecond more.
func TestRefundWhileCallersWait(t *testing.T) {
	t.Parallel()
	whole, third := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}
	one, once := algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true}
	for _, tt := range []struct {
		name   string
		limit  algorithm.Algorithm
		first  int64 // the tokens that are refunded
		behind int64
		after  int64         // µs
		left   time.Duration // the time until the bucket is full, after the refund
		none   bool          // nothing was refunded
	}{
		{"whole, capacity", whole, 2, 3, 0, 3 * time.Second, false},
		{"whole, capacity and one", whole, 2, 4, 0, 6 * time.Second, true},
		{"whole, capacity and one, a microsecond before it is capacity", whole, 3, 3, 1_000_000 - 1, 5*time.Second + us, true},
		{"whole, capacity and one, when it is capacity", whole, 3, 3, 1_000_000, 3 * time.Second, false},
		{"whole, first and two more", whole, 5, 2, 0, 4 * time.Second, false},
		{"third, capacity", third, 2, 3, 0, time.Second, false},
		{"third, capacity and one", third, 2, 4, 0, 2 * time.Second, true},
		{"third, capacity and one, a part of a microsecond before it is capacity", third, 3, 3, 333_333, 1_666_667 * us, true},
		{"third, capacity and one, when it is capacity", third, 3, 3, 333_334, time.Second, false},
		{"bucket, capacity", one, 2, 3, 0, 3 * time.Second, false},
		{"bucket, capacity and one", one, 2, 4, 0, 6 * time.Second, true},
		{"bucket, capacity and one, a microsecond before it is capacity", one, 3, 3, 1_000_000 - 1, 5*time.Second + us, true},
		{"bucket, capacity and one, when it is capacity", one, 3, 3, 1_000_000, 3 * time.Second, false},
		{"bucket at once, capacity", once, 2, 3, 0, time.Second, false},
		{"bucket at once, capacity and one", once, 2, 4, 0, 2 * time.Second, true},
		{"bucket at once, a microsecond before it is capacity", once, 4, 4, 1_000_000 - 1, 2*time.Second + us, true},
		{"bucket at once, when it is capacity", once, 4, 4, 1_000_000, 2 * time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, tt.limit)
			was, v := b.charge(epoch, tt.first, 0)
			next := b.wait(script.Consume, epoch, tt.behind, time.Minute)
			if !v.Allowed || !next.Allowed {
				t.Fatalf("got %+v and %+v", v, next)
			}
			now := epoch + tt.after
			if gave := b.refund(now, was); gave == tt.none {
				t.Errorf("refunded: %v, want %v", gave, !tt.none)
			}
			if got := b.peek(now, 1); got.ResetAfter-tt.left > us || tt.left-got.ResetAfter > us {
				t.Errorf("full after %v, want %v", got.ResetAfter, tt.left)
			}
		})
	}
}

// A refund returns the tokens that its decision still holds, in whatever order several
// decisions are refunded.
func TestRefundInOrder(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 9}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9},
		algorithm.TokenBucket{Capacity: 9, Refill: algorithm.PerSecond(1)}, algorithm.TokenBucket{Capacity: 9, Refill: algorithm.PerSecond(3), AtOnce: true},
		algorithm.FixedWindow{Limit: 9, Window: time.Second}, algorithm.SlidingCounter{Limit: 9, Window: time.Second}, algorithm.SlidingLog{Limit: 9, Window: time.Second},
	} {
		r := rand.New(rand.NewPCG(1, 7))
		for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {0, 5, 4, 3, 2, 1}, r.Perm(6), r.Perm(6), r.Perm(6), r.Perm(6), r.Perm(6)} {
			t.Run(fmt.Sprintf("%+v, %v", a, order), func(t *testing.T) {
				t.Parallel()
				b, costs := newBench(t, a), []int64{1, 2, 1, 1, 2, 1}
				b.take(epoch, 1)
				var charges []charge
				for _, n := range costs {
					c, _ := b.charge(epoch, n, 0)
					charges = append(charges, c)
				}
				left := int64(0)
				for _, i := range order {
					left += costs[i]
					gave := b.refund(epoch, charges[i])
					if got := b.peek(epoch, 1).Remaining; !gave || got != left {
						t.Errorf("decision %d: refunded %v, and %d are left, want %d", i, gave, got, left)
					}
				}
			})
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

// A decision that was made after a refund can be refunded too, except for the tokens that
// have been refilled.
func TestRefundAfterRefund(t *testing.T) {
	t.Parallel()
	const s = 1_000_000
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5},
		algorithm.GCRA{Rate: algorithm.Rate{Count: 2, Period: 2*time.Second + 2}, Burst: 5},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 4},
	} {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, a)
			b.take(epoch, 1)
			first, _ := b.charge(epoch+s/2, 1, time.Minute)
			if !b.refund(epoch+s/2, first) {
				t.Fatal("the first was not refunded")
			}
			second, _ := b.charge(epoch+s/2, 1, time.Minute)
			if !b.refund(epoch+3*s/2, second) {
				t.Error("half of the second was not refunded")
			}
			if got := b.peek(epoch+3*s/2, 1); got.ResetAfter > 2*us {
				t.Errorf("full after %v", got.ResetAfter)
			}
		})
	}
}

// A refund returns at most the consumed tokens. A new caller does not get the turn of a
// caller who waits, nor an earlier turn.
func TestRefundKeepsTurns(t *testing.T) {
	t.Parallel()
	type taken struct {
		charge charge
		turn   int64 // when its Delay ends; 0 if it has none
	}
	for i, tt := range reserving {
		t.Run(fmt.Sprintf("%+v", tt.limit), func(t *testing.T) {
			t.Parallel()
			_, leaky := tt.limit.(algorithm.LeakyBucket)
			r := rand.New(rand.NewPCG(uint64(i), 6))
			b := newBench(t, tt.limit)
			given, refused, now := 0, 0, int64(epoch)
			together := false // two requests can have the same turn
			if tokens, ok := tt.limit.(algorithm.TokenBucket); ok {
				together = tokens.AtOnce
			}
			var list []taken
			for range 3000 {
				now += r.Int64N(2 * tt.one)
				if len(list) > 3 && r.IntN(3) == 0 {
					n := len(list) - 1 - r.IntN(3)
					before := b.peek(now, 1)
					if b.refund(now, list[n].charge) {
						given++
					} else {
						refused++
					}
					after := b.peek(now, 1)
					if after.Remaining < before.Remaining || after.Remaining > before.Remaining+1 && !leaky || after.ResetAfter > before.ResetAfter {
						t.Fatalf("a refund makes of %+v: %+v", before, after)
					}
					list = append(list[:n], list[n+1:]...)
					continue
				}
				c, v := b.charge(now, 1, time.Duration(8*tt.one)*us)
				if !v.Allowed {
					continue
				}
				turn := now + v.Delay.Microseconds()
				for _, other := range list {
					if other.turn > turn || other.turn == turn && !together {
						t.Fatalf("a turn at %d, when another has it at %d", turn-epoch, other.turn-epoch)
					}
				}
				if v.Delay == 0 {
					turn = 0
				}
				list = append(list, taken{c, turn})
			}
			if given < 50 || refused < 50 {
				t.Errorf("only %d refunds gave anything, and %d did not", given, refused)
			}
		})
	}
}

// A refund never leaves more tokens than if the refunded request had not been made, for
// any history of requests, reservations, forced requests, refunds, refunds of a part, and
// resets. The only exception is the period of a TokenBucket, which the request can have
// started.
func TestRefundNeverFuller(t *testing.T) {
	t.Parallel()
	for i, tt := range []struct {
		limit algorithm.Algorithm
		unit  int64 // about the time in which a full limit is used up, in µs
		ahead int64 // how far the limit may be ahead, in µs
	}{
		{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, 5_000_000, 0},
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}, 1_700_000, 0},
		{algorithm.GCRA{Rate: algorithm.PerSecond(7_000_000), Burst: 30}, 4, 0},
		{algorithm.GCRA{Rate: algorithm.Every(1<<51 + 1), Burst: 3}, 3 << 41, 10}, // a debt of one token is deep
		{algorithm.LeakyBucket{Rate: algorithm.Every(1<<51 + 1), Queue: 2}, 3 << 41, 10},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}, 1_700_000, 0},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 9}, 1_000_000, 0},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)}, 1_700_000, 1_000_000},
		{algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)}, 5_000_000, 1_000_000},
		{algorithm.TokenBucket{Capacity: 8, Refill: algorithm.PerSecond(3), AtOnce: true}, 3_000_000, 1_000_000},
		{algorithm.FixedWindow{Limit: 6, Window: time.Second, Aligned: true}, 1_000_000, 0},
		{algorithm.SlidingCounter{Limit: 6, Window: time.Second}, 1_000_000, 0},
		{algorithm.SlidingLog{Limit: 4, Window: time.Second}, 1_000_000, 0},
		{algorithm.SlidingLog{Limit: 8, Window: time.Second}, 1_000_000, 0},
		{spans(200*time.Millisecond, algorithm.Span{Window: time.Second, Limit: 8}, algorithm.Span{Window: 200 * time.Millisecond, Limit: 4}), 1_000_000, 0},
	} {
		t.Run(fmt.Sprintf("%+v", tt.limit), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(i), 8))
			gave := 0
			for range 150 {
				gave += neverFuller(t, r, tt.limit, tt.unit, tt.ahead)
			}
			if gave < 50 {
				t.Errorf("only %d refunds gave anything", gave)
			}
		})
	}
}

// neverFuller runs one random history, and returns the number of refunds that refunded
// anything.
func neverFuller(t *testing.T, r *rand.Rand, a algorithm.Algorithm, unit, ahead int64) (gave int) {
	type event struct {
		now, n, wait int64
		mark         charge
		force        bool
		reset        bool
	}
	b, now := newBench(t, a), int64(epoch)
	refund := func(e *event) bool {
		n := e.mark.nums.N[1]
		if n > 1 && r.IntN(2) == 0 {
			n = 1 + r.Int64N(n-1)
		}
		if n == 0 || !b.part(now, &e.mark, n) {
			return false
		}
		e.n -= n
		return true
	}
	var events []event
	for range 6 + r.IntN(25) {
		switch r.IntN(5) {
		case 0:
			now += r.Int64N(unit + 1)
		case 1, 2:
			now += r.Int64N(unit/8 + 1)
		}
		switch {
		case r.IntN(20) == 0:
			b.do(script.Reset, now, compose.Call{Cost: 1})
			events = append(events, event{now: now, reset: true})
		case len(events) > 0 && r.IntN(3) == 0:
			e := &events[r.IntN(len(events))]
			if e.mark.held && e.mark.expires > now && e.n > 0 && refund(e) {
				gave++
			}
		case r.IntN(6) == 0:
			n, mark := b.force(now, 1+r.Int64N(6))
			events = append(events, event{now: now, n: n, mark: mark, force: true})
		default:
			b.gen++
			call := compose.Call{Cost: 1 + r.Int64N(3), Gen: b.gen}
			if reserves(b.limit) && r.IntN(2) == 0 {
				call.Wait = r.Int64N(2*unit + 1)
			}
			v := script.Consume
			if r.IntN(3) == 0 {
				v, call.Wait = script.UpTo, 0
			}
			mark := &b.state.keys[len(b.state.keys)-1]
			if *mark = (value{}); r.IntN(2) == 0 {
				v++ // with a marker
			}
			n, _ := b.do(v, now, call)
			if n > 0 && v <= script.ConsumeMark {
				n = call.Cost
			}
			events = append(events, event{now: now, n: n, wait: call.Wait, mark: *mark})
		}
		without := &bench{t: t, state: newState(epoch, len(b.state.keys)), limit: b.limit, program: b.program}
		for _, e := range events {
			switch {
			case e.reset:
				without.do(script.Reset, e.now, compose.Call{Cost: 1})
			case e.n == 0:
			case e.force:
				without.force(e.now, e.n)
			default:
				n, _ := without.do(script.Consume, e.now, compose.Call{Cost: e.n, Wait: e.wait})
				if n == 0 && ahead > 0 {
					return gave // the limit may be ahead
				}
				if n == 0 {
					t.Fatalf("%+v at %d passed only because of a refund: %+v", e, now-epoch, events)
				}
			}
		}
		for _, at := range []int64{now, now + unit/3, now + unit, now + 2*unit} {
			got, want := b.peek(at, 1), without.peek(at+ahead, 1)
			if got.Remaining > want.Remaining || got.ResetAfter < want.ResetAfter {
				t.Fatalf("at %d: with refunds %+v, and without the refunded requests %+v: %+v", at-epoch, got, want, events)
			}
		}
	}
	return gave
}

// If the key was deleted and written again after the decision, a refund refunds nothing.
func TestRefundAfterReset(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4}, algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(1)},
		algorithm.FixedWindow{Limit: 5, Window: time.Second, Aligned: true}, algorithm.SlidingCounter{Limit: 5, Window: time.Second},
		algorithm.SlidingLog{Limit: 5, Window: time.Second}, algorithm.SlidingLog{Limit: 9, Window: time.Second}, spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5}),
	} {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			for _, again := range []string{"nothing", "without an ID", "with an ID"} {
				b := newBench(t, a)
				was, _ := b.charge(epoch, 2, 0)
				b.do(script.Reset, epoch, compose.Call{Cost: 1})
				switch again {
				case "without an ID":
					b.take(epoch, 3)
				case "with an ID":
					b.charge(epoch, 3, 0)
				}
				before := b.peek(epoch, 1)
				if b.refund(epoch, was) || b.peek(epoch, 1) != before {
					t.Errorf("consumed again %s: it was refunded", again)
				}
			}
		})
	}
}
