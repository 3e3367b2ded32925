package weir

import (
	"context"
	"errors"
)

// A Limiter decides which requests are allowed. Make one with [New] or [NewPolicy]. It is
// safe for concurrent use, holds no connection, and needs no closing. If a Limiter is nil
// or a zero value, its methods return an error.
//
// Every decision goes through the wrappers that [Limiter.Wrap] added. [Limiter.Entries]
// makes no decision, so it does not call the wrappers.
type Limiter struct {
	bound    *bound
	wrappers []Wrapper // the innermost first
	outer    Decider   // bound in its wrappers
}

// A Wrapper makes a [Decider] that stands around next: it answers a request itself, or
// passes the request on to next. The packages outage, prefetch, denycache and observe
// have ready ones.
//
// lim is the limiter without wrappers, which a Wrapper asks about its rules: see
// [Limiter.Rules]. If the Wrapper does not suit these rules, or the Deciders in next, it
// returns an error. See [Find].
type Wrapper func(lim *Limiter, next Decider) (Decider, error)

// Valid returns an error if l is nil or a zero Limiter. Call it where a Limiter is
// configured, so that the mistake shows before the first request.
func (l *Limiter) Valid() error {
	if l == nil || l.bound == nil {
		return errNoLimiter
	}
	return nil
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

var _ Decider = (*Limiter)(nil)

// Decide makes the decision that r asks for, atomically. On a server, a decision is one
// Lua script. It takes one round trip, or two if the server does not know the script yet.
// Most other methods, for example Allow, call Decide.
//
// The slice each can be empty. Otherwise it must have at least one element for each rule,
// and Decide stores the result of each rule in it, in the order of Policy.Rules. Shadow
// rules have no element. In these results, Allowed reports whether that rule alone allows
// the request.
//
// The errors of misuse are:
//   - [ErrInvalidKey] if the key has another number of segments than the policy, or an
//     empty segment, or if the ID of a Refund is empty.
//   - [ErrInvalidCost] if the cost is negative, or above the largest cost of an
//     algorithm, for example above 1 for an algorithm.Concurrency, or if the ID names an
//     earlier decision with another cost.
//   - [ErrInvalidLease] if a rule is an algorithm.Concurrency, and r.ID is too long, or
//     empty where it is needed: see Request.ID.
//   - [ErrInvalidMetadata] if the metadata is too long.
//   - [ErrInvalidRule] if r is a Reset, and no rule is identified by the full key.
//   - [ErrUnsupported] if the limiter cannot do what r asks, for example because the
//     algorithm of a rule cannot refund. The error then names the rule.
//   - another error if MaxWait is negative, if each is too short, or if Options.Clock
//     returns a time out of range.
//   - another error if the Limiter is nil or a zero value.
//
// The errors of the store are:
//   - [store.ErrUnavailable] during an outage, or the context's error if ctx ends. Tokens
//     may have been consumed.
//   - [store.ErrForeign] if a key holds a value that no limiter wrote.
//   - [store.ErrScript] if the script failed.
func (l *Limiter) Decide(ctx context.Context, r Request, each []Result) (res Result, err error) {
	err = l.decide(ctx, &r, each, &res)
	return res, err
}

// decide is Decide. If there is no error, it sets res, which is zero. A Request and a
// Result are large, so they are copied only for wrappers.
func (l *Limiter) decide(ctx context.Context, r *Request, each []Result, res *Result) (err error) {
	switch {
	case l == nil || l.outer == nil:
		return errNoLimiter
	case len(l.wrappers) == 0:
		return l.bound.decide(ctx, r, each, res)
	}
	*res, err = l.outer.Decide(ctx, *r, each)
	return err
}

// With returns a limiter with the same keys and other limits, for example the limits of a
// customer's plan. Each of rules replaces the Algorithm of the rule with the same Name,
// also of a shadow rule, and its Cost unless the new Cost is 0. If the limiter has one
// rule, Name can be empty. By must be nil or unchanged, and Shadow is ignored. The
// algorithm must have the same type, because the keys hold its state. The documentation
// of the algorithm says what happens to the state if the limit changes.
//
// With reuses the scripts of the limiter, so it is cheap to call. If a program makes many
// requests under one plan, it can keep the Limiter and use it again. With calls each
// [Wrapper] of the limiter again, for the new one.
//
// The errors are:
//   - [ErrInvalidRule] if a rule is not valid, if the limiter has no rule with its name,
//     or if its algorithm has another type.
//   - [ErrInvalidLimit] if a field of an algorithm is out of range.
//   - [ErrUnsupported] if the limiter is the result of [Limiter.Share], or if
//     [Options].Settles is true and a new limit cannot be settled.
//   - the error of a [Wrapper] that does not suit the new limits.
func (l *Limiter) With(rules ...Rule) (*Limiter, error) {
	switch {
	case l == nil || l.bound == nil:
		return nil, errNoLimiter
	case l.bound.ground.share:
		return nil, fail(ErrUnsupported, "With: the limiter is a share: call With on the whole limiter, and then Share")
	}
	b := l.bound
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
		if r.Cost == 0 { // a forgotten Cost must not allow more
			r.Cost = with[n].cost
		}
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
		with[n].limit, with[n].cost, with[n].algorithm = other.limit, other.cost, other.algorithm
	}
	live := len(b.rules)
	other, err := bind(b.ground, with[:live], b.only)
	if err != nil {
		return nil, err
	}
	for i, shadow := range b.shadows {
		if shadow, err = bind(shadow.ground, with[live+i:live+i+1], false); err != nil {
			return nil, err
		}
		other.addShadow(shadow)
	}
	if err := other.checkSettles(); err != nil {
		return nil, err
	}
	return newLimiter(other, l.wrappers)
}

// Only returns a limiter that has only the rule with this name, for example to peek at it
// or to reset it. Both limiters share the state of the rule. In the returned limiter, a
// shadow rule is enforced. If the limiter has one rule, name can be empty.
//
// The keys of the new limiter still have all segments of the policy, but only the
// segments in By identify its limit. The other segments are ignored, but must not be
// empty. So Reset clears the rule for all keys whose segments in By are the same.
//
// The error is [ErrInvalidRule] if the limiter has no rule with that name, or the error
// of a [Wrapper] that does not suit the rule.
func (l *Limiter) Only(name string) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	every := l.bound.every()
	n := l.bound.find(every, name)
	if n < 0 {
		return nil, fail(ErrInvalidRule, "Only: the limiter has no rule %q: its rules are %s", name, l.bound.names())
	}
	b := l.bound.of(n)
	other, err := bind(b.ground, every[n:n+1], true)
	if err != nil {
		return nil, err
	}
	return newLimiter(other, l.wrappers)
}
