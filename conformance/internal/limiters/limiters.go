// Package limiters holds the checks of a limiter.
package limiters

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/histories"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// Checks are the checks of a limiter. Package weir tests what no store can break.
var Checks = []suite.Check{
	of("Histories", "decisions with IDs are allowed, repeated, settled, refunded and finished as documented: with units, leases and pauses, and while limits, rules and units change", checkHistories),
	of("Many", "DoMany decides each request independently, over any slots and for any values; an invalid request or a foreign value does not affect the others", checkMany),
	of("Prefix", "a decision writes the documented keys, each with a TTL, and nothing else", checkPrefix),
	of("Markers", "a decision with an ID writes one marker for each rule, with a TTL; a refund deletes them; a foreign marker is an ErrForeign that names it", checkMarkers),
	of("Wait", "callers that wait go one at a time, never early, and each calls the store once", checkWait),
	of("Refused", "a wait that cannot end before the deadline is denied at once, and consumes nothing", checkRefused),
	of("Cancel", "a wait that is cancelled is refunded", checkCancel),
	of("Lanes", "a limiter of With whose limit is lower by n denies a request exactly if fewer than n tokens would be left of the whole limit, which can then consume these n, even if another process has that limiter", checkLanes),
	alone(of("Writes", "a denied request, a Peek, a refund of nothing and a foreign value write nothing to the database, not even an empty row", checkWrites)),
}

// alone returns c, beside which no other check runs.
func alone(c suite.Check) suite.Check {
	c.Alone = true
	return c
}

// of returns a check that makes decisions.
func of(name, text string, run func(*decisions.T)) suite.Check {
	return suite.Of(name, text, run, decisions.New)
}

func checkHistories(t *decisions.T) {
	for h := range uint64(t.Times(64)) {
		if err := histories.Run(t.Ctx, t.Store, t.Prefix+strconv.FormatUint(h, 10), t.Seed+h, new(histories.Stats)); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// checkMany makes requests in batches, and the same requests one by one for other keys. The
// rules keep strings, sorted sets and lists. In a batch of peeks over strings alone, MGet can
// read them.
func checkMany(t *decisions.T) {
	c := decisions.NewClock()
	by := []string{"s0", "s1"}
	window := weir.Rule{Name: "window", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 40, Window: time.Minute}}
	thirds := weir.Rule{Name: "thirds", By: by, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}}
	ring := weir.Rule{Name: "ring", By: []string{"s0"}, Algorithm: ringOf(time.Minute, 40)}
	log := weir.Rule{Name: "log", By: by, Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}}
	list := weir.Rule{Name: "list", By: by, Algorithm: algorithm.MetadataWindow{Limit: 6, Window: time.Minute}}
	for i, rules := range [][]weir.Rule{{window, thirds}, {ring, log, list, thirds}} {
		l, last := t.Limiter(c, rules...), rules[len(rules)-1]
		// Half of the keys are for requests that are made in a batch.
		key := func(n int, batch bool) []string {
			return []string{fmt.Sprint("many", i, ".", n, batch), "user"}
		}
		const keys, foreign = 56, 9
		t.Put(t.KeyOf(key(foreign, true)[0], last.Name, last.Algorithm, key(foreign, true)[1]), 1)
		for _, op := range []weir.Op{weir.Consume, weir.TakeUpTo, weir.Peek} {
			c.Advance(10 * time.Millisecond)
			var requests, alone []weir.Request
			for n := range keys {
				r := weir.Request{Key: weir.KeyOf(key(n, true)...), Op: op, Cost: int64(1 + n%4)}
				if n%8 == 5 && op == weir.Consume {
					r.Cost = -1
				}
				requests = append(requests, r)
				r.Key = weir.KeyOf(key(n, false)...)
				alone = append(alone, r)
			}
			answers := l.DoMany(t.Ctx, requests)
			if len(answers) != keys {
				t.Fatalf("DoMany: %d answers to %d requests", len(answers), keys)
			}
			for n, got := range answers {
				var want weir.Answer
				if want.Result, want.Err = l.Decide(t.Ctx, alone[n], nil); n == foreign {
					want = weir.Answer{Err: store.ErrForeign}
				} else if want.Err != nil {
					want.Err = weir.ErrInvalidCost
				}
				if got.Result != want.Result || !errors.Is(got.Err, want.Err) {
					t.Errorf("DoMany: request %d, %+v: got %+v, want %+v", n, requests[n], got, want)
				}
			}
		}
	}
	if got := t.Limiter(c, window).DoMany(t.Ctx, nil); len(got) != 0 {
		t.Errorf("DoMany of no requests: %v", got)
	}
}

