package algorithm_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
)

func TestSlidingLog(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingLog{Limit: 3, Window: 10 * time.Second})
	const s = 1_000_000
	for i, step := range []struct {
		at, cost int64
		want     verdict
	}{
		{0, 1, verdict{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: 10 * time.Second}},
		{4 * s, 2, verdict{Allowed: true, Limit: 3, ResetAfter: 10 * time.Second}},
		{5 * s, 1, verdict{Limit: 3, RetryAfter: 5 * time.Second, ResetAfter: 9 * time.Second}},
		{5 * s, 2, verdict{Limit: 3, RetryAfter: 9 * time.Second, ResetAfter: 9 * time.Second}},
		{5 * s, 4, verdict{Limit: 3, RetryAfter: never, ResetAfter: 9 * time.Second}},
		{10*s - 1, 1, verdict{Limit: 3, RetryAfter: us, ResetAfter: 4*time.Second + us}},
		{10 * s, 1, verdict{Allowed: true, Limit: 3, ResetAfter: 10 * time.Second}},               // consumed exactly a Window ago
		{2 * s, 1, verdict{Limit: 3, RetryAfter: 12 * time.Second, ResetAfter: 18 * time.Second}}, // the clock stepped back
		{14 * s, 2, verdict{Allowed: true, Limit: 3, ResetAfter: 10 * time.Second}},
		{24 * s, 3, verdict{Allowed: true, Limit: 3, ResetAfter: 10 * time.Second}},
	} {
		if got := b.take(epoch+step.at, step.cost); got != step.want {
			t.Errorf("step %d, cost %d at %d µs:\ngot  %+v\nwant %+v", i, step.cost, step.at, got, step.want)
		}
	}
}

// A plainLog is a model of a SlidingLog: a list of tokens.
type plainLog struct {
	limit, window int64
	tokens        []struct{ at, id int64 }
}

// live returns the tokens in the window, and the time of a new token.
func (l *plainLog) live(now int64) (live []struct{ at, id int64 }, at int64) {
	if at = now; len(l.tokens) > 0 {
		at = max(at, l.tokens[len(l.tokens)-1].at)
	}
	for _, token := range l.tokens {
		if token.at > at-l.window {
			live = append(live, token)
		}
	}
	return live, at
}

// force consumes cost tokens past the limit.
func (l *plainLog) force(now, cost, id int64) {
	var at int64
	l.tokens, at = l.live(now)
	for range cost {
		l.tokens = append(l.tokens, struct{ at, id int64 }{at, id})
	}
}

func (l *plainLog) take(now, cost, id int64) verdict {
	live, at := l.live(now)
	v := verdict{Limit: l.limit, Allowed: int64(len(live))+cost <= l.limit}
	switch {
	case cost > l.limit:
		v.RetryAfter = never
	case !v.Allowed:
		v.RetryAfter = time.Duration(live[int64(len(live))-1-(l.limit-cost)].at+l.window-now) * us
	case id >= 0:
		for range cost {
			live = append(live, struct{ at, id int64 }{at, id})
		}
		l.tokens = live
	}
	v.Remaining = max(l.limit-int64(len(live)), 0)
	if n := len(live); n > 0 {
		v.ResetAfter = time.Duration(live[n-1].at+l.window-now) * us
	}
	return v
}

