package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/docs/playground/simulate"
)

// The limit of every setup.
const (
	limit  = 10
	window = 10 * time.Second
)

var rate = algorithm.Rate{Count: limit, Period: window}

// A setup is an algorithm with settings, and has a picture.
type setup struct {
	file      string // name of the picture's file, without ending
	algorithm algorithm.Algorithm
	variant   string // tells two setups of one algorithm apart; mostly empty

	waits bool          // requests wait for their turn
	hold  time.Duration // how long each request holds a lease; 0 if it needs none
}

// setups are in the order of docs/reference/algorithms.md. MetadataWindow has no picture,
// because it decides as FixedWindow does. Calendar has another picture, because no period ends
// within this traffic.
var setups = []setup{
	{file: "gcra", algorithm: algorithm.GCRA{Rate: rate, Burst: limit}},
	{file: "tokenbucket", algorithm: algorithm.TokenBucket{Capacity: limit, Refill: rate}},
	{file: "tokenbucketatonce", algorithm: algorithm.TokenBucket{Capacity: limit, Refill: rate, AtOnce: true}, variant: ", at once"},
	{file: "leakybucket", algorithm: algorithm.LeakyBucket{Rate: rate, Queue: limit - 1}, waits: true},
	{file: "fixedwindow", algorithm: algorithm.FixedWindow{Limit: limit, Window: window, Aligned: true}},
	{file: "slidingbuckets", algorithm: algorithm.SlidingBuckets{Width: window / 5, Spans: []algorithm.Span{{Window: window, Limit: limit}}}},
	{file: "slidingcounter", algorithm: algorithm.SlidingCounter{Limit: limit, Window: window}},
	{file: "slidinglog", algorithm: algorithm.SlidingLog{Limit: limit, Window: window}},
	{file: "concurrency", algorithm: algorithm.Concurrency{Limit: limit, Lease: window}, hold: window / 2},
}

// kind is the name of the algorithm's type.
func (s setup) kind() string {
	return strings.TrimPrefix(fmt.Sprintf("%T", s.algorithm), "algorithm.")
}

func (s setup) name() string { return s.kind() + s.variant }

// title names the algorithm and its settings.
func (s setup) title() string {
	text := fmt.Sprintf("%s%+v", s.kind(), s.algorithm)
	if s.hold > 0 {
		text += fmt.Sprintf(", each request holds its lease for %v", s.hold)
	}
	return text
}

// A phase is traffic at an even pace.
type phase struct {
	label      string
	start, end time.Duration
	requests   int
}

// traffic is the requests to each setup. The burst lies across the edge of two windows:
// half of it, which is a whole limit, comes before the edge.
var traffic = []phase{
	{"below the rate", 0, 10 * time.Second, 8},
	{"", 10 * time.Second, edge - burst/2, 0},
	{"", edge - burst/2, edge + burst/2, 2 * limit},
	{"burst, then\ntwice the rate", edge + burst/2, edge + burst/2 + window, 2 * limit},
	{"", edge + burst/2 + window, 40 * time.Second, 0},
	{"three times the rate", 40 * time.Second, 60 * time.Second, 6 * limit},
	{"", 60 * time.Second, length, 0},
}

const (
	edge   = 20 * time.Second
	burst  = time.Second
	length = 72 * time.Second
)

// epoch is when traffic starts, at the edge of a window.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A simulation is the answers of one setup to the traffic.
type simulation struct {
	setup
	allowed []time.Duration // arrivals of the allowed requests
	turns   []time.Duration // when each of them may go on: on arrival, unless it waits
	denied  []time.Duration // arrivals of the denied requests
	counted []count         // the tokens in use, as the setup's results say
}

// A count holds from a time on.
type count struct {
	at time.Duration
	n  int64
}

// simulateSetup sends all of the traffic to a limiter of s.
func simulateSetup(ctx context.Context, s setup) (simulation, error) {
	p := simulation{setup: s}
	counted := func(at time.Duration, res weir.Result) {
		used := res.Limit - res.Remaining
		if s.waits {
			used = turns(res.ResetAfter)
		}
		p.counted = record(p.counted, at, used)
	}
	wait := time.Duration(0)
	if s.waits {
		wait = weir.Never
	}
	return p, simulate.Play{
		Policy:   weir.Policy{Name: "charts", Rules: []weir.Rule{{Algorithm: s.algorithm}}},
		Start:    epoch,
		Length:   length + 1,
		Arrivals: arrivals(),
		Key:      func(int) weir.Key { return weir.KeyOf(s.file) },
		Wait:     wait,
		Hold:     s.hold,
		Look:     50 * time.Millisecond,
		Peeked:   counted,
		Decided: func(a simulate.Arrival, _ int, res weir.Result, _ []weir.Result) {
			counted(a.At, res)
			if !res.Allowed {
				p.denied = append(p.denied, a.At)
				return
			}
			p.allowed = append(p.allowed, a.At)
			p.turns = append(p.turns, a.At+res.Delay)
		},
	}.Run(ctx)
}

// turns returns how many turns of a queue are taken that is empty after d.
func turns(d time.Duration) int64 { return int64((d*limit + window - 1) / window) }

// arrivals returns when the requests come, no two at the same time.
func arrivals() []simulate.Arrival {
	var all []simulate.Arrival
	for _, ph := range traffic {
		for i := range ph.requests {
			at := ph.start + (ph.end-ph.start)*time.Duration(i)/time.Duration(ph.requests)
			all = append(all, simulate.Arrival{At: at.Truncate(time.Microsecond)})
		}
	}
	return all
}

// record appends a count that differs from the last.
func record(counts []count, at time.Duration, n int64) []count {
	if len(counts) > 0 && counts[len(counts)-1].n == n {
		return counts
	}
	return append(counts, count{at, n})
}

// inWindow returns how many of times, which ascend, lie in the span that ends at each
// moment. A time exactly one span ago does not lie in it.
func inWindow(times []time.Duration, span time.Duration) []count {
	var counts []count
	for in, out := 0, 0; out < len(times); {
		at := times[out] + span
		if in < len(times) {
			at = min(at, times[in])
		}
		for in < len(times) && times[in] == at {
			in++
		}
		for out < len(times) && times[out]+span == at {
			out++
		}
		counts = record(counts, at, int64(in-out))
	}
	return counts
}

// most returns the most of times, which ascend, that lie within any span.
func most(times []time.Duration, span time.Duration) int64 {
	var n int64
	for _, c := range inWindow(times, span) {
		n = max(n, c.n)
	}
	return n
}
