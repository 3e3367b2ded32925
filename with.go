package weir

import "slices"

// With returns a limiter with the same keys and other limits, for example the limits of
// a customer's plan. Each of rules replaces the Algorithm of the rule with the same Name, also
// of a shadow rule, and its Cost unless the new Cost is 0. If the limiter has one rule, Name can
// be empty. By must be nil or unchanged, and Shadow is ignored. The algorithm must have the same
// type, because the keys hold its state.
// The documentation of the algorithm says what happens to the state if the limit
// changes.
//
// With reuses the scripts of the limiter, so it is cheap to call. If a program makes
// many requests under one plan, it can keep the Limiter and use it again. With calls
// each [Wrapper] of the limiter again, for the new one.
//
// The errors are:
//   - [ErrInvalidRule] if a rule is not valid, if the limiter has no rule with its
//     name, or if its algorithm has another type.
//   - [ErrInvalidLimit] if a field of an algorithm is out of range.
//   - the error of a [Wrapper] that does not suit the new limits.
func (l *Limiter) With(rules ...Rule) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	b := l.bound
	with := b.every()
	changed := make([]bool, len(with))
	for i, r := range rules {
		n := b.find(r.Name)
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
	other, err := bind(b.shared, with[:live], b.only)
	if err != nil {
		return nil, err
	}
	for i, shadow := range b.shadows {
		if shadow, err = bind(shadow.shared, with[live+i:live+i+1], false); err != nil {
			return nil, err
		}
		other.addShadow(shadow)
	}
	return newLimiter(other, l.wrappers)
}

// Only returns a limiter that has only the rule with this name. Both limiters share the
// state of the rule. A shadow rule is in force there. Use Only to peek at one rule, or to reset one rule. If the limiter
// has one rule, name can be empty.
//
// The keys of the new limiter still have all segments of the policy, but only the
// segments in By identify its limit. The other segments are ignored, but must not be
// empty. So Reset clears the rule for all keys whose segments in By are the same.
//
// The error is [ErrInvalidRule] if the limiter has no rule with that name, or the error of a
// [Wrapper] that does not suit the rule.
func (l *Limiter) Only(name string) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	n := l.bound.find(name)
	if n < 0 {
		return nil, fail(ErrInvalidRule, "Only: the limiter has no rule %q: its rules are %s", name, l.bound.names())
	}
	b := l.bound.of(n)
	other, err := bind(b.shared, l.bound.every()[n:n+1], true)
	if err != nil {
		return nil, err
	}
	return newLimiter(other, l.wrappers)
}

// every returns the rules and the shadow rules.
func (b *bound) every() []rule {
	rules := slices.Clone(b.rules)
	for _, shadow := range b.shadows {
		rules = append(rules, shadow.rules...)
	}
	return rules
}

// of returns the bound that has rule n of every.
func (b *bound) of(n int) *bound {
	if n < len(b.rules) {
		return b
	}
	return b.shadows[n-len(b.rules)]
}

// find returns the index in every of the rule with that name. It returns -1 if there is none.
func (b *bound) find(name string) int {
	if name == "" && len(b.rules) == 1 {
		return 0
	}
	for i := range b.rules {
		if b.rules[i].name == name {
			return i
		}
	}
	for i, shadow := range b.shadows {
		if shadow.rules[0].name == name {
			return len(b.rules) + i
		}
	}
	return -1
}

// names lists the names of the rules.
func (b *bound) names() string {
	var names []byte
	for i, r := range b.every() {
		if i > 0 {
			names = append(names, ", "...)
		}
		names = append(append(append(names, '"'), r.name...), '"')
	}
	return string(names)
}
