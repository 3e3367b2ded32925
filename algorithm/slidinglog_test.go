package algorithm_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

func TestSlidingLog(t *testing.T) {
	t.Parallel()
	const s, k = 1_000_000, 25_000
	for _, unit := range []int64{1, k, algorithm.MaxLogTokens / 3} {
		limit := 3 * unit
		b := newBench(t, algorithm.SlidingLog{Limit: limit, Window: 10 * time.Second})
		for i, step := range []struct {
			at, cost int64
			want     verdict
		}{
			{0, unit, verdict{Allowed: true, Limit: limit, Remaining: 2 * unit, ResetAfter: 10 * time.Second}},
			{4 * s, 2 * unit, verdict{Allowed: true, Limit: limit, ResetAfter: 10 * time.Second}},
			{5 * s, unit, verdict{Limit: limit, RetryAfter: 5 * time.Second, ResetAfter: 9 * time.Second}},
			{5 * s, unit + 1, verdict{Limit: limit, RetryAfter: 9 * time.Second, ResetAfter: 9 * time.Second}},
			{5 * s, 3*unit + 1, verdict{Limit: limit, RetryAfter: never, ResetAfter: 9 * time.Second}},
			{10*s - 1, 1, verdict{Limit: limit, RetryAfter: us, ResetAfter: 4*time.Second + us}},
			{10 * s, unit, verdict{Allowed: true, Limit: limit, ResetAfter: 10 * time.Second}},               // consumed exactly a Window ago
			{2 * s, unit, verdict{Limit: limit, RetryAfter: 12 * time.Second, ResetAfter: 18 * time.Second}}, // the clock stepped back
			{14 * s, 2 * unit, verdict{Allowed: true, Limit: limit, ResetAfter: 10 * time.Second}},
			{24 * s, 3 * unit, verdict{Allowed: true, Limit: limit, ResetAfter: 10 * time.Second}},
		} {
			if got := b.take(epoch+step.at, step.cost); got != step.want {
				t.Errorf("limit %d, step %d, cost %d at %d µs:\ngot  %+v\nwant %+v", limit, i, step.cost, step.at, got, step.want)
			}
		}
	}
}

// A plainLog is a model of a SlidingLog: a list of decisions.
type plainLog struct {
	limit, window int64
	decisions     []plainDecision
}

type plainDecision struct{ at, cost, id int64 }

// at returns the time that decides: a log never goes back before its newest decision.
func (l *plainLog) at(now int64) int64 {
	for _, d := range l.decisions {
		now = max(now, d.at)
	}
	return now
}

// used returns the sum of the tokens in the window.
func (l *plainLog) used(at int64) (sum int64) {
	for _, d := range l.decisions {
		if d.at > at-l.window {
			sum += d.cost
		}
	}
	return sum
}

// force consumes cost tokens past the limit.
func (l *plainLog) force(now, cost, id int64) {
	l.decisions = append(l.decisions, plainDecision{l.at(now), cost, id})
}

// refund refunds the last n tokens of a decision, if they are in the window.
func (l *plainLog) refund(now, n, id int64) (gave bool) {
	for i := range l.decisions {
		if d := &l.decisions[i]; d.id == id && d.at > l.at(now)-l.window && d.cost >= n {
			d.cost -= n
			gave = true
		}
	}
	return gave
}

func (l *plainLog) take(now, cost, id int64) verdict {
	at := l.at(now)
	used := l.used(at)
	v := verdict{Limit: l.limit, Allowed: used+cost <= l.limit}
	switch {
	case cost > l.limit:
		v.RetryAfter = never
	case !v.Allowed:
		left := used
		for _, d := range l.decisions {
			if d.at <= at-l.window {
				continue
			}
			if left -= d.cost; left+cost <= l.limit {
				v.RetryAfter = time.Duration(d.at+l.window-now) * us
				break
			}
		}
	case id >= 0:
		l.force(now, cost, id)
		used += cost
	}
	v.Remaining = max(l.limit-used, 0)
	for _, d := range l.decisions {
		if used > 0 && d.cost > 0 && d.at > at-l.window {
			v.ResetAfter = time.Duration(d.at+l.window-now) * us
		}
	}
	return v
}

