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
			if n := m.take(string(access)); n != nil {
				r.access(access, n, "an override", &o.Access)
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
		case base != nil && base.Access != Limited && rules != nil:
			r.fail(o.at, "an override has rules, and plan %q, which is %s: it must have only one of them", base.Name, base.Access)
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
		switch text, ok := r.text(value, "a value of match"); {
		case i < 0:
			r.fail(placeOf(at), "match has a segment that the policy lacks: %s", suggest(name, names))
		case ok && text == "":
			r.fail(placeOf(value), "match: %s is empty: it must have at least 1 byte", name)
		case text == "*":
			r.fail(placeOf(value), "match: %s is \"*\": leave the segment out, so that any matches", name)
		default:
			list[i] = text
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
	asked  bool     // it is a result of Options.Override, and keeps what it makes
	made   sync.Map // of *limits by *limits, if asked
}

// limits are the limiter of a policy with other limits.
type limits struct {
	lim    *weir.Limiter
	rules  []weir.Rule
	access Access
	line   int      // of a plan
	made   sync.Map // what changes make of these limits: of *limits by *change
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
	if len(names) == 0 {
		return c, fmt.Errorf("its Key names no segment: leave it zero for the whole key, or name at least one")
	}
	if _, known := inFile[o.Access]; !known {
		return c, fmt.Errorf("its Access is %q: it must be Limited, Unlimited or Blocked", o.Access)
	}
	identifies := func(by []string) bool {
		return by == nil || !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(by, name) })
	}
	for _, rule := range o.Rules {
		own := p.rule(rule.Name)
		if own == nil {
			return c, unknown("rule", rule.Name, fmt.Sprintf("policy %q", p.Name), namesOf(p.Rules, func(r weir.Rule) string { return r.Name }))
		}
		if !identifies(own.By) {
			return c, fmt.Errorf("rule %q counts all callers with the same %s together, so it cannot be set for some of them: match only %s", rule.Name, strings.Join(own.By, " and "), example(own.By))
		}
	}
	if plan := p.plan(o.Plan); plan != nil {
		c.access = cmp.Or(o.Access, plan.Access)
		for _, own := range p.Rules {
			if rule, _ := among(plan.Rules, own); identifies(own.By) {
				c.rules = merge(c.rules, []weir.Rule{rule})
			}
		}
	} else if o.Plan != "" {
		return c, unknownPlan(p, o.Plan)
	}
	if len(c.rules) == 0 && c.access == Limited {
		return c, fmt.Errorf("it sets no limit: it must set a rule by the segments that it names, which are %s", strings.Join(names, " and "))
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
	kept, by := &l.made, any(c)
	if c.asked {
		kept, by = &c.made, any(l)
	}
	if made, ok := kept.Load(by); ok {
		return made.(*limits), nil
	}
	made, err := &limits{rules: merge(c.rules, l.rules), access: l.access}, error(nil)
	if c.sets {
		made.access = c.access
	}
	if made.lim, err = b.with(made.rules, made.access); err != nil {
		return nil, err
	}
	first, _ := kept.LoadOrStore(by, made)
	return first.(*limits), nil
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

// of returns the override of the key of a policy with that many segments, or nil.
func (m *match) of(key *weir.Key, segments int) *overrideLimits {
	if len(m.segments) == segments {
		return m.overrides[*key]
	}
	if given := key.Segments(); len(given) == segments {
		return m.overrides[part(given, m.segments)]
	}
	return nil
}

// ambiguous reports overrides with equally many segments that set one rule of a key, or let
// it be limited, unlimited or blocked in different ways.
func (r *reader) ambiguous(b *bound) {
	type setting struct {
		shared weir.Key // the segments that both name
		rule   string   // "" for the access
		access Access
	}
	for i, m := range b.matches {
		for _, other := range b.matches[i+1:] {
			if len(other.segments) > len(m.segments) {
				break
			}
			both := slices.DeleteFunc(slices.Clone(m.segments), func(n int) bool { return !slices.Contains(other.segments, n) })
			first := map[setting]*Override{}
			for key, o := range m.overrides {
				for _, name := range o.settings() {
					one := setting{part(key.Segments(), both), name, ""}
					if name == "" {
						one.access = o.access
					}
					if was := first[one]; was == nil || o.override.at.line < was.at.line {
						first[one] = o.override
					}
				}
			}
			for key, o := range other.overrides {
				for _, name := range o.settings() {
					for access := range inFile {
						was := first[setting{part(key.Segments(), both), name, access}]
						if was != nil && (name != "" || access != o.access) {
							r.fail(o.override.at, "the override and that on line %d can match one key, and set the same with equally many segments: let both name the same segments", was.at.line)
							break
						}
					}
				}
			}
		}
	}
}

// settings returns the names of the rules that c sets, and "" if it sets the access.
func (c *change) settings() []string {
	names := namesOf(c.rules, func(r weir.Rule) string { return r.Name })
	if c.sets {
		names = append(names, "")
	}
	return names
}
