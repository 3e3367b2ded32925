package conformance

import (
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var hygieneRules = []rule{
	{"Prefix", "a decision writes the keys that are documented, and nothing else", hygienePrefix},
	{"Nothing", "a peek and a denial write nothing", hygieneNothing},
	{"TTL", "every key lives as long as its state is in use, and at most 1.05 s longer", hygieneTTL},
	{"ClockTTL", "on a caller's clock every key lives one hour longer", hygieneClockTTL},
	{"Kept", "no decision of a history leaves a key that expires before its state is fully reset", hygieneKept},
}

// quantum is what the end of a key's life is rounded up to.
const quantum = (1 << 20) * time.Microsecond

// left returns the keys that the check left in the store.
func (t *T) left() map[string]time.Duration {
	if t.backend.Keys == nil {
		t.skipf("backend gives no Keys")
	}
	return t.backend.Keys(t.test, t.store, t.id)
}

// longest returns the longest TTL of the keys of the rule called name: of a ring of keys,
// that is the TTL of the key written last.
func (t *T) longest(name string) (ttl time.Duration, found bool) {
	for key, left := range t.left() {
		if strings.Contains(key, "}:"+name+".") && !strings.Contains(key, ":%id=") {
			ttl, found = max(ttl, left), true
		}
	}
	return ttl, found
}

func hygienePrefix(t *T) {
	t.left()
	l := t.limiter(nil,
		weir.Rule{Name: "all", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 9, Window: time.Minute}},
		weir.Rule{Name: "ip", By: []string{"s0", "s1"}, Algorithm: tenPerMinute},
		weir.Rule{Name: "user", By: []string{"s0", "s2"}, Algorithm: tenPerMinute})
	t.allow(l, 1, "log{in}", "10.0.0.1", "a:b%")
	t.peek(l, 1, "log{in}", "10.0.0.1", "a:b%")
	t.reset(t.only(l, "ip"), "log{in}", "10.0.0.1", "a:b%")
	want := map[string]bool{
		t.id + ":suite:{log%7Bin%7D}:all.f2":           true,
		t.id + ":suite:{log%7Bin%7D}:user.g2:a%3Ab%25": true,
	}
	// A limiter of one rule without a name.
	single, err := weir.New("a b", t.store, algorithm.FixedWindow{Limit: 9, Window: time.Minute}, &weir.Options{Prefix: t.id})
	if err != nil {
		t.fatalf("New: %v", err)
	}
	t.allow(single, 1, "ann")
	want[t.id+":a b:{ann}:f2"] = true
	got := t.left()
	for key, ttl := range got {
		if !want[key] {
			t.errorf("%q was written", key)
		}
		if ttl <= 0 {
			t.errorf("%q never expires", key)
		}
	}
	if len(got) < len(want) {
		t.errorf("got keys %v, want %v", got, want)
	}
}

func hygieneNothing(t *T) {
	t.left()
	window := weir.Rule{Name: "b", Algorithm: algorithm.FixedWindow{Limit: 2, Window: time.Minute}}
	l := t.limiter(nil, weir.Rule{Name: "a", Algorithm: tenPerMinute}, window,
		weir.Rule{Name: "c", Algorithm: quarters}, weir.Rule{Name: "d", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Minute}})
	t.peek(l, 1, "peek")
	t.peek(l, 3, "peek")
	t.allow(l, 3, "denied") // by b; a has room
	t.allow(l, 9, "never")
	for _, a := range l.DoMany(t.ctx, peeks([][]string{{"many"}, {"more"}})) {
		if a.Err != nil {
			t.errorf("DoMany: %v", a.Err)
		}
	}
	t.entries(l, "entries")
	marks := t.limiter(nil, weir.Rule{Name: "a", Algorithm: tenPerMinute}, window)
	t.do(marks, weir.Request{Key: weir.KeyOf("denied"), Cost: 3, ID: "x"})
	t.refundAs(marks, "x", false, "denied")
	for key := range t.left() {
		t.errorf("%q was written", key)
	}
}

