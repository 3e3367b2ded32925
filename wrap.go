package weir

import (
	"errors"
	"slices"
)

// A Wrapper makes a [Decider] that answers a request itself, or passes it on to next. lim
// has the rules, and no wrappers. A Wrapper that does not suit the rules, or the wrappers
// in next, returns an error.
type Wrapper func(lim *Limiter, next Decider) (Decider, error)

// newLimiter returns the limiter for b in wrappers, of which the innermost is the first.
func newLimiter(b *ruleSet, wrappers []Wrapper) (*Limiter, error) {
	l := &Limiter{ruleSet: b, wrappers: wrappers, outer: b}
	if len(wrappers) == 0 {
		return l, nil
	}
	bare := &Limiter{ruleSet: b, outer: b}
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

// Wrap returns a limiter in which every decision passes through the wrappers w, from left
// to right, and then through those of earlier calls:
//
//	lim, err = lim.Wrap(observe.Observer(count).Wrap, denycache.New(nil).Wrap, out.Wrap)
func (l *Limiter) Wrap(w ...Wrapper) (*Limiter, error) {
	if l == nil || l.ruleSet == nil {
		return nil, errNoLimiter
	}
	wrappers := slices.Clone(l.wrappers)
	for _, wrapper := range slices.Backward(w) {
		wrappers = append(wrappers, wrapper)
	}
	return newLimiter(l.ruleSet, wrappers)
}

// A StandIn answers some requests in place of the store: it remembers a denial, or holds
// tokens. Package outage must stand inside it, because it would take such an answer for
// the store's.
type StandIn interface {
	Decider
	StandsIn()
}

// maxDepth is the largest number of nested Deciders that Find follows.
const maxDepth = 1000

// Find returns the first T among d and the Deciders inside it, which the method Unwrap()
// Decider returns. With Find, a [Wrapper] detects that it is used twice, or in a wrong
// order.
func Find[T any](d Decider) (found T, ok bool) {
	for range maxDepth {
		if d == nil {
			break
		}
		if found, ok = d.(T); ok {
			return found, true
		}
		switch around := d.(type) {
		case *Limiter:
			if d = nil; around != nil {
				d = around.outer
			}
		case interface{ Unwrap() Decider }:
			d = around.Unwrap()
		default:
			d = nil
		}
	}
	return found, false
}

// Bare returns l without its wrappers, for tools that look at what the store holds.
func (l *Limiter) Bare() *Limiter {
	if l == nil || l.ruleSet == nil {
		return l
	}
	return &Limiter{ruleSet: l.ruleSet, outer: l.ruleSet}
}
