package algorithm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// afterWrap returns a time at which the next entry of a SlidingLog is stored. If the next
// NUMBER is 0, that is later than the newest entry.
func (b *bench) afterWrap() int64 {
	if n := len(b.state.keys[0].set); n > 0 && strings.Contains(b.state.keys[0].set[n-1].Text, " 8388607 ") {
		return b.state.keys[0].set[n-1].Score + 1
	}
	return 0
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
