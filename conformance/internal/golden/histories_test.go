package golden

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// own is the Source of histories that were written for this module.
const own = "weir"

// Histories returns all histories.
func Histories() []History {
	algorithms := map[string]algorithm.Algorithm{
		"gcra":           algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 5},
		"gcra-thirds":    algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5},
		"tokenbucket":    algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerMinute(35)},
		"tokens-at-once": algorithm.TokenBucket{Capacity: 5, Refill: algorithm.Rate{Count: 4, Period: 7 * time.Second}, AtOnce: true},
		"leakybucket":    algorithm.LeakyBucket{Rate: algorithm.PerMinute(50), Queue: 4},
		"fixedwindow":    algorithm.FixedWindow{Limit: 5, Window: 2 * time.Second},
		"alignedwindow":  algorithm.FixedWindow{Limit: 5, Window: 2 * time.Second, Aligned: true},
		"calendar":       algorithm.Calendar{Limit: 5, Every: algorithm.Day, At: 15 * time.Second},
		"metadatawindow": algorithm.MetadataWindow{Limit: 5, Window: 2 * time.Second},
		"slidingcounter": algorithm.SlidingCounter{Limit: 5, Window: 2 * time.Second},
		"slidinglog":     algorithm.SlidingLog{Limit: 5, Window: 2 * time.Second},
		"slidingbuckets": algorithm.SlidingBuckets{Width: 500 * time.Millisecond, Spans: []algorithm.Span{
			{Window: time.Second, Limit: 4}, {Window: 2 * time.Second, Limit: 5},
		}},
	}
	var all []History
	for _, name := range slices.Sorted(maps.Keys(algorithms)) {
		all = append(all, verbs(name, algorithms[name]))
	}
	return append(append(all, leases(), pauses(), rules()), published()...)
}

// ask returns a request of ann.
func ask(after time.Duration, op weir.Op, cost int64, id string) Ask {
	return Ask{After: after, Request: weir.Request{Key: weir.KeyOf("ann"), Op: op, Cost: cost, ID: id}}
}

// verbs returns a history with every verb that the algorithm supports.
func verbs(name string, a algorithm.Algorithm) History {
	const ms = time.Millisecond
	h := History{Name: name, Source: own, Policy: weir.Policy{Name: "golden-" + name, Rules: []weir.Rule{{Name: name, Algorithm: a}}}}
	h.Asks = []Ask{
		ask(0, weir.Peek, 1, ""),
		ask(0, weir.Consume, 1, ""),
		ask(0, weir.Consume, 6, ""), // above the capacity
		ask(100*ms, weir.Consume, 2, ""),
		ask(200*ms, weir.TakeUpTo, 9, ""),
		ask(200*ms, weir.TakeUpTo, 9, ""), // nothing is left
		ask(300*ms, weir.Consume, 1, ""),
		ask(250*ms, weir.Peek, 1, ""), // the clock steps back
		ask(1900*ms, weir.Consume, 1, ""),
		ask(2100*ms, weir.Consume, 1, ""),
		ask(4000*ms, weir.Peek, 5, ""),
	}
	switch a.(type) {
	case algorithm.GCRA, algorithm.TokenBucket, algorithm.LeakyBucket:
		for i, cost := range []int64{3, 3, 4, 1} { // reserved ahead, until it would take too long
			r := ask(time.Duration(4000+100*i)*ms, weir.Consume, cost, "")
			r.Request.MaxWait = 3 * time.Second
			if _, bucket := a.(algorithm.LeakyBucket); bucket {
				r.Request.Cost = 1 + int64(i)
			}
			h.Asks = append(h.Asks, r)
		}
	case algorithm.MetadataWindow:
		for i := range h.Asks {
			if h.Asks[i].Request.Op != weir.Peek {
				h.Asks[i].Request.Metadata = "request " + strconv.Itoa(i)
			}
		}
		return end(h, 20*time.Second)
	}
	for _, r := range []Ask{
		ask(12000*ms, weir.Consume, 2, "first"),
		ask(12100*ms, weir.TakeUpTo, 9, "second"),
		ask(12200*ms, weir.Refund, 0, "first"),
		ask(12200*ms, weir.Refund, 0, "first"), // a decision is refunded once
		ask(12300*ms, weir.Refund, 0, "second"),
		ask(12400*ms, weir.Refund, 0, "unknown"),
		ask(12500*ms, weir.Consume, 1, "third"),
		ask(19000*ms, weir.Refund, 0, "third"), // too late
		ask(19100*ms, weir.Consume, 2, "fourth"),
		ask(19100*ms, weir.Consume, 2, "fourth"), // a repeat consumes nothing
		settle(19200*ms, "fourth", 1),
		settle(19200*ms, "fourth", 1), // a decision is settled once
		settle(19300*ms, "fourth", 7), // past the limit
		ask(19400*ms, weir.Force, 2, ""),
		ask(19400*ms, weir.Consume, 1, ""), // denied, because of the debt
		settle(19500*ms, "unknown", 1),
	} {
		if _, bucket := a.(algorithm.LeakyBucket); bucket && (r.Request.Op == weir.Consume || r.Request.Op == weir.TakeUpTo) {
			r.Request.Cost, r.Request.Op = 1, weir.Consume
		}
		h.Asks = append(h.Asks, r)
	}
	return end(h, 40*time.Second)
}

// settle returns a request of ann that makes actual the cost of the decision id.
func settle(after time.Duration, id string, actual int64) Ask {
	a := ask(after, weir.Settle, 0, id)
	a.Request.Actual = weir.ActualCost(actual)
	return a
}

// end adds a reset.
func end(h History, after time.Duration) History {
	h.Asks = append(h.Asks, ask(after, weir.Consume, 1, ""), ask(after, weir.Reset, 0, ""), ask(after, weir.Peek, 1, ""))
	return h
}

