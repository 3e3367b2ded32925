package weir

import (
	"cmp"
	"errors"
	"slices"
)

// A Limiter decides which requests are allowed. Make one with [New] or [NewPolicy]. It is
// safe for concurrent use, and needs no closing. The methods of a nil or zero Limiter
// return an error, or nothing.
type Limiter struct {
	ruleSet  *ruleSet
	wrappers []Wrapper // the innermost first
	outer    Decider   // the ruleSet in its wrappers
}

// Valid returns an error if l is nil or a zero Limiter, so that the mistake shows before
// the first request.
func (l *Limiter) Valid() error {
	if l == nil || l.ruleSet == nil {
		return errNoLimiter
	}
	return nil
}

var errNoLimiter = errors.New("weir: the Limiter is nil or a zero value: make one with New or NewPolicy")

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

// With returns a limiter with the same keys and other limits, for example those of a
// customer's plan. That limiter can be kept.
//
// Each of rules replaces the Algorithm of the rule or shadow rule with its Name, and the
// Cost unless it is 0. The algorithm must keep its type: docs/guide/production.md says
// what becomes of the stored state. By must be nil or unchanged, Unit empty or unchanged,
// and Shadow is ignored.
//
// With calls the wrappers again, and returns their errors and the errors of [NewPolicy].
func (l *Limiter) With(rules ...Rule) (*Limiter, error) {
	switch {
	case l == nil || l.ruleSet == nil:
		return nil, errNoLimiter
	case l.ruleSet.base.share:
		return nil, fail(ErrUnsupported, "With: the limiter is a share: call With on the whole limiter, and then Share")
	}
	b := l.ruleSet
	with := b.every()
	changed := make([]bool, len(with))
	for i, r := range rules {
		n := b.find(with, r.Name)
		if n < 0 {
			return nil, fail(ErrInvalidRule, "With: rule %d is named %q: the rules of the limiter are %s", i, r.Name, b.names())
		}
		label := ruleLabel(n, with[n].name)
		if changed[n] {
			return nil, fail(ErrInvalidRule, "With: %s is given twice: give it once", label)
		}
		changed[n] = true
		r.Cost = cmp.Or(r.Cost, with[n].cost) // a forgotten Cost must not allow more
		unit := b.unitOf(&with[n])
		if r.Unit != "" && r.Unit != unit {
			return nil, fail(ErrInvalidRule, "With: %s: Unit is %q, and differs from the policy, which has %q: leave it empty", label, r.Unit, unit)
		}
		r.Unit = unit
		other, err := newRule(label, r)
		if err != nil {
			return nil, err
		}
		now, was := other.kind(), with[n].kind()
		if now.Tag != was.Tag {
			return nil, fail(ErrInvalidRule, "With: %s: its Algorithm is a %s: it must be a %s, because the keys hold the state of that algorithm", label, now.Name, was.Name)
		}
		if r.By != nil {
			space := b.of(n).space
			by, err := space.by(label, r.By)
			if err != nil {
				return nil, err
			}
			if by != with[n].key.by {
				return nil, fail(ErrInvalidRule, "With: %s: By is %q, and differs from the policy: leave it nil", label, r.By)
			}
		}
		with[n].limit, with[n].cost, with[n].costBy, with[n].algorithm = other.limit, other.cost, other.costBy, other.algorithm
	}
	live := len(b.rules)
	other, err := bind(b.base, with[:live], b.only)
	if err != nil {
		return nil, err
	}
	for i, shadow := range b.shadows {
		if shadow, err = bind(shadow.base, with[live+i:live+i+1], false); err != nil {
			return nil, err
		}
		other.addShadow(shadow)
	}
	if err := other.checkSettles(); err != nil {
		return nil, err
	}
	return newLimiter(other, l.wrappers)
}

// Only returns a limiter that has only the rule with this name, for example to reset it.
// It enforces even a shadow rule. Segments that are not in By of the rule are ignored,
// but must not be empty.
func (l *Limiter) Only(name string) (*Limiter, error) {
	if l == nil || l.ruleSet == nil {
		return nil, errNoLimiter
	}
	every := l.ruleSet.every()
	n := l.ruleSet.find(every, name)
	if n < 0 {
		return nil, fail(ErrInvalidRule, "Only: the limiter has no rule %q: its rules are %s", name, l.ruleSet.names())
	}
	b := l.ruleSet.of(n)
	other, err := bind(b.base, every[n:n+1], true)
	if err != nil {
		return nil, err
	}
	return newLimiter(other, l.wrappers)
}

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

// Bare returns l without its wrappers, for tools that look at what the store holds.
func (l *Limiter) Bare() *Limiter {
	if l == nil || l.ruleSet == nil {
		return l
	}
	return &Limiter{ruleSet: l.ruleSet, outer: l.ruleSet}
}

// A Wrapper makes a [Decider] that answers a request itself, or passes it on to next. lim
// has the rules, and no wrappers. A Wrapper that does not suit the rules, or the wrappers
// in next, returns an error.
type Wrapper func(lim *Limiter, next Decider) (Decider, error)

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