func checkPrefix(t *decisions.T) {
	t.Left()
	const year = 365 * 24 * time.Hour
	window, bucket := algorithm.FixedWindow{Limit: 9, Window: 2 * year}, algorithm.GCRA{Rate: algorithm.Rate{Count: 1, Period: 2 * year}, Burst: 5}
	l := t.Limiter(nil,
		weir.Rule{Name: "all", By: []string{"s0"}, Algorithm: window},
		weir.Rule{Name: "ip", By: []string{"s0", "s1"}, Algorithm: bucket},
		weir.Rule{Name: "user", By: []string{"s0", "s2"}, Algorithm: bucket})
	t.Allow(l, 1, "log{in}", "10.0.0.1", "a:b%")
	t.Peek(l, 1, "log{in}", "10.0.0.1", "a:b%")
	ip := suite.Must[*weir.Limiter](t.T, "Only")(l.Only("ip"))
	t.Reset(ip, "log{in}", "10.0.0.1", "a:b%")
	want := map[string]bool{
		t.Prefix + ":suite:{log%7Bin%7D}:all.f2":         true,
		t.Prefix + ":suite:{log%7Bin%7D}:user.g2:a:b%25": true,
	}
	// A limiter of one rule without a name.
	single := suite.Must[*weir.Limiter](t.T, "New")(weir.New("a b", t.Store, window, &weir.Options{Prefix: t.Prefix}))
	t.Allow(single, 1, "ann")
	want[t.Prefix+":a b:{ann}:f2"] = true
	got := t.Left()
	for key, ttl := range got {
		if !want[key] {
			t.Errorf("%q was written", key)
		}
		if ttl < year {
			t.Errorf("%q expires after %v (0 or less: never), want two years", key, ttl)
		}
	}
	if len(got) < len(want) {
		t.Errorf("got keys %v, want %v", got, want)
	}
}

// checkMarkers runs on the store's clock, with limits that refill no token during the check.
func checkMarkers(t *decisions.T) {
	rules := []weir.Rule{
		{Name: "all", By: []string{"s0"}, Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
		{Name: "user", By: []string{"s0", "s1"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(5), Burst: 5}},
		{Name: "calls", By: []string{"s0", "s1"}, Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Hour}, Cost: 1},
	}
	l, r := t.Limiter(nil, rules...), weir.Request{Key: weir.KeyOf("r", "u"), Cost: 2, ID: "x"}
	markers := t.MarkersOf(r, rules...)
	left := func() (n int) {
		for key, ttl := range t.KeysLike("r}") {
			if strings.Contains(key, ":%id=") {
				if n++; ttl <= 0 || ttl > 2*time.Hour {
					t.Errorf("the marker %q expires in %v", key, ttl)
				}
			}
		}
		return n
	}
	t.Do(l, r)
	for i, v := range t.MGet(markers...) {
		if !strings.HasPrefix(v.Str(), "i2 ") {
			t.Errorf("the marker %q holds %q", markers[i], v.Str())
		}
	}
	if n := left(); len(markers) != len(rules) || t.Lists() && n != len(rules) {
		t.Errorf("the keys of markers are %q, and %d are listed, want one for each of %d rules", markers, n, len(rules))
	}
	if got := t.Do(l, weir.Request{Key: r.Key, Op: weir.Refund, ID: r.ID}); !got.Allowed {
		t.Errorf("a Refund of a decision of just now: got %+v", got)
	}
	t.Holds(store.Value{}, markers, "a marker after its refund")
	t.Equal(left(), 0, "after the refund, %d markers are listed, want %d")
	t.Put(markers[1], 7)
	if got, err := l.Refund(t.Ctx, r); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), markers[1]) {
		t.Errorf("a foreign marker: got %v, %v, want an ErrForeign that names %q", got, err, markers[1])
	}
}