// leases returns a history of a concurrency limit.
func leases() History {
	const s = time.Second
	return History{
		Name: "concurrency", Source: own,
		Policy: weir.Policy{Name: "golden-concurrency", Rules: []weir.Rule{
			{Name: "concurrency", Algorithm: algorithm.Concurrency{Limit: 2, Lease: 10 * s}},
		}},
		Asks: []Ask{
			ask(0, weir.Peek, 1, ""),
			ask(0, weir.Consume, 1, "a"),
			ask(1*s, weir.Consume, 1, "a"), // the holder acquires its own lease again
			ask(2*s, weir.Consume, 1, "b"),
			ask(3*s, weir.Consume, 1, "c"), // denied
			ask(4*s, weir.Renew, 0, "a"),
			ask(4*s, weir.Renew, 0, "c"), // not held
			ask(13*s, weir.Consume, 1, "c"),
			ask(13*s, weir.Release, 0, "a"),
			ask(13*s, weir.Release, 0, "a"), // released before
			ask(14*s, weir.Peek, 1, ""),
			ask(40*s, weir.Consume, 1, "d"), // all have expired
			ask(41*s, weir.Reset, 0, ""),
			ask(41*s, weir.Peek, 1, ""),
		},
	}
}

// pauses returns a history of a key that is paused.
func pauses() History {
	const s = time.Second
	pause := func(after time.Duration, id string, d time.Duration) Ask {
		a := ask(after, weir.Pause, 0, id)
		a.Request.For = d
		return a
	}
	wait := func(after, most time.Duration) Ask {
		a := ask(after, weir.Consume, 1, "")
		a.Request.MaxWait = most
		return a
	}
	return History{
		Name: "pause", Source: own,
		Policy: weir.Policy{Name: "golden-pause", Rules: []weir.Rule{
			{Name: "pause", Algorithm: algorithm.Pause{}},
			{Name: "rate", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 4}},
		}},
		Asks: []Ask{
			ask(0, weir.Consume, 1, ""),
			ask(0, weir.Consume, 1, "first"),
			pause(1*s, "a", 10*s),
			pause(2*s, "b", 3*s), // a second, shorter one
			pause(2*s, "a", 1*s), // and the first again
			ask(2*s, weir.Consume, 1, ""),
			ask(2*s, weir.Peek, 9, ""),
			ask(2*s, weir.TakeUpTo, 3, ""),
			ask(2*s, weir.Consume, 1, "first"), // a repeat is denied too
			wait(2*s, 9*s-time.Microsecond),
			wait(2*s, 9*s),
			ask(3*s, weir.Refund, 0, "first"),
			ask(3*s, weir.Force, 2, ""),
			pause(9*s, "a", 5*s),           // extended by its owner
			ask(11*s, weir.Resume, 0, "b"), // a sleeper, which has its own end in mind
			ask(11*s, weir.Consume, 1, ""),
			ask(14*s-time.Microsecond, weir.Consume, 1, ""),
			ask(14*s, weir.Consume, 1, ""),
			ask(14*s, weir.Resume, 0, "a"), // it has ended
			pause(20*s, "a", 5*s),
			pause(20*s, "b", 9*s),
			ask(19*s, weir.Peek, 1, ""), // the clock steps back
			ask(21*s, weir.Resume, 0, "b"),
			ask(21*s, weir.Resume, 0, "b"),
			ask(21*s, weir.Peek, 1, ""),
			ask(21*s, weir.Resume, 0, "a"),
			ask(21*s, weir.Consume, 1, ""),
			pause(22*s, "c", time.Microsecond),
			ask(22*s, weir.Peek, 1, ""),
			pause(30*s, "d", 3600*s),
			ask(31*s, weir.Reset, 0, ""),
			ask(31*s, weir.Peek, 1, ""),
		},
	}
}

// rules returns a history of several rules in one decision, with keys that are escaped.
func rules() History {
	h := History{
		Name: "rules", Source: own,
		Policy: weir.Policy{
			Name:     "golden-rules",
			Segments: []string{"tenant", "user", "apikey"},
			Secret:   []string{"apikey"},
			Rules: []weir.Rule{
				{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.FixedWindow{Limit: 8, Window: 10 * time.Second, Aligned: true}},
				{Name: "user", By: []string{"tenant", "user"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 6}, Cost: 2},
				{Name: "apikey", Algorithm: algorithm.SlidingLog{Limit: 4, Window: 5 * time.Second}},
			},
		},
	}
	for i, key := range [][]string{
		{"acme", "ann", "k1"}, {"acme", "ann", "k1"}, {"acme", "b{o}:b%", "k2"}, {"acme", "ann", "k1"}, {"acme", "ann", "k1"},
		{"acme", "b{o}:b%", "k2"}, {"acme", "\u00e9 \"x\"", "k3"}, {"acme", "cy", "k1"}, {"acme", "cy", "k1"}, {"acme", "cy", "k1"},
	} {
		h.Asks = append(h.Asks, Ask{After: time.Duration(i) * 300 * time.Millisecond, Request: weir.Request{Key: weir.KeyOf(key...)}})
	}
	first := weir.KeyOf("acme", "ann", "k1")
	for i, r := range []weir.Request{
		{Key: first, ID: "x"}, {Key: first, Op: weir.TakeUpTo, Cost: 9}, {Key: first, Op: weir.Refund, ID: "x"}, {Key: first, Op: weir.Peek, Cost: 3}, {Key: first, Op: weir.Reset},
	} {
		h.Asks = append(h.Asks, Ask{After: 12*time.Second + time.Duration(i)*100*time.Millisecond, Request: r})
	}
	return h
}
