package main

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
)

// A phase is traffic at an even pace.
type phase struct {
	label      string
	start, end time.Duration
	requests   int
}

// traffic is what all subjects are asked. The burst lies across the edge of two
// windows: half of it, a whole limit, comes before.
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

// look is how often a subject is asked what it counts.
const look = 50 * time.Millisecond

// A play is what became of the traffic.
type play struct {
	subject
	admitted []time.Duration // when the requests came that were admitted
	turns    []time.Duration // when each of them was to go on: as it came, unless it queued
	denied   []time.Duration
	counted  []count // what the subject says is used
}

// queues tells whether some had to wait for their turn.
func (p play) queues() bool { return !slices.Equal(p.admitted, p.turns) }

// A count holds from a time on.
type count struct {
	at time.Duration
	n  int64
}

// playTrace asks s for all of the traffic, in virtual time.
func playTrace(ctx context.Context, s subject) (play, error) {
	p := play{subject: s}
	now := epoch
	lim, err := weir.NewRules(memory.New(nil), []weir.Rule{{Algorithm: s.algorithm}}, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		return p, err
	}
	observe := func(at time.Duration) error {
		res, err := lim.Peek(ctx, s.file)
		p.counted = record(p.counted, at, res.Limit-res.Remaining)
		return err
	}
	next, held := arrivals(), []time.Duration(nil) // held: when those came that go on
	for at := time.Duration(0); at <= length; {
		now = epoch.Add(at)
		for ; len(held) > 0 && held[0]+s.hold == at; held = held[1:] {
			if _, err := lim.Release(ctx, held[0].String(), s.file); err != nil {
				return p, err
			}
		}
		if err := observe(at); err != nil {
			return p, err
		}
		if len(next) > 0 && next[0] == at {
			next = next[1:]
			r := weir.Request{Path: []string{s.file}, Cost: 1}
			if s.hold > 0 {
				r.Lease = at.String()
			}
			res, err := lim.Do(ctx, r)
			switch {
			case err != nil:
				return p, err
			case !res.Allowed:
				p.denied = append(p.denied, at)
			default:
				p.admitted = append(p.admitted, at)
				p.turns = append(p.turns, at+res.Delay)
				if s.hold > 0 {
					held = append(held, at)
				}
			}
			if err := observe(at); err != nil {
				return p, err
			}
		}
		at = at.Truncate(look) + look
		if len(next) > 0 {
			at = min(at, next[0])
		}
		if len(held) > 0 {
			at = min(at, held[0]+s.hold)
		}
	}
	return p, nil
}

// arrivals returns when requests come, no two at once.
func arrivals() []time.Duration {
	var all []time.Duration
	for _, ph := range traffic {
		for i := range ph.requests {
			at := ph.start + (ph.end-ph.start)*time.Duration(i)/time.Duration(ph.requests)
			all = append(all, at.Truncate(time.Microsecond))
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

// inWindow returns how many of times, which ascend, lie in the window that ends
// at each moment: what is one window old has left it.
func inWindow(times []time.Duration) []count {
	var counts []count
	for in, out := 0, 0; out < len(times); {
		at := times[out] + window
		if in < len(times) {
			at = min(at, times[in])
		}
		for in < len(times) && times[in] == at {
			in++
		}
		for out < len(times) && times[out]+window == at {
			out++
		}
		counts = record(counts, at, int64(in-out))
	}
	return counts
}

// most returns the most of times, which ascend, that lie within any span.
func most(times []time.Duration, span time.Duration) int {
	n, out := 0, 0
	for in := range times {
		for times[in]-times[out] >= span {
			out++
		}
		n = max(n, in-out+1)
	}
	return n
}
