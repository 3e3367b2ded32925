package algorithm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// nums returns the value with this text.
func nums(t testing.TB, text string) store.Nums {
	t.Helper()
	n, ok := store.ParseNums(text)
	if !ok {
		t.Fatalf("%q is no value", text)
	}
	return n
}

// holding returns a bench whose key holds n and does not expire.
func holding(t testing.TB, a algorithm.Algorithm, n store.Nums) *bench {
	t.Helper()
	b := newBench(t, a)
	b.state.keys[0] = value{held: true, nums: n, expires: 1 << 62}
	return b
}

// If a key holds a value of another algorithm, every verb returns an error. The request
// is not allowed, and the value is not overwritten.
func TestForeignKey(t *testing.T) {
	t.Parallel()
	gcra, third := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1}
	window, counter := algorithm.FixedWindow{Limit: 1, Window: time.Second}, algorithm.SlidingCounter{Limit: 1, Window: time.Second}
	bucket, queue := algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}
	for _, tt := range []struct {
		limit algorithm.Algorithm
		texts []string
	}{
		{gcra, []string{"f2 5 1", "g1 5", "g3 5", "g2", "g2 5 1", "g2 5 1 3 4", "g2 5 1 3 4 5", "g2 5 1 3 4 5 6 7", "q2 5", "i2 5"}},
		{third, []string{"f2 5 1", "g1 5 0 3", "g2", "g2 5 1", "g2 5 1 3 4", "g2 5 1 3 4 5", "g2 5 1 3 4 5 6 7"}},
		{window, []string{"g2 5", "f1 5 1", "f2", "f2 5", "f2 5 1 2 3", "f2 5 1 2 3 4 5 6 7"}},
		{counter, []string{"f2 5 1", "s1 5 1 1", "s2 5", "s2 5 1", "s2 5 1 1 2 3"}},
		{bucket, []string{"f2 5 1", "t1 5 1", "t2 5", "t2 5 1 2", "t2 5 1 2 3", "t2 5 1 2 3 4", "t2 5 1 2 3 4 5 6"}},
		{queue, []string{"g2 5", "q1 5", "q2", "q2 5 1", "q2 5 1 3 4"}},
		{buckets(1), []string{"f2 5 1", "b1 5 1", "b2 5", "b2 5 1 2 3"}},
	} {
		for _, text := range tt.texts {
			t.Run(fmt.Sprintf("%T, %s", tt.limit, text), func(t *testing.T) {
				t.Parallel()
				b := holding(t, tt.limit, nums(t, text))
				for _, v := range b.program.Verbs() {
					reply, err := b.program.Script(v).Run(b.state, []string{"the key", "marker"}, b.program.AppendArgs(nil, v, &compose.Call{Cost: 1, Gen: 1}), nil)
					if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"the key"`) || reply != nil {
						t.Errorf("%s replied %v, %v, want ErrForeign that names the key", b.program.Script(v).Name(), reply, err)
					}
				}
				if b.state.writes != 0 {
					t.Errorf("%d writes, want none", b.state.writes)
				}
			})
		}
	}
}

// A set is foreign to an algorithm that stores integers. Integers are foreign to an
// algorithm that stores a set.
func TestForeignKind(t *testing.T) {
	t.Parallel()
	set := value{held: true, set: []store.Member{{Score: 5, Text: "x"}}, expires: 1 << 62}
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, algorithm.FixedWindow{Limit: 1, Window: time.Second}, buckets(1),
		algorithm.SlidingLog{Limit: 1, Window: time.Second}, algorithm.MetadataWindow{Limit: 1, Window: time.Second}, algorithm.Concurrency{Limit: 1, Lease: time.Second},
	} {
		t.Run(fmt.Sprintf("%T", a), func(t *testing.T) {
			t.Parallel()
			for _, holds := range []value{set, {held: true, nums: nums(t, "z9 5 1"), expires: 1 << 62}} {
				b := newBench(t, a)
				b.state.keys[0] = holds
				for _, v := range b.program.Verbs() {
					call := compose.Call{Cost: 1, Gen: 1, Text: "a"}
					if _, err := b.program.Script(v).GoForm()(b.state, b.program.AppendArgs(nil, v, &call), nil); !errors.Is(err, store.ErrForeign) {
						t.Errorf("%s: %v, want ErrForeign", b.program.Script(v).Name(), err)
					}
				}
				if b.state.writes != 0 {
					t.Errorf("%d writes, want none", b.state.writes)
				}
			}
		})
	}
}

// A marker with another layout is foreign. Nothing is refunded.
func TestForeignMarker(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5})
	was, _ := b.charge(epoch, 1, 0)
	held := b.state.keys[0]
	for _, text := range []string{"i2", "i2 1 1 1 1 1", "i2 1 1 1 1 1 1 1", "i1 1 1 1 1 1767225601000000 0 0 0", "g2 5"} {
		b.state.keys[1] = value{held: true, nums: nums(t, text), expires: was.expires}
		_, err := b.program.Script(script.Refund).Run(b.state, []string{"key", "the marker"}, b.program.AppendArgs(nil, script.Refund, &compose.Call{}), nil)
		if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"the marker"`) || b.state.keys[0].nums != held.nums {
			t.Errorf("%s: %v, and the key holds %v", text, err, b.state.keys[0].nums)
		}
	}
}

var hostileLimits = []algorithm.Algorithm{
	algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5},
	algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5},
	algorithm.GCRA{Rate: algorithm.PerSecond(3_000_000), Burst: 1},
	algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1},
	algorithm.GCRA{Rate: algorithm.Rate{Count: contract.MaxSpan / 1000, Period: 1}, Burst: 4503599627370991},
	algorithm.FixedWindow{Limit: 5, Window: time.Second},
	algorithm.FixedWindow{Limit: 5, Window: time.Second, Aligned: true},
	algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: maxSpan},
	algorithm.SlidingCounter{Limit: 5, Window: time.Second},
	algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: maxSpan / 4},
	algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3)},
	algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(3), AtOnce: true},
	algorithm.TokenBucket{Capacity: 1 << 52, Refill: algorithm.PerSecond(4_000_000_000)},
	algorithm.TokenBucket{Capacity: 1, Refill: algorithm.Every(maxSpan)},
	algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 4},
	algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)},
}

