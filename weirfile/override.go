package weirfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
)

// overrides reads the overrides of p.
func (r *reader) overrides(n *yaml.Node, what string, p *Policy) {
	items := r.items(n, what+": overrides")
	seen := make(map[weir.Key]place, len(items))
	known := map[string]Override{} // those that were read, by the text of their rules: they share the slices
	p.Overrides = make([]Override, 0, len(items))
	for _, item := range items {
		o := Override{Line: item.Line, at: placeOf(item)}
		m := r.fields(item, "an override")
		match, plan, rules := m.take("match"), m.take("plan"), m.take("rules")
		for _, access := range []Access{Unlimited, Blocked} {
			if n := m.values[string(access)]; r.access(string(access), n, "an override", &o.Access) {
				m.take(string(access))
			}
		}
		r.rest(m, "an override", overrideFields)
		if m.wrong {
			continue
		}
		switch {
		case match == nil:
			r.fail(o.at, "an override has no match: it must name callers by their segments, for example match: %s", example(p.segments()))
		case r.match(match, p, &o.Key):
			if first, twice := seen[o.Key]; twice {
				r.fail(placeOf(match), "two overrides have this match: the first is on line %d", first.line)
			}
			seen[o.Key] = placeOf(match)
		}
		var base *Plan
		if plan != nil {
			base = r.planOf(plan, p)
		}
		if base != nil {
			o.Plan = base.Name
		}
		switch {
		case o.Access != Limited && (plan != nil || rules != nil):
			r.fail(o.at, "an override is %s, and has a plan or rules: it must have only one of them", o.Access)
		case rules != nil:
			text := string(appendText([]byte(o.Plan), rules))
			same, ok := known[text]
			if !ok {
				same.Rules, same.rules = r.limits(rules, "the override", p, base, nil)
				known[text] = same
			}
			o.Rules, o.rules = same.Rules, same.rules
		case plan == nil && o.Access == Limited:
			r.fail(o.at, "an override has neither a plan nor rules, and is neither unlimited nor blocked: it must have one of them")
		}
		p.Overrides = append(p.Overrides, o)
	}
}

// match reads the match of an override. Errors show no segments, because they can be secret.
func (r *reader) match(n *yaml.Node, p *Policy, key *weir.Key) bool {
	names, bad := p.segments(), len(r.errors)
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		r.fail(placeOf(n), "match must be a mapping that names at least one segment, for example %s", example(names))
		return false
	}
	list := make([]string, len(names))
	r.pairs(n, "match", func(name string, at, value *yaml.Node) {
		i := slices.Index(names, name)
		if i < 0 {
			r.fail(placeOf(at), "match has a segment that the policy lacks: %s", suggest(name, names))
			return
		}
		text, ok := r.text(value, "match: "+name)
		switch list[i] = text; {
		case ok && text == "":
			r.fail(placeOf(value), "match: %s is empty: it must have at least 1 byte", name)
		case text == "*":
			r.fail(placeOf(value), "match: %s is \"*\": leave the segment out, so that any matches", name)
		}
	})
	*key = weir.KeyOf(list...)
	return len(r.errors) == bad
}

// example shows the form of a match.
func example(names []string) string {
	var pairs []string
	for _, name := range names {
		pairs = append(pairs, quote(name)+": "+quote(strings.ToUpper(name)))
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// A change is what overrides with the same limits set.
type change struct {
	rules  []weir.Rule
	sets   bool // access is set
	access Access
	steps  *steps // of a result of Options.Override, which does not last; otherwise nil
}

// limits are the limiter of a policy with other limits.
type limits struct {
	lim    *weir.Limiter
	rules  []weir.Rule
	access Access
	steps  *steps // keeps what changes make of these limits
}

// steps keeps the limits that changes have made.
type steps struct {
	mu   sync.RWMutex
	made map[step]*limits
}

func newSteps() *steps { return &steps{made: map[step]*limits{}} }

type step struct {
	from *limits
	by   *change
}

// named returns the indices of the segments that the override names.
func (p *Policy) named(o *Override) (list []int) {
	given := o.Key.Segments()
	for i := range p.segments() {
		if o.Key == (weir.Key{}) || i < len(given) && given[i] != "" {
			list = append(list, i)
		}
	}
	return list
}

// change returns what o sets: limits of the rules that its segments identify, as callers
// that o does not match share the others.
func (p *Policy) change(o *Override) (*change, error) {
	c := &change{rules: slices.Clone(o.Rules), sets: o.Plan != "" || o.Access != Limited, access: o.Access}
	var names []string
	for _, i := range p.named(o) {
		names = append(names, p.segments()[i])
	}
	identifies := func(by []string) bool {
		return by == nil || !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(by, name) })
	}
	for _, rule := range o.Rules {
		if own := p.rule(rule.Name); own != nil && !identifies(own.By) {
			return nil, fmt.Errorf("rule %q counts all callers with the same %s together, so it cannot be set for some of them: match only %s", rule.Name, strings.Join(own.By, " and "), example(own.By))
		}
	}
	if plan := p.plan(o.Plan); plan != nil {
		if plan.Access != Limited {
			c.access = plan.Access
		}
		for _, own := range p.Rules {
			if rule, _ := among(plan.Rules, own); identifies(own.By) {
				c.rules = merge(c.rules, []weir.Rule{rule})
			}
		}
	} else if o.Plan != "" {
		return nil, unknownPlan(p, o.Plan)
	}
	if len(c.rules) == 0 && c.access == Limited {
		return nil, fmt.Errorf("it sets no limit: it must set a rule by the segments that it names, which are %s", strings.Join(names, " and "))
	}
	return c, nil
}

