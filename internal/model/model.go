// Package model has a plain model of each built-in algorithm for tests to compare with, and
// makes random algorithms, pauses, waits and costs.
//
// A model follows the documentation of its algorithm: it says how many tokens are in use at
// a time. What a request is answered follows from that, so it is computed here once for all
// algorithms, by a search for the first time at which the request is allowed.
package model

import (
	"cmp"
	"math"
	"math/bits"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
)

// A Model is one limit of one key. Times are in microseconds since the Unix epoch.
type Model interface {
	// Set changes the limit to another one of the same algorithm. The state stays.
	Set(a algorithm.Algorithm)

	// Spans returns the limits that hold at once. Only SlidingBuckets has several.
	Spans() []algorithm.Span

	// Used returns how many tokens count towards s at the time at, if none are consumed
	// until then. It never rises.
	Used(at int64, s algorithm.Span) int64

	// Take consumes n tokens, even beyond the limit. The result is for Refund. It is nil if
	// the model does not know what a refund returns.
	Take(now, n int64) *Tally
}

// A reserver is a model whose tokens can be reserved ahead of time. In a queue, requests
// leave one by one.
type reserver interface{ queue() bool }

// New returns the model of a with all tokens. It returns nil if a has no model.
func New(a algorithm.Algorithm) (m Model) {
	switch a.(type) {
	case algorithm.GCRA, algorithm.LeakyBucket:
		m = new(GCRA)
	case algorithm.TokenBucket:
		m = new(bucket)
	case algorithm.FixedWindow, algorithm.MetadataWindow, algorithm.Calendar:
		m = new(window)
	case algorithm.SlidingCounter:
		m = new(counter)
	case algorithm.SlidingLog:
		m = new(log)
	case algorithm.SlidingBuckets:
		m = new(ring)
	case algorithm.Concurrency:
		m = new(Leases)
	default:
		return nil
	}
	m.Set(a)
	return m
}

// Rated reports whether the tokens of a are refilled at a rate.
func Rated(a algorithm.Algorithm) bool {
	_, ok := New(a).(reserver)
	return ok
}

// A Rule is a model, and its own cost if that is not 0.
type Rule struct {
	Model Model
	Cost  int64
}

// An Answer is what a request learns of one rule. Granted is what it consumed, and Tally is
// the result of Take.
type Answer struct {
	Allowed                               bool
	Granted, Limit, Remaining             int64
	Window, RetryAfter, ResetAfter, Delay time.Duration
	Tally                                 *Tally
}

// Decide answers a request that costs cost tokens and can wait for wait microseconds. If
// consume is true and every rule allows the request, each consumes its cost. Decide returns
// the answers of the rules, and which of them describes the decision: the one with the longest
// RetryAfter or, if the request is allowed, with the fewest tokens left.
func Decide(rules []Rule, now, wait, cost int64, consume bool) (which int, each []Answer) {
	allowed := true
	var spans []algorithm.Span
	for _, r := range rules {
		a, s := ask(r.Model, now, wait, cmp.Or(r.Cost, cost))
		allowed, each, spans = allowed && a.Allowed, append(each, a), append(spans, s)
	}
	for i, r := range rules {
		a := &each[i]
		if allowed && consume {
			a.Granted = cmp.Or(r.Cost, cost)
			a.Tally = r.Model.Take(now, a.Granted)
		}
		a.Remaining = max(room(r.Model, now, 0, spans[i]), 0)
		for _, s := range r.Model.Spans() {
			a.ResetAfter = max(a.ResetAfter, first(now, func(at int64) bool { return r.Model.Used(at, s) == 0 || at >= algorithm.MaxTokens }))
		}
		if allowed && a.Remaining < each[which].Remaining || !allowed && a.RetryAfter > each[which].RetryAfter {
			which = i
		}
	}
	return which, each
}

// ask answers a request, and returns the span that the answer describes: the one with the
// longest RetryAfter, or else the fewest tokens left.
func ask(m Model, now, wait, cost int64) (answer Answer, span algorithm.Span) {
	for i, s := range m.Spans() {
		a := Answer{Limit: s.Limit, Window: s.Window, Remaining: max(room(m, now, 0, s), 0), Delay: contract.Never}
		l, leases := m.(*Leases)
		switch {
		case leases && cost == 1 && l.held(now, l.Name) > 0:
		case cost > s.Limit || leases && l.Renew:
			a.RetryAfter = contract.Never
		default:
			a.RetryAfter = first(now, func(at int64) bool { return room(m, at, wait, s) >= cost })
		}
		if a.Allowed = a.RetryAfter == 0; a.Allowed {
			a.Delay = 0
		}
		if _, ok := m.(reserver); ok && a.Allowed {
			a.Delay = first(now, func(at int64) bool { return room(m, now, at-now, s) >= cost })
		}
		if i == 0 || a.RetryAfter > answer.RetryAfter || answer.Allowed && a.Remaining < answer.Remaining {
			answer, span = a, s
		}
	}
	return answer, span
}

// UpTo returns the largest cost, at most most, that Decide allows, or 0.
func UpTo(rules []Rule, now, wait, most int64) int64 {
	for _, r := range rules {
		for _, s := range r.Model.Spans() {
			if left := room(r.Model, now, wait, s); r.Cost == 0 {
				most = min(most, left)
			} else if left < r.Cost {
				return 0
			}
		}
	}
	return max(most, 0)
}

// Force returns how many of cost tokens m can consume if it can be debt tokens in debt.
func Force(m Model, now, cost, debt int64) int64 {
	for _, s := range m.Spans() {
		cost = min(cost, room(m, now, 0, s)+debt)
	}
	return max(cost, 0)
}

// room returns the largest cost that s allows at the time at, if the request can wait.
func room(m Model, at, wait int64, s algorithm.Span) int64 {
	r, ok := m.(reserver)
	switch {
	case ok && !r.queue():
		at += wait
	case ok && m.Used(at+wait, s) > 0: // others leave until then
		return min(s.Limit-m.Used(at, s), 0)
	}
	return s.Limit - m.Used(at, s)
}

// first returns how long it takes from now until f is true, and then stays true.
func first(now int64, f func(at int64) bool) time.Duration {
	low, high := now, int64(1<<60)
	if f(now) {
		high = now
	}
	for low < high {
		if at := low + (high-low)/2; f(at) {
			high = at
		} else {
			low = at + 1
		}
	}
	return contract.Micros(low - now)
}

// mulDiv returns a×b/c, rounded down, or at most the largest integer.
func mulDiv(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(high, low, uint64(c))
	return int64(min(q, math.MaxInt64))
}
