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

// ints returns the values with these texts.
func ints(texts ...string) (list []value) {
	for _, text := range texts {
		n, ok := store.ParseNums(text)
		if !ok {
			panic(fmt.Sprintf("%q is no value", text))
		}
		list = append(list, value{held: true, nums: n, expires: 1 << 62})
	}
	return list
}

// set returns the value with these members, the oldest first.
func set(texts ...string) value {
	v := value{held: true, expires: 1 << 62}
	for i, text := range texts {
		v.set = append(v.set, store.Member{Score: epoch + int64(i), Text: text})
	}
	return v
}

// sets returns a value for each member.
func sets(texts ...string) (list []value) {
	for _, text := range texts {
		list = append(list, set(text))
	}
	return list
}

// If a key holds a value that no decision writes, every verb returns an error that names the
// key. The request is not allowed, and nothing is written.
func TestForeign(t *testing.T) {
	t.Parallel()
	log := sets("", "l3", "l3 ", "l2 1767225600000000 00000001", "l2 1767225600000000 0000001 1 1", "l3 1767225600000000 0000001 1", "l3 1767225600000000 0000001 1 ",
		"l3 x 0000001 1 1", "l3 -1 0000001 1 1", "l3 1e3 0000001 1 1", "l3 1767225600000000 0000001 1 1 1", "l3 1767225600000000 0000001 1 1 1 1", "l3 1767225600000000 0000001 1 1 1 1 x",
		"l3 1767225600000000 0000001 1 1 1 1 1 1", "l3 1767225600000000 0000001 1 1 1 1 1 ", "l3 4503599627370496 0000001 1 1", "l3 99999999999999999999999999 0000001 1 1",
		"l3 1767225600000000 8388608 1 1", "l3 1767225600000000 0000001 4503599627370496 1", "l3 1767225600000000 0000001 1 1 0 0 8388608")
	for _, v := range log { // the text is then the oldest entry
		log = append(log, set(v.set[0].Text, "l3 1767225600000001 0000002 1 1"))
	}
	for _, tt := range []struct {
		limit  algorithm.Algorithm
		values []value
	}{
		{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, ints("f2 5 1", "g1 5", "g3 5", "g2", "g2 5 1", "g2 5 1 3 4", "g2 5 1 3 4 5", "g2 5 1 3 4 5 6 7", "q2 5", "i2 5")},
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1}, ints("g1 5 0 3", "g2", "g2 5 1", "g2 5 1 3 4", "g2 5 1 3 4 5", "g2 5 1 3 4 5 6 7")},
		{algorithm.FixedWindow{Limit: 1, Window: time.Second}, ints("g2 5", "f1 5 1", "f2", "f2 5", "f2 5 1 2 3", "f2 5 1 2 3 4 5 6 7")},
		{algorithm.Calendar{Limit: 1, Every: algorithm.Day}, ints("f2 5 1", "y2 5 1", "y1 5", "y1 5 1 2 3")},
		{algorithm.SlidingCounter{Limit: 1, Window: time.Second}, ints("f2 5 1", "s1 5 1 1", "s2 5", "s2 5 1", "s2 5 1 1 2 3")},
		{algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}, ints("t1 5 1", "t2 5", "t2 5 1 2", "t2 5 1 2 3", "t2 5 1 2 3 4", "t2 5 1 2 3 4 5 6")},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}, ints("g2 5", "q1 5", "q2", "q2 5 1", "q2 5 1 3 4")},
		{buckets(1), ints("f2 5 1", "b1 5 1", "b2 5", "b2 5 1 2 3")},
		{algorithm.SlidingLog{Limit: 1, Window: time.Second}, log},
		{algorithm.MetadataWindow{Limit: 1, Window: time.Second}, sets("", "m2", "m2 1 1", "m1 1 1 x", "m2 x 1 y", "m2 1 x y", "m2 -1 1 x", "m2 9007199254740992 1 x", "m2 1 99999999999999999999999999 x")},
		{algorithm.Concurrency{Limit: 1, Lease: time.Second}, sets("c1 a", "c2", "", "l3 1767225600000000 0000001 0 1")},
		{algorithm.Pause{}, sets("p2 a", "p1", "")},
	} {
		t.Run(fmt.Sprintf("%T", tt.limit), func(t *testing.T) {
			t.Parallel()
			for _, holds := range append(tt.values, append(ints("z9 5 1"), set("x"))...) {
				b := newBench(t, tt.limit)
				b.state.keys[0] = holds
				for _, v := range b.program.Verbs() {
					call := compose.Call{Cost: 1, Gen: 1, Text: "a"}
					reply, err := b.program.Script(v).Run(b.state, []string{"the key", "marker"}, b.program.AppendArgs(nil, v, &call), nil)
					if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"the key"`) || reply != nil || b.state.writes > 0 {
						t.Errorf("%s over %v %+v replied %v, %v, and wrote %d times: want ErrForeign that names the key", b.program.Script(v).Name(), holds.nums, holds.set, reply, err, b.state.writes)
					}
				}
			}
		})
	}
}

// A marker with another layout is foreign. Nothing is refunded.
func TestForeignMarker(t *testing.T) {
	t.Parallel()
	b := newBench(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5})
	b.charge(epoch, 1, 0)
	held := b.state.keys[0]
	for _, v := range ints("i2", "i2 1 1 1 1 1", "i2 1 1 1 1 1 1 1", "i1 1 1 1 1 1767225601000000 0 0 0", "g2 5") {
		b.state.keys[1] = v
		_, err := b.program.Script(script.Refund).Run(b.state, []string{"key", "the marker"}, b.program.AppendArgs(nil, script.Refund, &compose.Call{}), nil)
		if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"the marker"`) || b.state.keys[0].nums != held.nums {
			t.Errorf("%v: %v, and the key holds %v", v.nums, err, b.state.keys[0].nums)
		}
	}
}

var hostileLimits = []algorithm.Algorithm{
	algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5},
	algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5},
	algorithm.GCRA{Rate: algorithm.PerSecond(3_000_000), Burst: 1},
	algorithm.GCRA{Rate: algorithm.Rate{Count: 997_000_003, Period: 7 * time.Second}, Burst: 1},
	algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1},
	algorithm.GCRA{Rate: algorithm.Rate{Count: contract.MaxSpan / 1000, Period: 1}, Burst: 4503599627370991},
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
	spans(time.Second, algorithm.Span{Window: 3 * time.Second, Limit: 5}, algorithm.Span{Window: time.Second, Limit: 2}),
	spans(maxSpan/128, algorithm.Span{Window: maxSpan, Limit: algorithm.MaxTokens}),
	spans(time.Millisecond, algorithm.Span{Window: time.Millisecond, Limit: 1}),
	algorithm.Calendar{Limit: 5, Every: algorithm.Month, Zone: "Europe/Berlin", Carry: 4},
}

