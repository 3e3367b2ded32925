package weir

import "context"

// addShadows adds shadow rules of p to b. Each decides alone, with the keys that it would
// have as the only rule.
func (b *ruleSet) addShadows(prefix string, p *Policy, rules []Rule) error {
	for i, r := range rules {
		label := ruleLabel(i, r.Name)
		switch {
		case r.Name == "":
			return fail(ErrInvalidRule, "a shadow rule has no Name: give it one")
		case b.find(b.every(), r.Name) >= 0:
			return fail(ErrInvalidRule, "two rules are named %q: each rule needs its own name", r.Name)
		}
		space, err := newKeySpace(prefix, p)
		if err != nil {
			return err
		}
		one, err := newRules(space, []Rule{r})
		if err != nil {
			return err
		}
		own := *b.base
		own.space = space
		shadow, err := bind(&own, one, false)
		switch {
		case err != nil:
			return err
		case shadow.can.any(entries):
			return fail(ErrInvalidRule, "%s: a %s keeps metadata, so it cannot be a shadow rule", label, one[0].kind().Name)
		case shadow.can.any(pauses):
			return fail(ErrInvalidRule, "%s: a %s closes keys, so it cannot be a shadow rule", label, one[0].kind().Name)
		case shadow.leases != nil && b.leases == nil:
			return fail(ErrInvalidRule, "%s: a %s holds leases, so it can be a shadow rule only if another rule holds leases too", label, one[0].kind().Name)
		}
		b.addShadow(shadow)
	}
	return nil
}

// addShadow adds one shadow rule to b.
func (b *ruleSet) addShadow(shadow *ruleSet) {
	b.shadows, b.way, b.renews = append(b.shadows, shadow), withShadows, min(b.renews, shadow.lease)
}

// decideBeside is decide for a ruleSet with shadow rules. It calls the store once, if the
// store is a Batcher.
func (b *ruleSet) decideBeside(ctx context.Context, r *Request, each []Result, res *Result) error {
	var a batch
	if err := a.add(b, 0, r, len(each)); err != nil {
		return err
	}
	b.evalMany(ctx, a.evals)
	var to [1]Answer
	a.answer(b, each, to[:])
	*res = to[0].Result
	return to[0].Err
}