// If a value was edited by hand and still has the right layout, the script and the answer
// agree, and the next value is within its bounds and expires.
func FuzzHostileNums(f *testing.F) {
	for i := range hostileLimits {
		f.Add(i, int64(epoch), int64(epoch+1), int64(0), int64(0), int64(0), byte(0), int64(1))
		f.Add(i, int64(epoch), int64(epoch), int64(7), int64(2), int64(3), byte(1), int64(1)) // rem >= den
		f.Add(i, int64(epoch), int64(1<<53-1), int64(1<<53-1), int64(0), int64(1<<53-1), byte(2), int64(1))
		f.Add(i, int64(epoch), int64(0), int64(0), int64(0), int64(0), byte(1), int64(5))
		f.Add(i, int64(1<<52-1), int64(1<<53-1), int64(3), int64(3), int64(1<<51), byte(2), int64(2))
		f.Add(i, int64(1), int64(epoch), int64(1), int64(0), int64(1<<51+1), byte(2), int64(1<<53))
		f.Add(i, int64(1), int64(1<<53-1), int64(2), int64(0), int64(epoch), byte(1), int64(1))
	}
	f.Add(0, int64(epoch), int64(epoch+666666), int64(7), int64(3), int64(0), byte(1), int64(3)) // as far ahead as three tokens allow, without the parts
	f.Fuzz(func(t *testing.T, which int, now, x, y, z, tail int64, shape byte, cost int64) {
		const mask = 1<<53 - 1
		now, cost = max(1, now&(1<<52-1)), max(1, cost)
		a := hostileLimits[uint(which)%uint(len(hostileLimits))]
		k := mustLimit(t, a).Kind.(*contract.MeterKind)
		names, optional, _ := strings.Cut(k.Cell, " [")
		short := len(strings.Fields(names))
		cell := short + len(strings.Fields(optional))
		n := store.Nums{Tag: k.Tag, N: [store.MaxNums]int64{x & mask, y & mask, z & mask}}
		switch shape % 3 {
		case 0:
			n.Len = uint8(short)
		case 1:
			n.Len = uint8(cell)
		case 2:
			n.Len = uint8(cell + 1 + len(strings.Fields(k.Note)))
			for i := cell; i < int(n.Len); i++ {
				n.N[i] = (tail + int64(i-cell)*x) & mask
			}
		}
		clear(n.N[n.Len:])
		args := mustProgram(t, mustLimit(t, a)).AppendArgs(nil, script.Refund, &compose.Call{})
		fit := args[len(args)-1].Int()
		mark := store.Nums{Tag: store.Tag{'i', '2'}, Len: uint8(5 + cell), N: [store.MaxNums]int64{n.N[cell], y & mask, 1, cost & mask, fit, tail & mask, x & mask, z & mask}}
		if k.Note != "" {
			mark.N[mark.Len] = z & mask
			mark.Len++
		}
		mark.Len++ // END
		clear(mark.N[mark.Len-1:])
		for _, callers := range []int64{0, now} {
			for _, v := range []script.Verb{script.Consume, script.ConsumeMark, script.UpTo, script.Peek, script.Refund} {
				b := holding(t, a, n)
				b.state.keys[1] = value{held: true, nums: mark, expires: 1 << 62}
				_, got := b.do(v, now, compose.Call{Cost: cost, Wait: tail & mask * (cost % 2), Now: callers, Gen: 1})
				if v <= script.Peek {
					b.checkPossible(got)
				}
				b.integers()
			}
		}
	})
}
