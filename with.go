package weir

import "slices"

// With returns a limiter with the same keys and other limits, for example those of a
// customer's plan. Each of rules replaces the Algorithm and the Cost of the limiter's
// rule of the same name. The state under a key carries over as its algorithm says for
// a limit that changes. Name can be empty if the limiter has one rule. By is nil, or as
// before. The wrappers of [Limiter.Wrap] are made again, around the new limits.
//
// With composes no script for algorithms that are in use, so it is cheap to call. A
// program that serves many requests under one plan keeps the Limiter.
//
// The error is [ErrInvalidRule] if the limiter has no such rule, or if the algorithm is
// another than before: the keys hold the state of the algorithm before. It is
// [ErrInvalidLimit] if a field of an algorithm is out of range.
func (l *Limiter) With(rules ...Rule) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	b := l.bound
	with := slices.Clone(b.rules)
	changed := make([]bool, len(with))
	for i, r := range rules {
		n := b.find(r.Name)
		if n < 0 {
			return nil, fail(ErrInvalidRule, "With: the limiter has no %s: its rules are %s", ruleLabel(i, r.Name), b.names())
		}
		label := ruleLabel(n, with[n].name)
		if changed[n] {
			return nil, fail(ErrInvalidRule, "With: %s is given twice", label)
		}
		changed[n] = true
		other, err := newRule(label, r)
		if err != nil {
			return nil, err
		}
		now, was := other.limit.Kind, with[n].limit.Kind
		if now.Tag != was.Tag {
			return nil, fail(ErrInvalidRule, "With: %s is a %s, and not a %s: its keys hold the state of a %s", label, was.Name, now.Name, was.Name)
		}
		if r.By != nil {
			by, err := b.space.by(label, r.By)
			if err != nil {
				return nil, err
			}
			if by != b.space.rules[with[n].key].by {
				return nil, fail(ErrInvalidRule, "With: %s: By differs from that of the policy: leave it nil", label)
			}
		}
		with[n].limit, with[n].cost = other.limit, other.cost
	}
	return l.rebind(with, b.only)
}

// Only returns a limiter of the one rule of that name, over the same state. Its keys
// have all segments of the limiter. It peeks at a rule by itself, or resets it: its Reset
// clears the rule for everybody who shares it. name can be empty if the limiter has one
// rule. The error is [ErrInvalidRule] if the limiter has no such rule.
func (l *Limiter) Only(name string) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	n := l.bound.find(name)
	if n < 0 {
		return nil, fail(ErrInvalidRule, "Only: the limiter has no rule %q: its rules are %s", name, l.bound.names())
	}
	return l.rebind(l.bound.rules[n:n+1:n+1], true)
}

// Wrap returns a limiter in which every decision goes through w: the first of w gets a
// request first. Each function returns a [Decider] that calls the next one, as it sees
// fit. Wrappers that were added before come after w. A limiter that [Limiter.With] or
// [Limiter.Only] returns calls the functions again.
func (l *Limiter) Wrap(w ...func(next Decider) Decider) *Limiter {
	if l == nil || l.bound == nil {
		return new(Limiter)
	}
	wrappers := slices.Clone(l.wrappers)
	for _, f := range slices.Backward(w) {
		wrappers = append(wrappers, f)
	}
	return newLimiter(l.bound, wrappers)
}

// rebind returns a limiter of rules with the wrappers of l.
func (l *Limiter) rebind(rules []rule, only bool) (*Limiter, error) {
	b, err := bind(l.bound.shared, rules, only)
	if err != nil {
		return nil, err
	}
	return newLimiter(b, l.wrappers), nil
}

// find returns the number of the rule of that name, -1 if there is none.
func (b *bound) find(name string) int {
	if name == "" && len(b.rules) == 1 {
		return 0
	}
	return slices.IndexFunc(b.rules, func(r rule) bool { return r.name == name })
}

// names lists the names of the rules.
func (b *bound) names() string {
	var names []byte
	for i, r := range b.rules {
		if i > 0 {
			names = append(names, ", "...)
		}
		names = append(append(append(names, '"'), r.name...), '"')
	}
	return string(names)
}