// merge returns rules, and those of more that have other names.
func merge(rules, more []weir.Rule) []weir.Rule {
	all := slices.Clone(rules)
	for _, r := range more {
		if _, given := among(rules, r); !given {
			all = append(all, r)
		}
	}
	return all
}

// on returns the limits of b that c makes of l.
func (c *change) on(b *bound, l *limits) (*limits, error) {
	kept := cmp.Or(c.steps, l.steps)
	kept.mu.RLock()
	made := kept.made[step{l, c}]
	kept.mu.RUnlock()
	if made != nil {
		return made, nil
	}
	made = &limits{rules: merge(c.rules, l.rules), access: l.access, steps: kept}
	if c.sets {
		made.access = c.access
	}
	var err error
	if made.lim, err = b.with(made.rules, made.access); err != nil {
		return nil, err
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if first := kept.made[step{l, c}]; first != nil {
		return first, nil
	}
	kept.made[step{l, c}] = made
	return made, nil
}

// with returns the limiter of b with other limits.
func (b *bound) with(rules []weir.Rule, access Access) (lim *weir.Limiter, err error) {
	if lim = b.base.lim; len(rules) > 0 {
		lim, err = lim.With(rules...)
	}
	if err == nil && access != Limited {
		lim, err = lim.Wrap(access.wrap)
	}
	return lim, err
}

// A match is the overrides that name the same segments.
type match struct {
	segments  []int
	overrides map[weir.Key]*overrideLimits
}

type overrideLimits struct {
	*change
	override *Override
}

// part returns a key with only the given segments.
func part(segments []string, only []int) weir.Key {
	var list [weir.MaxSegments]string
	for _, i := range only {
		list[i] = segments[i]
	}
	return weir.KeyOf(list[:len(segments)]...)
}

// add adds an override. Those with the fewest segments come first.
func (b *bound) add(o *Override, c *change) {
	list := b.named(o)
	i, found := slices.BinarySearchFunc(b.matches, list, func(m *match, list []int) int {
		return cmp.Or(len(m.segments)-len(list), slices.Compare(m.segments, list))
	})
	if !found {
		b.matches = slices.Insert(b.matches, i, &match{list, map[weir.Key]*overrideLimits{}})
	}
	b.matches[i].overrides[o.Key] = &overrideLimits{c, o}
}

// ambiguous reports overrides with equally many segments that set one rule of a key.
func (r *reader) ambiguous(b *bound) {
	type set struct {
		key  weir.Key // the segments that both name
		rule string   // "" for the access
	}
	for i, m := range b.matches {
		for _, other := range b.matches[i+1:] {
			if len(other.segments) != len(m.segments) {
				break
			}
			var both []int
			for _, n := range m.segments {
				if slices.Contains(other.segments, n) {
					both = append(both, n)
				}
			}
			first := map[set]*Override{}
			for _, list := range []*match{m, other} {
				for key, o := range list.overrides {
					rules := o.rules
					if o.sets {
						rules = append(slices.Clone(rules), weir.Rule{})
					}
					for _, rule := range rules {
						s := set{part(key.Segments(), both), rule.Name}
						if list == m {
							first[s] = o.override
						} else if was := first[s]; was != nil {
							r.fail(o.override.at, "the override and that on line %d can match one key, and set the same with equally many segments: let both name the same segments", was.at.line)
							break
						}
					}
				}
			}
		}
	}
}
