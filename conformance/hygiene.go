package conformance

import (
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

var hygieneRules = []rule{
	{"Prefix", "a decision writes the keys that are documented, and nothing else", hygienePrefix},
	{"Nothing", "Peek, cost 0 and a denial write nothing", hygieneNothing},
	{"TTL", "every key lives as long as its state matters, rounded up to the millisecond", hygieneTTL},
	{"ClockTTL", "on a caller's clock every key lives an hour longer", hygieneClockTTL},
}

// left returns the keys that the rule left in the store.
func (t *T) left() map[string]time.Duration {
	if t.backend.Keys == nil {
		t.skipf("backend gives no Keys")
	}
	return t.backend.Keys(t.test, t.store, t.id)
}

func hygienePrefix(t *T) {
	t.left()
	l := t.limiter(nil,
		weir.Rule{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 9, Window: time.Minute}},
		weir.Rule{Name: "ip", By: []int{0, 1}, Algorithm: tenPerMinute},
		weir.Rule{Name: "user", By: []int{0, 2}, Algorithm: tenPerMinute})
	t.allow(l, 1, "log{in}", "10.0.0.1", "a:b%")
	t.peek(l, 1, "log{in}", "10.0.0.1", "a:b%")
	if err := l.ResetRule(t.ctx, "ip", "log{in}", "10.0.0.1", "a:b%"); err != nil {
		t.errorf("ResetRule: %v", err)
	}
	want := map[string]bool{
		t.id + ":{log%7Bin%7D}:all":           true,
		t.id + ":{log%7Bin%7D}:user:a%3Ab%25": true,
	}
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
	l := t.limiter(nil, weir.Rule{Name: "a", Algorithm: tenPerMinute}, weir.Rule{Name: "b", Algorithm: algorithm.FixedWindow{Limit: 2, Window: time.Minute}},
		weir.Rule{Name: "c", Algorithm: quarters}, weir.Rule{Name: "d", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Minute}})
	t.peek(l, 1, "peek")
	t.allow(l, 0, "zero")
	t.allow(l, 3, "denied") // by b, a having room
	t.allow(l, 9, "never")
	if _, err := l.PeekMany(t.ctx, [][]string{{"many"}}); err != nil {
		t.errorf("PeekMany: %v", err)
	}
	t.entries(l, "entries")
	for key := range t.left() {
		t.errorf("%q was written", key)
	}
}

// ttls takes from limits of many kinds and checks each key's TTL against the
// time that its state matters.
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
		for _, cost := range []int64{1, 2, 7, 10} { // rewriting a key must renew its TTL
			if cost == 10 {
				time.Sleep(4 * time.Millisecond) // and a denial must not: it has run on
			}
			begin := time.Now()
			res := t.allow(l, cost, "k")
			if res.Allowed || c == nil {
				since = begin // on a virtual clock the TTL alone runs on
			}
			var got time.Duration
			found := false
			for key, ttl := range t.left() {
				if key += ":"; strings.Contains(key, ":"+name+":") { // of a ring, the key written last
					got, found = max(got, ttl), true
				}
			}
			slop := time.Since(since)
			want := res.ResetAfter + longer
			most := want + 2*time.Millisecond
			gone := !found && slop >= want // it took that long to look
			if !gone && (!found || got > most || got < want-slop-time.Millisecond) {
				t.errorf("%+v, cost %d: the key lives %v, %v after a decision whose state matters for %v", a, cost, got, slop, want)
			}
		}
		if err := l.Reset(t.ctx, "k"); err != nil {
			t.errorf("Reset: %v", err)
		}
	}
}

func hygieneTTL(t *T) { t.ttls(nil, 0) }

func hygieneClockTTL(t *T) { t.ttls(newClock(), time.Hour) }