// tidy removes what no longer matters. The newest decision stays, because its time
// counts.
func (l *plainLog) tidy() {
	for n := len(l.decisions); n > 200 && l.decisions[0].at <= l.decisions[n-1].at-2*l.window; n-- {
		l.decisions = l.decisions[1:]
	}
}

// logHistories are limits, with the largest costs of random requests.
var logHistories = []struct{ limit, cost, decisions int64 }{
	{1, 2, 1}, {3, 4, 3}, {5, 4, 5}, {6, 4, 6}, {20, 4, 20}, {20, 21, 4},
	{100_000, 100_001, 3}, {100_000, 20_000, 10}, {100_000, 3_000, 70}, {1 << 40, 1 << 36, 40},
	{algorithm.MaxLogTokens, algorithm.MaxLogTokens, 3}, {algorithm.MaxLogTokens / 2, algorithm.MaxLogTokens / 40, 30},
}

// A SlidingLog gives the answers of the model for costs of all sizes, even in debt and
// when BEFORE and NUMBER start again at 0. A refund returns the last tokens of its
// decision and no others, whatever was reset, refunded or consumed after the decision.
func TestSlidingLogModel(t *testing.T) {
	t.Parallel()
	for i, tt := range logHistories {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d/%d", i, seed), func(t *testing.T) {
				t.Parallel()
				logHistory(t, tt.limit, tt.cost, tt.decisions, rand.New(rand.NewPCG(seed, uint64(i))), seed%2 == 1, seed%4 >= 2)
			})
		}
	}
}

// afterWrap returns a time at which the next entry of a SlidingLog is stored. If the next
// NUMBER is 0, that is later than the newest entry.
func (b *bench) afterWrap() int64 {
	if n := len(b.state.keys[0].set); n > 0 && strings.Contains(b.state.keys[0].set[n-1].Text, " 8388607 ") {
		return b.state.keys[0].set[n-1].Score + 1
	}
	return 0
}

