package algorithm_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// A counterModel is a model of SlidingCounter with unbounded integers.
type counterModel struct {
	limit, window, step  int64
	start, count, before int64
}

// at moves the model to the window of now.
func (m *counterModel) at(now int64) {
	for m.count+m.before > 0 && now >= m.start+m.window {
		m.start, m.count, m.before = m.start+m.window, 0, m.count
	}
	if m.count+m.before == 0 {
		m.start = now - now%m.window
	}
}

// room returns the tokens left. The estimate is count plus the fraction of before that is
// less than a window old, rounded up.
func (m *counterModel) room(now int64) int64 {
	m.at(now)
	steps := (m.window + m.step - 1) / m.step
	part := new(big.Int).Mul(big.NewInt(m.before), big.NewInt(steps-max(now-m.start, 0)/m.step))
	weight := ceil(new(big.Rat).SetFrac(part, big.NewInt(steps)))
	return new(big.Int).Sub(big.NewInt(m.limit-m.count), weight).Int64()
}

// A SlidingCounter gives the answers of the model, even in debt, and after refunds of a
// part.
func TestSlidingCounterModel(t *testing.T) {
	t.Parallel()
	for i, a := range []algorithm.SlidingCounter{
		{Limit: 9, Window: time.Second}, {Limit: 9, Window: 7 * us}, {Limit: 1, Window: time.Hour}, {Limit: algorithm.MaxCounter, Window: time.Hour},
	} {
		window := a.Window.Microseconds()
		m := &counterModel{limit: a.Limit, window: window, step: (window + 1<<20 - 1) >> 20}
		r := rand.New(rand.NewPCG(9, uint64(i)))
		b, now := newBench(t, a), int64(epoch)
		var made []charge
		for step := range 4000 {
			if r.IntN(2) == 0 {
				now += r.Int64N(window/4 + 2)
			} else if r.IntN(100) == 0 {
				now += 3 * window
			}
			cost := 1 + r.Int64N(a.Limit)
			room := m.room(now)
			switch op := r.IntN(8); {
			case op == 0:
				if r.IntN(10) == 0 {
					cost = algorithm.MaxTokens
				}
				want := max(min(cost, room+b.limit.MaxDebt), 0)
				n, mark := b.force(now, cost)
				if n != want {
					t.Fatalf("%+v, step %d: a force of %d consumed %d, want %d", a, step, cost, n, want)
				}
				if m.count += n; n > 0 {
					made = append(made, mark)
				}
			case op == 1 && len(made) > 0:
				j := r.IntN(len(made))
				part, start := 1+r.Int64N(made[j].nums.N[1]), made[j].nums.N[5]
				want := true
				switch {
				case !made[j].held || b.state.live(0) == nil || b.state.keys[0].nums.N[3] != made[j].nums.N[0]:
					want = false // the key was written again
				case start == m.start && m.count > 0:
					m.count = max(m.count-part, 0)
				case start == m.start-window && m.before > 0:
					m.before = max(m.before-part, 0)
				default:
					want = false
				}
				if got := b.part(now, &made[j], part); got != want {
					t.Fatalf("%+v, step %d: the refund of %d tokens says %v", a, step, part, got)
				}
				if made[j].nums.N[1] == 0 {
					made = append(made[:j], made[j+1:]...)
				}
			case op < 5:
				if got := b.peek(now, cost); got.Allowed != (room >= cost) || got.Remaining != max(room, 0) {
					t.Fatalf("%+v, step %d, peek of %d: got %+v, want room %d", a, step, cost, got, room)
				}
			default:
				mark, got := b.charge(now, cost, 0)
				if got.Allowed != (room >= cost) {
					t.Fatalf("%+v, step %d, cost %d: got %+v, want room %d", a, step, cost, got, room)
				}
				if got.Allowed {
					m.count += cost
					made = append(made, mark)
				}
				b.checkPossible(got)
				b.checkExact(now, cost, 0, got)
			}
			b.integers()
		}
	}
}