// ttls consumes from limits of many kinds, and compares the TTL of each key with the time
// that its state is in use.
func (t *T) ttls(c *clock, longer time.Duration) {
	t.left()
	list := []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, // 2 s
		algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 100}, // thirds
		algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 2},
		algorithm.FixedWindow{Limit: 10, Window: 10 * time.Second},
		algorithm.FixedWindow{Limit: 10, Window: 24 * time.Hour, Aligned: true},
		algorithm.FixedWindow{Limit: 10, Window: 7_000_001 * time.Microsecond},
		algorithm.MetadataWindow{Limit: 10, Window: 10 * time.Second},
		algorithm.SlidingCounter{Limit: 10, Window: 10 * time.Second},
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(3)},
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.Rate{Count: 3, Period: 2_000_001 * time.Microsecond}, AtOnce: true},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(3), Queue: 9},
		algorithm.SlidingLog{Limit: 10, Window: 10 * time.Second},
		algorithm.SlidingLog{Limit: 10, Window: 24 * time.Hour},
		algorithm.SlidingBuckets{Width: 2_000_001 * time.Microsecond, Spans: []algorithm.Span{{Window: 8_000_004 * time.Microsecond, Limit: 10}}},
	}
	for i, a := range list {
		name := string(rune('a' + i))
		l := t.limiter(c, weir.Rule{Name: name, Algorithm: a})
		var since time.Time
		written := false
		for _, cost := range []int64{1, 2, 7, 10} { // each write must renew the TTL
			if cost == 10 {
				time.Sleep(4 * time.Millisecond) // and a denial must not
			}
			begin := time.Now()
			res := t.allow(l, cost, "k")
			if written = written || res.Allowed; !written {
				continue
			}
			if res.Allowed || c == nil {
				since = begin // on a virtual clock only the TTL runs down
			}
			got, found := t.longest(name)
			elapsed := time.Since(since)
			want := res.ResetAfter + longer
			gone := !found && elapsed >= want // to look took that long
			if !gone && (!found || got > want+quantum+2*time.Millisecond || got < want-elapsed-time.Millisecond) {
				t.errorf("%+v, cost %d: the key lives %v, %v after a decision whose state is in use for %v", a, cost, got, elapsed, want)
			}
		}
		t.reset(l, "k")
	}
}

func hygieneTTL(t *T) { t.ttls(nil, 0) }

func hygieneClockTTL(t *T) { t.ttls(newClock(), time.Hour) }

// hygieneKept runs histories on the store's clock, on which a decision can keep the TTL
// of a key that lives long enough.
func hygieneKept(t *T) {
	t.left()
	r := t.rand()
	for i, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(50), Burst: 300},
		algorithm.GCRA{Rate: algorithm.PerSecond(7), Burst: 60},
		algorithm.TokenBucket{Capacity: 300, Refill: algorithm.PerSecond(30)},
		algorithm.TokenBucket{Capacity: 60, Refill: algorithm.Rate{Count: 10, Period: 1_300_000 * time.Microsecond}, AtOnce: true},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(30), Queue: 300},
		algorithm.FixedWindow{Limit: 300, Window: 7 * time.Second},
		algorithm.FixedWindow{Limit: 300, Window: 24 * time.Hour, Aligned: true},
		algorithm.SlidingCounter{Limit: 300, Window: 9 * time.Second},
		algorithm.SlidingLog{Limit: 300, Window: 9 * time.Second},
		algorithm.SlidingBuckets{Width: 2 * time.Second, Spans: []algorithm.Span{{Window: 8 * time.Second, Limit: 300}}},
	} {
		name := "kept" + strconv.Itoa(i)
		l := t.limiter(nil, weir.Rule{Name: name, Algorithm: a})
		var ids []string
		for s := range t.times(40) {
			req := weir.Request{Key: weir.KeyOf("k"), Cost: 1 + r.Int64N(12)}
			if r.IntN(2) == 0 {
				req.ID = strconv.Itoa(s)
			}
			if _, queue := a.(algorithm.LeakyBucket); queue {
				req.MaxWait = weir.Never
			}
			begin := time.Now()
			res := t.do(l, req)
			if req.ID != "" && res.Allowed {
				ids = append(ids, req.ID)
			}
			if len(ids) > 0 && r.IntN(4) == 0 {
				if _, err := l.Refund(t.ctx, weir.Request{Key: req.Key, ID: ids[r.IntN(len(ids))]}); err != nil {
					t.fatalf("Refund: %v", err)
				}
				begin = time.Now()
				res = t.peek(l, 1, "k")
			}
			got, found := t.longest(name)
			elapsed := time.Since(begin)
			if short := res.ResetAfter - elapsed - time.Millisecond; short > 0 && (!found || got < short) {
				t.errorf("%+v, step %d: the key lives %v, %v after a decision whose state is in use for %v", a, s, got, elapsed, res.ResetAfter)
			}
		}
		t.reset(l, "k")
	}
}