// logHistory compares a random history with the model. decisions is about how many
// decisions fit into the window. If late is true, BEFORE and NUMBER are near the highest
// at first.
func logHistory(t *testing.T, limit, most, decisions int64, r *rand.Rand, debt, late bool) {
	const window = 1000
	b := newBench(t, algorithm.SlidingLog{Limit: limit, Window: window * us})
	b.state.keep = true
	model := &plainLog{limit: limit, window: window}
	marks := map[int64]charge{}
	now, id, seen := int64(epoch), int64(0), int64(0)
	if late {
		text := fmt.Sprintf("l3 %d %d %d 1", int64(epoch), 1<<23-5-r.IntN(40), int64(algorithm.MaxLogTokens)-r.Int64N(min(3*most, 1<<50)))
		b.state.keys[0] = value{held: true, expires: 1 << 60, set: []store.Member{{Score: epoch, Text: text}}}
		model.force(now, 1, 0)
	}
	for step := range 4000 {
		if r.IntN(3) > 0 {
			now += r.Int64N(max(2, 2*window/decisions))
		} else if r.IntN(20) == 0 {
			now -= r.Int64N(2 * window)
		}
		before := len(b.state.keys[0].set)
		cost := 1 + r.Int64N(most)
		if r.IntN(3) == 0 {
			cost = 1 + r.Int64N(min(most, 3))
		}
		// If the newest entry were removed and the clock stepped back, expired tokens
		// could count again.
		if n := len(b.state.keys[0].set); n == 0 || b.state.keys[0].set[n-1].Score < seen {
			now = max(now, seen)
		}
		now = max(now, b.afterWrap())
		seen = max(seen, now)
		fail := func(what string, got, want any) {
			t.Helper()
			t.Fatalf("limit %d, step %d, %s of %d at %d:\ngot  %+v\nwant %+v\n%+v", limit, step, what, cost, now-epoch, got, want, b.state.keys[0].set)
		}
		switch op := r.IntN(14); {
		case op == 0 && r.IntN(8) == 0:
			b.do(script.Reset, now, compose.Call{Cost: 1})
			model.decisions = nil
		case op == 0 && debt:
			id++
			n, mark := b.force(now, cost)
			if want := min(cost, algorithm.MaxLogTokens-model.used(model.at(now))); n != want {
				fail("force", n, want)
			}
			if n > 0 {
				model.force(now, n, id)
				marks[id] = mark
			}
		case op < 5:
			id++
			mark, got := b.charge(now, cost, 0)
			if want := model.take(now, cost, id); got != want {
				fail("decision", got, want)
			}
			if got.Allowed {
				marks[id] = mark
			}
		case op < 9 && id > 0:
			which := max(1, id-r.Int64N(max(6, decisions)))
			mark, ok := marks[which]
			if !ok {
				continue
			}
			if cost = mark.nums.N[1]; r.IntN(2) == 0 {
				cost = 1 + r.Int64N(cost)
			}
			if got, want := b.part(now, &mark, cost), model.refund(now, cost, which); got != want {
				fail("refund", got, want)
			}
			if marks[which] = mark; mark.nums.N[1] == 0 {
				delete(marks, which)
			}
		case op < 11:
			if got, want := b.peek(now, cost), model.take(now, cost, -1); got != want {
				fail("peek", got, want)
			}
		case op == 11:
			n, _ := b.do(script.UpTo, now, compose.Call{Cost: cost})
			if want := max(min(cost, limit-model.used(model.at(now))), 0); n != want {
				fail("take up to", n, want)
			}
			if n > 0 {
				model.force(now, n, 0)
			}
		default:
			got, want := b.take(now, cost), model.take(now, cost, 0)
			if got != want {
				fail("take", got, want)
			}
			b.checkExact(now, cost, 0, got)
			b.checkPossible(got)
		}
		if seen = max(seen, b.afterWrap()); b.peek(seen, 1) != model.take(seen, 1, -1) {
			got, want := b.peek(seen, 1), model.take(seen, 1, -1)
			fail("then a peek", got, want)
		}
		live := 0
		for _, d := range model.decisions {
			if d.at > model.at(now)-window {
				live++
			}
		}
		if n := len(b.state.keys[0].set); n > max(live+1, before) {
			fail("number of entries", n, max(live+1, before))
		}
		model.tidy()
	}
}

// While a limit stays in debt, its expired entries are removed.
func TestSlidingLogDebtTrims(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{3, 30} {
		b := newBench(t, algorithm.SlidingLog{Limit: limit, Window: time.Second})
		for i := range int64(1000) {
			b.force(epoch+i*10_000, 1)
			if n := len(b.state.keys[0].set); n > 100+2 {
				t.Fatalf("limit %d: after %d requests, the key holds %d entries, of which at most 100 are in the window", limit, i+1, n)
			}
		}
	}
}

