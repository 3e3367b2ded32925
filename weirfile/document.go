package weirfile

import (
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
)

// names is a set of names of fields.
type names []string

func (n names) has(name string) bool { return slices.Contains(n, name) }

// The fields of each part of a file. $schema is for editors.
var (
	fileFields     = names{"policies", "$schema"}
	policyFields   = names{"segments", "secret", "units", "settles", "rules", "plans", "overrides"}
	ruleFields     = names{"by", "algorithm", "cost", "unit", "shadow"}
	limitFields    = names{"algorithm", "cost"} // of a rule in a plan or an override
	overrideFields = names{"match", "plan", "rules", "unlimited", "blocked"}
)

// document reads the policies.
func (r *reader) document(root *yaml.Node) []*Policy {
	var list []*Policy
	m := r.fields(root, "the file")
	n, _ := m.take("policies"), m.take("$schema")
	r.rest(m, "the file", fileFields)
	if n != nil {
		r.pairs(n, "policies", func(name string, key, value *yaml.Node) {
			list = append(list, r.policy(name, key, value))
		})
		if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
			r.fail(placeOf(n), "policies is empty: it must have at least one policy")
		}
	} else if root.Kind == yaml.MappingNode && len(r.errors) == 0 {
		r.fail(placeOf(root), "the file has no field \"policies\": it must have one")
	}
	return list
}

// policy reads one policy.
func (r *reader) policy(name string, key, value *yaml.Node) *Policy {
	what := fmt.Sprintf("policy %q", name)
	p := &Policy{Policy: weir.Policy{Name: name}, Line: key.Line, at: placeOf(key)}
	m := r.fields(value, what)
	p.fields = m.keys
	if n := m.take("segments"); n != nil {
		if p.Segments = r.texts(n, "segments"); len(p.Segments) == 0 {
			if n.Kind == yaml.SequenceNode {
				r.fail(placeOf(n), "segments is empty: it must have at least one name, or be left out for one segment")
			}
			p.Segments = nil
		}
	}
	if n := m.take("secret"); n != nil {
		p.Secret = r.segments(n, "secret", p)
	}
	if n := m.take("units"); n != nil {
		if p.Units = r.texts(n, "units"); n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			r.fail(placeOf(n), "units is empty: it must have at least one name, or be left out")
		}
	}
	if n := m.take("settles"); n != nil {
		r.scalar(n, "settles", &boolCodec, reflect.ValueOf(&p.settles).Elem(), reflect.Value{})
	}
	switch n := m.take("rules"); {
	case n != nil:
		r.pairs(n, what+": rules", func(name string, key, value *yaml.Node) {
			p.Rules, p.rules = append(p.Rules, r.rule(name, key, value, p)), append(p.rules, placeOf(key))
		})
		if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
			r.fail(placeOf(n), "%s: rules is empty: it must have at least one rule", what)
		}
	case value.Kind == yaml.MappingNode:
		r.fail(p.at, "%s has no rules: it must have at least one", what)
	}
	if n := m.take("plans"); n != nil {
		r.pairs(n, what+": plans", func(name string, key, value *yaml.Node) {
			plan := Plan{Name: name, Line: key.Line, at: placeOf(key)}
			if name == "" {
				r.fail(plan.at, "%s: a plan has an empty name: give it one", what)
			}
			plan.Rules, plan.rules = r.limits(value, fmt.Sprintf("plan %q", name), p, nil, &plan.Access)
			if plan.Access != Limited && len(plan.Rules) > 0 {
				r.fail(plan.at, "plan %q is %s, and has rules: it must have only one of them", name, plan.Access)
			}
			p.Plans = append(p.Plans, plan)
		})
	}
	if n := m.take("overrides"); n != nil {
		r.overrides(n, what, p)
	}
	r.rest(m, what, policyFields)
	return p
}

// segments reads a list of names of segments of p.
func (r *reader) segments(n *yaml.Node, what string, p *Policy) []string {
	known := p.segments()
	list := r.texts(n, what)
	for i, name := range list {
		if !slices.Contains(known, name) {
			r.fail(placeOf(n.Content[i]), "%s has the segment %q, which the policy lacks: %s", what, name, suggest(name, known))
		}
	}
	return list
}

// segments returns the names of the segments.
func (p *Policy) segments() []string {
	if p.Segments == nil {
		return []string{"key"}
	}
	return p.Segments
}

