package algorithm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// A plainRing is a model of a SlidingBuckets. It keeps the counts of all buckets.
type plainRing struct {
	algorithm.SlidingBuckets
	counts map[int64]int64
	gens   map[int64]int64
}

func (m *plainRing) top(now int64) int64 {
	top := now - now%m.Width.Microseconds()
	for at := range m.counts {
		top = max(top, at)
	}
	return top
}

func (m *plainRing) consume(top, n int64) {
	if _, held := m.counts[top]; !held {
		delete(m.gens, top)
	}
	m.counts[top] += n
}

// room returns the fewest tokens left of all spans, and the longest wait.
func (m *plainRing) room(now, cost int64) (room int64, wait time.Duration) {
	width, top := m.Width.Microseconds(), m.top(now)
	room = math.MaxInt64
	for _, s := range m.Spans {
		sum, late := int64(0), int64(0)
		for at := top; at > top-s.Window.Microseconds(); at -= width {
			if sum += m.counts[at]; sum > s.Limit-cost && late == 0 {
				late = at + s.Window.Microseconds()
			}
		}
		if room = min(room, s.Limit-sum); cost > s.Limit {
			wait = never
		}
		wait = max(wait, time.Duration(max(late-now, 0))*us)
	}
	return room, wait
}

// A SlidingBuckets gives the answers of the model, even in debt. A refund lowers the
// count of its bucket, unless the bucket was reset after the decision.
func TestSlidingBucketsModel(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for i, a := range []algorithm.SlidingBuckets{
		spans(s, algorithm.Span{Window: 5 * s, Limit: 9}, algorithm.Span{Window: 2 * s, Limit: 5}),
		spans(s, algorithm.Span{Window: s, Limit: 4}),
		spans(s/10, algorithm.Span{Window: s, Limit: 5}, algorithm.Span{Window: 7 * s, Limit: 20}, algorithm.Span{Window: 3 * s, Limit: 12}),
	} {
		r := rand.New(rand.NewPCG(6, uint64(i)))
		b := newBench(t, a)
		b.state.keep = r.IntN(2) == 0
		model := &plainRing{SlidingBuckets: a, counts: map[int64]int64{}, gens: map[int64]int64{}}
		longest := int64(0)
		for _, s := range a.Spans {
			longest = max(longest, s.Window.Microseconds())
		}
		type decision struct {
			mark         charge
			bucket, n, g int64
		}
		var made []decision
		now := int64(epoch)
		for step := range 8000 {
			if r.IntN(2) == 0 {
				now += r.Int64N(1_500_000)
			} else if r.IntN(30) == 0 {
				now -= r.Int64N(8_000_000)
			}
			cost := 1 + r.Int64N(5)
			top := model.top(now)
			room, wait := model.room(now, cost)
			what := fmt.Sprintf("ring %d, step %d, cost %d at %d", i, step, cost, now-epoch)
			switch op := r.IntN(12); {
			case op == 0 && r.IntN(9) == 0:
				b.do(script.Reset, now, compose.Call{Cost: 1})
				clear(model.counts)
			case op == 0:
				if cost += r.Int64N(20); r.IntN(40) == 0 {
					cost = algorithm.MaxTokens
				}
				want := max(min(cost, room+b.limit.MaxDebt), 0)
				n, mark := b.force(now, cost)
				if n != want {
					t.Fatalf("%s: a force of %d consumed %d, want %d", what, cost, n, want)
				}
				if n > 0 {
					if model.consume(top, n); model.gens[top] == 0 {
						model.gens[top] = b.gen
					}
					made = append(made, decision{mark, top, n, model.gens[top]})
				}
			case op < 4:
				mark, got := b.charge(now, cost, 0)
				if got.Allowed != (room >= cost) || got.RetryAfter != wait {
					t.Fatalf("%s: got %+v, want room %d and a wait of %v", what, got, room, wait)
				}
				if got.Allowed {
					if model.consume(top, cost); model.gens[top] == 0 {
						model.gens[top] = b.gen
					}
					made = append(made, decision{mark, top, cost, model.gens[top]})
				}
			case op < 7 && len(made) > 0:
				j := max(0, len(made)-1-r.IntN(6))
				d := made[j]
				part := 1 + r.Int64N(d.n)
				if made[j].n -= part; part == d.n {
					made = append(made[:j], made[j+1:]...)
				}
				count, held := model.counts[d.bucket]
				want := held && count > 0 && model.gens[d.bucket] == d.g && d.bucket > top-longest
				if got := b.part(now, &d.mark, part); got != want {
					t.Fatalf("%s: the refund of %d in the bucket of %d says %v", what, part, d.bucket-epoch, got)
				}
				if part < d.n {
					made[j].mark = d.mark
				}
				if want {
					model.counts[d.bucket] = max(count-part, 0)
				}
			default:
				v := script.Consume
				if op < 9 {
					v = script.Peek
				}
				got := b.answer(v, now, cost)
				if got.Allowed != (room >= cost) || got.RetryAfter != wait {
					t.Fatalf("%s: got %+v, want room %d and a wait of %v", what, got, room, wait)
				}
				if got.Granted > 0 {
					room -= cost
					model.consume(top, cost)
				}
				if got.Allowed && got.Remaining != room {
					t.Fatalf("%s: got %+v, want %d left", what, got, room)
				}
				b.checkExact(now, cost, 0, verdict{Allowed: got.Allowed, RetryAfter: got.RetryAfter})
			}
		}
	}
}
