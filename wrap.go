package weir

import (
	"context"
	"errors"
	"slices"
)

// A Wrapper makes a [Decider] that stands around next: it answers a request itself, or passes
// the request on to next. The packages outage, prefetch, denycache and observe have ready ones.
//
// lim is the limiter without wrappers, which a Wrapper asks about its rules: see
// [Limiter.Rules]. If the Wrapper does not suit these rules, or the Deciders in next, it
// returns an error. See [Find].
type Wrapper func(lim *Limiter, next Decider) (Decider, error)

// A ManyDecider is a [Decider] that decides many requests together. A Decider around another
// one is a ManyDecider if [Limiter.DoMany] is to keep its batches.
type ManyDecider interface {
	// DecideMany decides each of requests as Decide does, and sets the element of answers
	// with the same index. answers are zero at first.
	DecideMany(ctx context.Context, requests []Request, answers []Answer)
}

// A StandIn answers some requests in place of the store, as if the store had decided: it
// remembers a denial, or holds tokens. Package outage must stand inside every StandIn, because
// it would take such an answer for a sign that the store works.
type StandIn interface {
	Decider
	StandsIn()
}

// Find returns the first T among d and the Deciders in d: the next one of a Decider is what
// its method Unwrap() Decider returns. With Find, a [Wrapper] detects that it is used twice, or
// in a wrong order.
func Find[T any](d Decider) (found T, ok bool) {
	for d != nil {
		if found, ok = d.(T); ok {
			return found, true
		}
		around, isAround := d.(interface{ Unwrap() Decider })
		if !isAround {
			break
		}
		d = around.Unwrap()
	}
	return found, false
}

// DecideMany decides requests with d: together if d is a [ManyDecider], and otherwise one by
// one. answers has one element for each request.
func DecideMany(ctx context.Context, d Decider, requests []Request, answers []Answer) {
	if many, ok := d.(ManyDecider); ok {
		many.DecideMany(ctx, requests, answers)
		return
	}
	for i, r := range requests {
		answers[i].Result, answers[i].Err = d.Decide(ctx, r, nil)
	}
}

// Wrap returns a limiter in which every decision passes through the wrappers w, from left to
// right, and then through the wrappers of earlier calls:
//
//	lim, err = lim.Wrap(observe.Observer(count).Wrap, denycache.New(nil).Wrap, out.Wrap)
//
// [Limiter.With] and [Limiter.Only] call the wrappers again, for the limiter that they return.
//
// The error is that of a wrapper, for example because the rules do not support it, or because
// of the order of the wrappers. It is another error if a Wrapper is nil, or returns nil.
func (l *Limiter) Wrap(w ...Wrapper) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	wrappers := slices.Clone(l.wrappers)
	for _, wrapper := range slices.Backward(w) {
		wrappers = append(wrappers, wrapper)
	}
	return newLimiter(l.bound, wrappers)
}

// newLimiter returns the limiter for b in wrappers, of which the innermost is the first.
func newLimiter(b *bound, wrappers []Wrapper) (*Limiter, error) {
	l := &Limiter{bound: b, wrappers: wrappers, outer: b}
	if len(wrappers) == 0 {
		return l, nil
	}
	bare := &Limiter{bound: b, outer: b}
	for _, wrap := range wrappers {
		if wrap == nil {
			return nil, errNoWrapper
		}
		d, err := wrap(bare, l.outer)
		switch {
		case err != nil:
			return nil, err
		case d == nil:
			return nil, errNoWrapper
		}
		l.outer = d
	}
	return l, nil
}

var errNoWrapper = errors.New("weir: a Wrapper given to Limiter.Wrap is nil, or returned neither a Decider nor an error: it must return one of them")
