package algorithm_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A key that holds someone else's value is an error, not a pass.
func TestForeignKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		limit algorithm.Algorithm
		holds store.Nums
	}{
		{"GCRA, a window", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, store.Nums{Tag: store.Tag{'f', '1'}, Len: 2}},
		{"GCRA, another layout", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, store.Nums{Tag: store.Tag{'g', '2'}, Len: 3}},
		{"GCRA, too short", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, store.Nums{Tag: store.Tag{'g', '1'}, Len: 2}},
		{"GCRA, too long", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, store.Nums{Tag: store.Tag{'g', '1'}, Len: 4}},
		{"GCRA, empty", algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, store.Nums{Tag: store.Tag{'g', '1'}}},
		{"FixedWindow, a TAT", algorithm.FixedWindow{Limit: 1, Window: time.Second}, store.Nums{Tag: store.Tag{'g', '1'}, Len: 3}},
		{"SlidingCounter, a window", algorithm.SlidingCounter{Limit: 1, Window: time.Second}, store.Nums{Tag: store.Tag{'f', '1'}, Len: 3}},
		{"SlidingCounter, too short", algorithm.SlidingCounter{Limit: 1, Window: time.Second}, store.Nums{Tag: store.Tag{'s', '1'}, Len: 2}},
		{"SlidingCounter, beyond count", algorithm.SlidingCounter{Limit: 1, Window: time.Second}, store.Nums{Tag: store.Tag{'s', '1'}, Len: 3, N: [4]int64{0, algorithm.MaxCounter + 1}}},
		{"SlidingCounter, beyond count before", algorithm.SlidingCounter{Limit: 1, Window: time.Second}, store.Nums{Tag: store.Tag{'s', '1'}, Len: 3, N: [4]int64{0, 0, algorithm.MaxCounter + 1}}},
		{"TokenBucket, a window", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}, store.Nums{Tag: store.Tag{'f', '1'}, Len: 2}},
		{"TokenBucket, too short", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1}},
		{"TokenBucket, too long", algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerSecond(1)}, store.Nums{Tag: store.Tag{'t', '1'}, Len: 3}},
		{"LeakyBucket, tokens", algorithm.LeakyBucket{Rate: algorithm.PerSecond(1)}, store.Nums{Tag: store.Tag{'t', '1'}, Len: 2}},
		{"LeakyBucket, too short", algorithm.LeakyBucket{Rate: algorithm.PerSecond(3)}, store.Nums{Tag: store.Tag{'g', '1'}, Len: 2}},
		{"FixedWindow, too long", algorithm.FixedWindow{Limit: 1, Window: time.Second}, store.Nums{Tag: store.Tag{'f', '1'}, Len: 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := mustLimit(t, tt.limit)
			p := mustCompose(t, l.Fragment())
			s := newState(epoch, 1)
			s.keys[0] = value{held: true, nums: tt.holds, expires: epoch + 1e9}
			args := l.AppendArgs(p.AppendNow(nil, 0), algorithm.Request{Cost: 1})
			for _, script := range []*store.Script{p.Decide, p.Peek, p.Reset} {
				reply, err := script.GoForm()(s, args, nil)
				if !errors.Is(err, store.ErrForeign) || reply != nil {
					t.Errorf("%s replied %v, %v, want ErrForeign", script.Name(), reply, err)
				}
			}
			if s.writes != 0 {
				t.Errorf("%d writes, want none", s.writes)
			}
		})
	}
}

var hostileLimits = []algorithm.Algorithm{
	algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5},
	algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5},
	algorithm.GCRA{Rate: algorithm.PerSecond(3_000_000), Burst: 1},
	algorithm.GCRA{Rate: algorithm.Every(maxSpan), Burst: 1},
	algorithm.GCRA{Rate: algorithm.Rate{Count: algorithm.MaxSpan / 1000, Period: 1}, Burst: algorithm.MaxTokens},
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
}

// A value of the right form that no limiter wrote, edited by hand, breaks nothing:
// the script and the verdict still agree, and what is allowed is written, in
// bounds and for a while.
func FuzzHostileNums(f *testing.F) {
	for i := range hostileLimits {
		f.Add(-1-i, int64(epoch), int64(epoch+1), int64(0), int64(0), int64(1))
		f.Add(i, int64(epoch), int64(epoch), int64(7), int64(2), int64(1)) // rem >= den
		f.Add(i, int64(epoch), int64(1<<53-1), int64(1<<53-1), int64(0), int64(1))
		f.Add(i, int64(epoch), int64(0), int64(0), int64(0), int64(5))
		f.Add(i, int64(1<<52-1), int64(1<<53-1), int64(3), int64(3), int64(2))
		f.Add(i, int64(1), int64(epoch), int64(1), int64(0), int64(1<<53))
		f.Add(i, int64(1), int64(1<<53-1), int64(2), int64(0), int64(1))
	}
	f.Add(0, int64(epoch), int64(epoch+666666), int64(7), int64(3), int64(3)) // as far ahead as three tokens allow, but for the parts
	f.Fuzz(func(t *testing.T, which int, now, a, b, c, cost int64) {
		l := mustLimit(t, hostileLimits[uint(which)%uint(len(hostileLimits))])
		now, cost = max(1, now&(1<<52-1)), max(0, cost)
		p := mustCompose(t, l.Fragment())
		n := store.Nums{Tag: store.Tag{'g', '1'}, Len: 3, N: [4]int64{a & (1<<53 - 1), b & (1<<53 - 1), c & (1<<53 - 1)}}
		if which < 0 {
			n.Len, n.N = 1, [4]int64{n.N[0]}
		}
		if l.Fragment().Name == "fixedwindow" {
			n.Tag, n.Len, n.N = store.Tag{'f', '1'}, 2, [4]int64{n.N[0], n.N[1]}
		}
		if l.Fragment().Name == "slidingcounter" { // larger counts are no limiter's
			n.Tag, n.N = store.Tag{'s', '1'}, [4]int64{n.N[0], n.N[1] % (algorithm.MaxCounter + 1), n.N[2] % (algorithm.MaxCounter + 1)}
			n.Len = 3
		}
		if l.Fragment().Name == "tokenbucket" {
			n.Tag, n.Len, n.N = store.Tag{'t', '1'}, 2, [4]int64{n.N[0], n.N[1]}
		}
		for _, at := range []int64{0, now} {
			s := newState(now, 1)
			s.keys[0] = value{held: true, nums: n, expires: 1 << 62}
			script := p.Decide
			if cost == 0 {
				script = p.Peek
			}
			ok, v := run(t, p, script, s, at, []algorithm.Limit{l}, []int64{cost})
			if ok != v[0].Allowed {
				t.Fatalf("%v at %d, cost %d: the script says %v and the verdict %+v", n, now, cost, ok, v[0])
			}
			if got := v[0]; got.Remaining < 0 || got.Remaining > got.Limit || got.RetryAfter < 0 || got.ResetAfter < 0 {
				t.Fatalf("%v at %d, cost %d: impossible %+v", n, now, cost, got)
			}
			if !ok || cost == 0 {
				continue
			}
			if s.ttl <= 0 || s.ttl%time.Millisecond != 0 {
				t.Fatalf("%v at %d, cost %d: written for %v, want a positive number of milliseconds", n, now, cost, s.ttl)
			}
			for _, x := range s.keys[0].nums.N {
				if x < 0 || x >= 1<<53 {
					t.Fatalf("%v at %d, cost %d: wrote %v, want integers below 2^53", n, now, cost, s.keys[0].nums)
				}
			}
		}
	})
}