// A SlidingLog gives the answers of the model, also in debt. A refund removes the last tokens of
// its decision and no others, whatever was reset or consumed after the decision.
func TestSlidingLogModel(t *testing.T) {
	t.Parallel()
	for i := range int64(10) {
		limit, debt := []int64{1, 3, 5, 6, 20}[i%5], i >= 5
		r := rand.New(rand.NewPCG(4, uint64(i)))
		b := newBench(t, algorithm.SlidingLog{Limit: limit, Window: 1000 * us})
		b.state.keep = true
		model := &plainLog{limit: limit, window: 1000}
		marks := map[int64]charge{}
		now, id, seen, most := int64(epoch), int64(0), int64(0), 0
		for step := range 6000 {
			if r.IntN(3) > 0 {
				now += r.Int64N(max(2, 1500/limit))
			} else if r.IntN(20) == 0 {
				now -= r.Int64N(2000)
			}
			cost := 1 + r.Int64N(min(limit+1, 4))
			// If the newest token were removed and the clock stepped back, expired tokens could count again.
			if n := len(model.tokens); n == 0 || model.tokens[n-1].at < seen {
				now = max(now, seen)
			}
			seen = max(seen, now)
			switch op := r.IntN(12); {
			case op == 0 && r.IntN(8) == 0:
				b.do(compose.Reset, now, compose.Call{Cost: 1})
				model.tokens = nil
			case op == 0 && debt:
				id++
				cost = 1 + r.Int64N(12)
				n, mark := b.force(now, cost)
				if n != cost {
					t.Fatalf("limit %d, step %d: a force of %d consumed %d", limit, step, cost, n)
				}
				model.force(now, cost, id)
				marks[id] = mark
			case op < 4:
				id++
				mark, got := b.charge(now, cost, 0)
				if want := model.take(now, cost, id); got != want {
					t.Fatalf("limit %d, step %d, cost %d at %d:\ngot  %+v\nwant %+v", limit, step, cost, now-epoch, got, want)
				}
				if got.Allowed {
					marks[id] = mark
				}
			case op < 7 && id > 0:
				which := max(1, id-r.Int64N(6))
				mark, ok := marks[which]
				if !ok {
					continue
				}
				part := 1 + r.Int64N(mark.nums.N[1])
				n, left := len(model.tokens), part
				for j := n - 1; j >= 0 && left > 0; j-- {
					if token := model.tokens[j]; token.id == which && token.at > seen-model.window {
						model.tokens = slices.Delete(model.tokens, j, j+1)
						left--
					}
				}
				if got := b.part(now, &mark, part); got != (len(model.tokens) < n) {
					t.Fatalf("limit %d, step %d: the refund of %d tokens of decision %d says %v", limit, step, part, which, got)
				}
				if marks[which] = mark; mark.nums.N[1] == 0 {
					delete(marks, which)
				}
			case op < 9:
				if got, want := b.peek(now, cost), model.take(now, cost, -1); got != want {
					t.Fatalf("limit %d, step %d, peek of %d at %d:\ngot  %+v\nwant %+v", limit, step, cost, now-epoch, got, want)
				}
			default:
				got, want := b.take(now, cost), model.take(now, cost, 0)
				if got != want {
					t.Fatalf("limit %d, step %d, cost %d at %d:\ngot  %+v\nwant %+v", limit, step, cost, now-epoch, got, want)
				}
				b.checkExact(now, cost, 0, got)
				b.checkPossible(got)
			}
			more := 15
			if limit <= 5 && !debt {
				more = 3
			}
			if most = max(most, len(model.tokens), int(limit)); len(model.tokens) == 0 {
				most = int(limit)
			}
			if n := len(b.state.keys[0].set); n > most+more {
				t.Fatalf("limit %d, step %d: the key holds %d entries, want at most %d more than %d", limit, step, n, more, most)
			}
		}
	}
}

// While a limit stays in debt, its expired entries are removed.
func TestSlidingLogDebtTrims(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{3, 30} {
		b := newBench(t, algorithm.SlidingLog{Limit: limit, Window: time.Second})
		for i := range int64(1000) {
			b.force(epoch+i*10_000, 1)
			if n := len(b.state.keys[0].set); n > 100+16 {
				t.Fatalf("limit %d: after %d requests, the key holds %d entries, of which at most 100 are in the window", limit, i+1, n)
			}
		}
	}
}