// A refund does not remove the entry that another decision wrote in the same microsecond,
// after a reset.
func TestSlidingLogRefundAfterReset(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{true, false} {
		b := newBench(t, algorithm.SlidingLog{Limit: 5, Window: time.Second})
		mark, _ := b.charge(epoch, 2, 0)
		b.do(script.Reset, epoch, compose.Call{Cost: 1})
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

// If NUMBER starts again at 0 within a microsecond, the entry gets a time that is one
// microsecond later. So the entries stay sorted.
func TestSlidingLogNumber(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingLog{Limit: 5, Window: time.Second})
	b.state.keys[0] = value{held: true, expires: 1 << 60, set: []store.Member{{Score: epoch, Text: "l3 1767225600000000 8388606 4503599627370492 1"}}}
	for range 4 {
		b.take(epoch, 1)
	}
	for i, want := range []string{
		"l3 1767225600000000 8388606 4503599627370492 1", "l3 1767225600000000 8388607 4503599627370493 1",
		"l3 1767225600000001 0000000 4503599627370494 1", "l3 1767225600000001 0000001 4503599627370495 1", "l3 1767225600000001 0000002 0 1",
	} {
		if got := b.state.keys[0].set[i].Text; got != want {
			t.Errorf("entry %d is %q, want %q", i, got, want)
		}
	}
	for cost, want := range map[int64]time.Duration{1: time.Second, 2: time.Second, 3: time.Second + us, 5: time.Second + us} {
		if got := b.peek(epoch, cost); got.RetryAfter != want {
			t.Errorf("cost %d: got %+v, want a wait of %v", cost, got, want)
		}
	}
}

// If MaxLog requests are in the window, the next one is denied until the oldest leaves.
func TestSlidingLogFull(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingLog{Limit: 10_000_000, Window: time.Second})
	set := []store.Member{{Score: epoch, Text: "l3 1767225600000000 0000002 0 1"}, {Score: epoch + 7, Text: "l3 1767225600000007 1000000 999999 1"}}
	b.state.keys[0] = value{held: true, expires: 1 << 60, set: set}
	if got, want := b.take(epoch+8, 1), (verdict{Allowed: true, Limit: 10_000_000, Remaining: 8_999_999, ResetAfter: time.Second}); got != want {
		t.Errorf("with 999,999 entries: got %+v, want %+v", got, want)
	}
	if got, want := b.peek(epoch+8, 1), (verdict{Limit: 10_000_000, RetryAfter: time.Second - 8*us, ResetAfter: time.Second}); got != want {
		t.Errorf("with 1,000,000 entries: got %+v, want %+v", got, want)
	}
	if got := b.peek(epoch+1_000_000-1, 1); got.Allowed || got.RetryAfter != us {
		t.Errorf("a microsecond before the oldest leaves: got %+v", got)
	}
	if n, _ := b.force(epoch+8, 20_000_000); n != 20_000_000 {
		t.Errorf("force consumed %d", n)
	}
}

// A forced request can consume Limit and MaxDebt at once, and all its tokens can be
// refunded.
func TestSlidingLogForceAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingLog{Limit: 1000, Window: time.Second})
	n, mark := b.force(epoch, algorithm.MaxTokens)
	if n != algorithm.MaxLogTokens {
		t.Fatalf("consumed %d, want %d", n, int64(algorithm.MaxLogTokens))
	}
	if gave, left := b.part(epoch, &mark, n), len(b.state.keys[0].set); !gave || left != 0 {
		t.Errorf("refunded %v: %d entries are left", gave, left)
	}
}

// If decisions are refunded before the next decision, the key keeps no entries of them.
func TestSlidingLogRefundsOfNewest(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.SlidingLog{Limit: 5, Window: time.Second})
	first, _ := b.charge(epoch, 1, 0)
	b.take(epoch, 1)
	b.refund(epoch, first)
	for range 100 {
		mark, _ := b.charge(epoch, 3, 0)
		b.part(epoch, &mark, 2)
		b.refund(epoch, mark)
	}
	if n, got := len(b.state.keys[0].set), b.peek(epoch, 5); n != 2 || got.Remaining != 4 || got.RetryAfter != time.Second {
		t.Errorf("the key has %d entries, and the answer is %+v", n, got)
	}
}

// A counting counts the members that a form reads.
type counting struct {
	*state
	reads int
}

func (c *counting) At(i int, fromEnd int64) (store.Member, bool, error) {
	c.reads++
	return c.state.At(i, fromEnd)
}