// If a value was edited by hand and still has the right layout, it is foreign, or the script
// and the answer agree, and the next value is within its bounds and expires.
func FuzzHostile(f *testing.F) {
	for i := range hostileLimits {
		f.Add(i, int64(epoch), int64(epoch+1), int64(0), int64(0), int64(0), byte(0), int64(1))
		f.Add(i, int64(epoch), int64(epoch), int64(7), int64(2), int64(3), byte(1), int64(1)) // rem >= den
		f.Add(i, int64(epoch), int64(1<<53-1), int64(1<<53-1), int64(0), int64(1<<53-1), byte(2), int64(1))
		f.Add(i, int64(epoch), int64(0), int64(0), int64(0), int64(0), byte(1), int64(5))
		f.Add(i, int64(1<<52-1), int64(1<<53-1), int64(3), int64(3), int64(1<<51), byte(2), int64(2))
		f.Add(i, int64(1), int64(epoch), int64(1), int64(0), int64(1<<51+1), byte(2), int64(1<<53))
		f.Add(i, int64(1), int64(1<<53-1), int64(2), int64(0), int64(epoch), byte(1), int64(1))
		f.Add(i, int64(1), int64(1<<52-1), int64(1), int64(0), int64(3), byte(1), int64(1<<53-1))
	}
	f.Add(0, int64(epoch), int64(epoch+666666), int64(7), int64(3), int64(0), byte(1), int64(3))                                                 // as far ahead as three tokens allow, without the parts
	f.Add(12, int64(1767225600000015), int64(9007199254740938), int64(9007199254741082), int64(98), int64(9007199254741058), byte(2), int64(51)) // a note above 2^53
	f.Add(14, int64(4503599627370505), int64(9007199254741024), int64(45), int64(3), int64(2251799813685134), byte(2), int64(32))                // rem above den
	f.Fuzz(func(t *testing.T, which int, now, x, y, z, tail int64, shape byte, cost int64) {
		const mask = 1<<53 - 1
		now, cost = max(1, now&(1<<52-1)), max(1, cost)
		x, y, z, tail = x&mask, y&mask, z&mask, tail&mask
		a := hostileLimits[uint(which)%uint(len(hostileLimits))]
		verbs := []script.Verb{script.Consume, script.ConsumeMark, script.UpTo, script.Peek, script.Refund}
		var fill func(b *bench)
		if k, ok := mustLimit(t, a).Kind.(*contract.MeterKind); ok {
			n, mark := hostileCell(mustProgram(t, mustLimit(t, a)), k, x, y, z, tail, shape, cost&mask)
			fill = func(b *bench) { b.state.keys[0], b.state.keys[1] = n, mark }
		} else {
			verbs = verbs[:4]
			fill = func(b *bench) {
				for i, n := range [][2]int64{{x, y}, {tail, mask - y}} {
					nums := store.Nums{Tag: store.Tag{'b', '2'}, Len: 2, N: [store.MaxNums]int64{n[0], n[1]}}
					b.state.keys[(z+int64(i)*int64(shape))%int64(b.program.Keys(0))] = value{held: true, nums: nums, expires: 1 << 62}
				}
			}
		}
		for _, callers := range []int64{0, now} {
			for _, v := range verbs {
				b, c := newBench(t, a), compose.Call{Cost: cost, Wait: tail * (cost % 2), Now: callers, Gen: 1}
				b.state.now = now
				fill(b)
				if _, err := b.program.Script(v).GoForm()(b.state, b.program.AppendArgs(nil, v, &c), nil); errors.Is(err, store.ErrForeign) && len(verbs) == 4 {
					continue
				}
				fill(b)
				_, got := b.do(v, now, c)
				if v <= script.Peek {
					b.checkPossible(got)
				}
				b.integers()
			}
		}
	})
}