// On random traffic, below the limit and above it, a SlidingCounter differs little from
// the exact count. docs/reference/algorithms.md has these figures.
func TestSlidingCounterError(t *testing.T) {
	t.Parallel()
	const limit, window = 100, int64(10_000_000)
	requests := 200_000
	if testing.Short() {
		requests = 20_000
	}
	for _, load := range []float64{0.9, 1.5} {
		r := rand.New(rand.NewPCG(1, 2))
		b := newBench(t, algorithm.SlidingCounter{Limit: limit, Window: time.Duration(window) * us})
		var taken []int64 // the times of the tokens in the window that ends now
		sum, worst, denied := 0.0, 0, 0
		now := int64(epoch)
		for range requests {
			now += int64(r.ExpFloat64() * float64(window) / limit / load)
			for len(taken) > 0 && taken[0] <= now-window {
				taken = taken[1:]
			}
			v := b.take(now, 1)
			used := int(limit - v.Remaining)
			if v.Allowed {
				taken = append(taken, now)
			} else {
				denied++
			}
			sum += math.Abs(float64(used - len(taken)))
			worst = max(worst, len(taken))
		}
		mean := sum / float64(requests) / limit
		t.Logf("at %v of the limit: %.1f %% denied; the count is off by %.1f %% of the limit on average; at most %d of %d in a window",
			load, 100*float64(denied)/float64(requests), 100*mean, worst, limit)
		if mean > 0.1 || worst > limit*5/4 {
			t.Errorf("at %v of the limit: off by %v, and %d of %d in a window", load, mean, worst, limit)
		}
	}
}

// A refund returns tokens to the window in which they were consumed, while that window
// counts.
func TestSlidingCounterRefund(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	for _, tt := range []struct {
		name  string
		after int64
		gave  bool
		left  int64 // tokens left after the refund
	}{
		{"in its window", second - 1, true, 8},
		{"as the next window starts", second, true, 8},
		{"in the next window", second + second/2, true, 9},
		{"as the next window ends", 2*second - 1, true, 9},
		{"after the next window", 2 * second, false, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, algorithm.SlidingCounter{Limit: 10, Window: time.Second})
			b.take(epoch, 2)
			was, _ := b.charge(epoch, 3, 0)
			if gave := b.refund(epoch+tt.after, was); gave != tt.gave {
				t.Errorf("refunded: %v, want %v", gave, tt.gave)
			}
			if got := b.peek(epoch+tt.after, 1); got.Remaining != tt.left {
				t.Errorf("%d are left, want %d", got.Remaining, tt.left)
			}
		})
	}
}

// If the window of a decision no longer counts, a refund refunds nothing, even if the key
// was not written after the decision.
func TestSlidingCounterRefundTooLate(t *testing.T) {
	t.Parallel()
	const second = 1_000_000
	b := newBench(t, algorithm.SlidingCounter{Limit: 10, Window: time.Second})
	was, _ := b.charge(epoch, 3, 0)
	b.take(epoch+second, 1) // the key now holds two counts
	for _, tt := range []struct {
		after int64
		gave  bool
	}{{2 * second, false}, {3*second - 1, false}, {2*second - 1, true}} {
		if gave := b.refund(epoch+tt.after, was); gave != tt.gave {
			t.Errorf("after %d µs: refunded %v, want %v", tt.after, gave, tt.gave)
		}
	}
}

// A missing key has no state, even if the clock is less than one window after 1970.
func TestSlidingCounterEarly(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingCounter{Limit: 10, Window: time.Hour})
	if got, want := b.peek(1, 1), (verdict{Allowed: true, Limit: 10, Remaining: 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := b.take(1, 4); got.Remaining != 6 || got.ResetAfter != 2*time.Hour-us {
		t.Errorf("got %+v", got)
	}
}