// A refund does not remove the entries that another decision wrote in the same microsecond,
// after a reset.
func TestSlidingLogRefundAfterReset(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{true, false} {
		b := newBench(t, algorithm.SlidingLog{Limit: 5, Window: time.Second})
		mark, _ := b.charge(epoch, 2, 0)
		b.do(compose.Reset, epoch, compose.Call{Cost: 1})
		if marked {
			b.charge(epoch, 2, 0)
		} else {
			b.take(epoch, 2)
		}
		if b.refund(epoch, mark) {
			t.Errorf("marked %v: a refund after a reset gave something", marked)
		}
		if got := b.peek(epoch, 1); got.Remaining != 3 {
			t.Errorf("marked %v: after the refund %+v, want 3 left", marked, got)
		}
	}
}

// If NUMBER cannot count another request, entries get a time that is one microsecond later.
func TestSlidingLogNumber(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingLog{Limit: 3, Window: time.Second})
	b.state.keys[0] = value{held: true, expires: 1 << 60, set: []store.Member{{Score: epoch, Text: "l2 1767225600000000 99999000"}}}
	b.take(epoch, 1)
	b.take(epoch, 1)
	for i, want := range []string{"l2 1767225600000000 99999000", "l2 1767225600000001 00000001", "l2 1767225600000001 00000002"} {
		if got := b.state.keys[0].set[i].Text; got != want {
			t.Errorf("entry %d is %q, want %q", i, got, want)
		}
	}
	if got := b.take(epoch, 1); got.RetryAfter != time.Second {
		t.Errorf("got %+v, want a wait of 1s", got)
	}
}

// TakeUpTo consumes at most MaxLogCost tokens. The limiter rejects a larger cost.
func TestSlidingLogCost(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingLog{Limit: 5000, Window: time.Second})
	if b.limit.MaxCost != algorithm.MaxLogCost || b.limit.Capacity != 5000 {
		t.Errorf("got %+v, want a MaxCost of 1000", b.limit)
	}
	if n, _ := b.do(compose.UpTo, epoch, compose.Call{Cost: 1 << 50}); n != algorithm.MaxLogCost {
		t.Errorf("UpTo consumed %d, want 1000", n)
	}
	if l := mustLimit(t, algorithm.SlidingLog{Limit: 1000, Window: time.Second}); l.MaxCost != 0 {
		t.Errorf("got a MaxCost of %d for a limit of 1000, want none", l.MaxCost)
	}
}

// A forced request can consume Limit and MaxDebt at once. All its tokens can be refunded.
func TestSlidingLogForceAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingLog{Limit: algorithm.MaxLogCost, Window: time.Second})
	n, mark := b.force(epoch, algorithm.MaxTokens)
	if n != 2*algorithm.MaxLogCost {
		t.Fatalf("consumed %d, want 2000", n)
	}
	if gave, left := b.part(epoch, &mark, n), len(b.state.keys[0].set); !gave || left != 0 {
		t.Errorf("refunded %v: %d entries are left", gave, left)
	}
}

// A text that no decision writes is foreign, at every position that a decision reads.
func TestSlidingLogForeign(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "l2", "l2 ", "l1 1767225600000000 00000001", "l2 1767225600000000", "l2 1767225600000000 ", "l2 x 00000001", "l2 -1 00000001", "l2 1e3 00000001",
		"l2 4503599627370496 00000001", "l2 99999999999999999999999999 00000001", "l2 1767225600000000 100000000", "l2 1767225600000000 0000000x",
		"l2 1767225600000000 00000001 x", "l2 1767225600000000 00000001 1 2",
	} {
		for _, v := range []compose.Verb{compose.Consume, compose.ConsumeMark, compose.Peek, compose.UpTo, compose.Reset, compose.Refund} {
			b := newBench(t, algorithm.SlidingLog{Limit: 3, Window: time.Second})
			b.state.keys[0] = value{held: true, expires: 1 << 60, set: []store.Member{{Score: epoch, Text: text}}}
			args := b.program.AppendArgs(nil, v, &compose.Call{Cost: 1, Gen: 1})
			if _, err := b.program.Script(v).GoForm()(b.state, args, nil); !errors.Is(err, store.ErrForeign) || b.state.writes > 0 {
				t.Errorf("%s over %q: error %v, %d writes, want ErrForeign and none", b.program.Script(v).Name(), text, err, b.state.writes)
			}
		}
	}
}