// hostileCell returns a value with the layout of k, and a marker for it.
func hostileCell(p *compose.Program, k *contract.MeterKind, x, y, z, tail int64, shape byte, cost int64) (cell, mark value) {
	names, optional, _ := strings.Cut(k.Cell, " [")
	short := len(strings.Fields(names))
	size := short + len(strings.Fields(optional))
	n := store.Nums{Tag: k.Tag, Len: uint8(short), N: [store.MaxNums]int64{x, y, z}}
	switch shape % 3 {
	case 1:
		n.Len = uint8(size)
	case 2:
		n.Len = uint8(size + 1 + len(strings.Fields(k.Note)))
		for i := size; i < int(n.Len); i++ {
			n.N[i] = (tail + int64(i-size)*x) & (1<<53 - 1)
		}
	}
	clear(n.N[n.Len:])
	args := p.AppendArgs(nil, script.Refund, &compose.Call{})
	m := store.Nums{Tag: store.Tag{'i', '2'}, Len: uint8(5 + size), N: [store.MaxNums]int64{n.N[size], y, 1, cost, args[len(args)-1].Int(), tail, x, z}}
	if k.Note != "" {
		m.N[m.Len] = z
		m.Len++
	}
	m.Len++ // END
	clear(m.N[m.Len-1:])
	return value{held: true, nums: n, expires: 1 << 62}, value{held: true, nums: m, expires: 1 << 62}
}