// An allowed request reads two of n entries. A denied request, and every request after
// refunds, read at most about 2 log2(n).
func TestSlidingLogReads(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{100, 10_000, 100_000} {
		b := newBench(t, algorithm.SlidingLog{Limit: 100 * n, Window: time.Hour})
		set := make([]store.Member, n)
		for i := range set {
			set[i] = store.Member{Score: epoch + int64(i), Text: fmt.Sprintf("l3 %016d %07d %d 100", epoch+int64(i), i+1, 100*i)}
		}
		logs := 0
		for 1<<logs < n {
			logs++
		}
		b.state.keys[0] = value{held: true, expires: 1 << 60, set: set}
		tx := &counting{state: b.state}
		peek := func(cost int64) int {
			t.Helper()
			tx.reads = 0
			b.state.now = epoch + n
			reply, err := b.program.Script(script.Peek).GoForm()(tx, b.program.AppendArgs(nil, script.Peek, &compose.Call{Cost: cost}), nil)
			if err != nil {
				t.Fatal(err)
			}
			o, err := b.program.Parse(script.Peek, reply, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := b.program.Result(0, script.Peek, &o, &compose.Call{Cost: cost})
			// Each entry costs 100, and all tokens are consumed at first.
			if want := time.Hour + time.Duration((cost+99)/100-1-n)*us; a.RetryAfter != want {
				t.Fatalf("%d entries, cost %d: a wait of %v, want %v", n, cost, a.RetryAfter, want)
			}
			return tx.reads
		}
		most := 0
		for cost := int64(1); cost <= 100*n; cost += 1 + cost/7 {
			most = max(most, peek(cost))
		}
		if peek(100) > 2 || most > 2*logs+2 {
			t.Errorf("%d entries: a denied request reads %d entries, and %d if it needs one: want at most %d, and 2", n, most, peek(100), 2*logs+2)
		}
	}
}

// A text that no decision writes is foreign, at every position that a decision reads.
func TestSlidingLogForeign(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "l3", "l3 ", "l2 1767225600000000 00000001", "l2 1767225600000000 0000001 1 1", "l3 1767225600000000 0000001 1", "l3 1767225600000000 0000001 1 ",
		"l3 x 0000001 1 1", "l3 -1 0000001 1 1", "l3 1e3 0000001 1 1", "l3 1767225600000000 0000001 1 1 1", "l3 1767225600000000 0000001 1 1 1 1", "l3 1767225600000000 0000001 1 1 1 1 x",
		"l3 1767225600000000 0000001 1 1 1 1 1 1", "l3 1767225600000000 0000001 1 1 1 1 1 ", "l3 4503599627370496 0000001 1 1", "l3 99999999999999999999999999 0000001 1 1",
		"l3 1767225600000000 8388608 1 1", "l3 1767225600000000 0000001 4503599627370496 1", "l3 1767225600000000 0000001 1 1 0 0 8388608",
	} {
		for _, behind := range []bool{false, true} {
			for _, v := range []script.Verb{script.Consume, script.ConsumeMark, script.Peek, script.UpTo, script.Reset, script.Refund} {
				b := newBench(t, algorithm.SlidingLog{Limit: 3, Window: time.Second})
				set := []store.Member{{Score: epoch, Text: text}}
				if behind { // the text is then the oldest entry
					set = append(set, store.Member{Score: epoch + 1, Text: "l3 1767225600000001 0000002 1 1"})
				}
				b.state.keys[0] = value{held: true, expires: 1 << 60, set: set}
				args := b.program.AppendArgs(nil, v, &compose.Call{Cost: 1, Gen: 1})
				if _, err := b.program.Script(v).GoForm()(b.state, args, nil); !errors.Is(err, store.ErrForeign) || b.state.writes > 0 {
					t.Errorf("%s over %q: error %v, %d writes, want ErrForeign and none", b.program.Script(v).Name(), text, err, b.state.writes)
				}
			}
		}
	}
}