// rule reads a rule of a policy. If it has mistakes, its Algorithm can be nil.
func (r *reader) rule(name string, key, value *yaml.Node, p *Policy) weir.Rule {
	what, rule := fmt.Sprintf("rule %q", name), weir.Rule{Name: name}
	if name == "" {
		r.fail(placeOf(key), "a rule has an empty name: give it one")
	}
	fields := r.fields(value, what)
	if n := fields.take("by"); n != nil {
		rule.By = r.segments(n, what+": by", p)
	}
	if n := fields.take("shadow"); n != nil {
		r.scalar(n, what+": shadow", &boolCodec, reflect.ValueOf(&rule.Shadow).Elem(), reflect.Value{})
	}
	if n := fields.take("unit"); n != nil {
		var ok bool
		if rule.Unit, ok = r.text(n, what+": unit"); ok && !slices.Contains(p.Units, rule.Unit) {
			r.fail(placeOf(n), "%s: unit is %q, which the policy's units lack: %s", what, rule.Unit, suggest(rule.Unit, p.Units))
		}
	}
	r.limit(fields, what, placeOf(key), &rule)
	return rule
}

// limits reads the rules of a plan or an override, and their places. They change the rules of the
// policy or, if plan is not nil, of the plan. access is that of the plan that is read, or nil.
func (r *reader) limits(n *yaml.Node, what string, p *Policy, plan *Plan, access *Access) (list []weir.Rule, places []place) {
	r.pairs(n, what, func(name string, key, value *yaml.Node) {
		if field := Access(name); access != nil && value.Kind == yaml.ScalarNode && (field == Unlimited || field == Blocked) {
			r.access(field, value, what, access) // a mapping is of a rule with that name
			return
		}
		own := p.rule(name)
		if own == nil {
			known := namesOf(p.Rules, func(rule weir.Rule) string { return rule.Name })
			r.fail(placeOf(key), "%s has a rule %q, which the policy lacks: %s", what, name, suggest(name, known))
			return
		}
		rule := *own
		if plan != nil {
			rule, _ = among(plan.Rules, *own)
		}
		if rule.Algorithm == nil {
			return // the mistake in the policy is reported
		}
		rule.By, rule.Shadow = nil, false
		what := fmt.Sprintf("%s: rule %q", what, name)
		r.limit(r.fields(value, what), what, placeOf(key), &rule)
		list, places = append(list, rule), append(places, placeOf(key))
	})
	return list, places
}

// rule returns the rule with the name, or nil.
func (p *Policy) rule(name string) *weir.Rule {
	for i := range p.Rules {
		if p.Rules[i].Name == name {
			return &p.Rules[i]
		}
	}
	return nil
}

// among returns the rule of list with the name of rule, or rule itself if there is none.
func among(list []weir.Rule, rule weir.Rule) (weir.Rule, bool) {
	for _, r := range list {
		if r.Name == rule.Name {
			return r, true
		}
	}
	rule.Shadow = false
	return rule, false
}

// appendText appends a text of n, which no other value has.
func appendText(b []byte, n *yaml.Node) []byte {
	b = append(b, 0, byte('0'+n.Kind), byte('0'+n.Style))
	b = append(b, n.Value...)
	for _, child := range n.Content {
		b = appendText(b, child)
	}
	return append(b, 1)
}

// plan returns the plan with the name, or nil.
func (p *Policy) plan(name string) *Plan {
	for i := range p.Plans {
		if p.Plans[i].Name == name {
			return &p.Plans[i]
		}
	}
	return nil
}

func (p *Policy) planNames() []string { return namesOf(p.Plans, func(p Plan) string { return p.Name }) }

// namesOf returns the names of the elements of list.
func namesOf[T any](list []T, name func(T) string) []string {
	var all []string
	for _, element := range list {
		all = append(all, name(element))
	}
	return all
}

// planOf reads the name of a plan of p.
func (r *reader) planOf(n *yaml.Node, p *Policy) *Plan {
	name, ok := r.text(n, "plan")
	if !ok {
		return nil
	}
	found := p.plan(name)
	if found == nil {
		r.fail(placeOf(n), "plan is %q, which the policy lacks: %s", name, suggest(name, p.planNames()))
	}
	return found
}
