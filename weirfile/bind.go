package weirfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/unit"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A bound is a policy over a store: its limiter, and those of its plans and its
// overrides.
type bound struct {
	*filePolicy
	lim    *weir.Limiter
	ones   weir.Costs // 1 of each unit
	byPlan map[string]*planLimiter
	byKey  map[weir.Key]*overrideLimiter
}

type planLimiter struct {
	lim  *weir.Limiter
	plan *filePlan
}

type overrideLimiter struct {
	lim      *weir.Limiter
	override *fileOverride
}

// limitsOf are the limits of an override, of which many can have the same.
type limitsOf struct {
	plan  string
	rules *fileRule
}

// limiter makes the limiter of p, without wrappers.
func (p *filePolicy) limiter(st store.Store, opts *weir.Options) (*weir.Limiter, error) {
	var own weir.Options
	if opts != nil {
		own = *opts
	}
	own.Settles = own.Settles || p.settles
	return weir.NewPolicy(st, p.Policy, &own)
}

// bind makes the limiters of p. It reports errors to r.
func (r *reader) bind(p *filePolicy, st store.Store, opts *weir.Options, wrap []weir.Wrapper) *bound {
	b := &bound{filePolicy: p, byPlan: make(map[string]*planLimiter, len(p.plans)), byKey: make(map[weir.Key]*overrideLimiter, len(p.overrides))}
	lim, err := p.limiter(st, opts)
	if err == nil && len(wrap) > 0 {
		lim, err = lim.Wrap(wrap...)
	}
	if err != nil {
		text, at := p.explain(err)
		r.failIs(err, at, "policy %q: %s", p.Name, text)
		return nil
	}
	b.lim, b.ones = lim, unit.Each(lim, 1)
	for i := range p.plans {
		plan := &p.plans[i]
		lim, err := with(b.lim, plan.rules)
		if err != nil {
			text, at := explainWith(err, plan.at, plan.rules)
			r.failIs(err, at, "plan %q: %s", plan.name, text)
			continue
		}
		b.byPlan[plan.name] = &planLimiter{lim, plan}
	}
	known := map[limitsOf]*weir.Limiter{}
	for i := range p.overrides {
		o := &p.overrides[i]
		base := b.lim
		if o.plan != "" {
			plan := b.byPlan[o.plan]
			if plan == nil {
				continue // it is reported
			}
			base = plan.lim
		}
		if len(o.rules) == 0 {
			b.byKey[o.key] = &overrideLimiter{base, o}
			continue
		}
		limits := limitsOf{o.plan, &o.rules[0]}
		lim, ok := known[limits]
		if !ok {
			var err error
			if lim, err = with(base, o.rules); err != nil {
				text, at := explainWith(err, o.at, o.rules)
				r.failIs(err, at, "the override: %s", text)
			}
			known[limits] = lim
		}
		b.byKey[o.key] = &overrideLimiter{lim, o}
	}
	return b
}

// with returns lim with other limits.
func with(lim *weir.Limiter, rules []fileRule) (*weir.Limiter, error) {
	if len(rules) == 0 {
		return lim, nil
	}
	return lim.With(exportRules(rules)...)
}

// override returns the limiter of a result of Options.Override.
func (b *bound) override(o *Override) (*weir.Limiter, error) {
	lim := b.lim
	if o.Plan != "" {
		plan := b.byPlan[o.Plan]
		if plan == nil {
			return nil, unknownPlan(b.filePolicy, o.Plan)
		}
		lim = plan.lim
	}
	if len(o.Rules) == 0 {
		return lim, nil
	}
	return lim.With(o.Rules...)
}

// check binds the policies of f to a store that nobody uses, to find mistakes.
func (r *reader) check(f *File) {
	for _, p := range f.policies {
		r.bind(p, memory.New(nil), f.options.Limiter, nil)
	}
}

// inWords has the words of a file for names of Go in errors.
var inWords = strings.NewReplacer("Policy.Segments", "segments", "Policy.Secret", "secret", "Policy.Units", "units", "Options.Settles", "settles", "By ", "by ", "Cost ", "cost ", "Unit ", "unit ", "it must be empty, because a", "it must be left out, because a", "its Algorithm", "its algorithm", "Algorithm is", "algorithm is")

// explain returns the text of an error of weir.NewPolicy in the words of the file, and
// its place.
func (p *filePolicy) explain(err error) (string, place) {
	var rules []fileRule
	for i, rule := range p.Rules {
		rules = append(rules, fileRule{rule, p.rules[i]})
	}
	text, at := explainWith(err, p.at, rules)
	for _, name := range []string{"segments", "secret", "units"} {
		if where, ok := p.fields[name]; ok && strings.HasPrefix(text, name) {
			at = where
		}
	}
	return text, at
}

// explainWith is explain for an error of Limiter.With.
func explainWith(err error, at place, rules []fileRule) (string, place) {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "weir: "), "With: ")
	for i := range rules {
		if strings.Contains(text, fmt.Sprintf("rule %q", rules[i].Name)) {
			at = rules[i].at
			break
		}
	}
	return inWords.Replace(text), at
}

// export returns p as users see it.
func (p *filePolicy) export() Policy {
	out := Policy{Policy: p.Policy, Line: p.at.line}
	for i := range p.plans {
		out.Plans = append(out.Plans, Plan{Name: p.plans[i].name, Rules: exportRules(p.plans[i].rules), Line: p.plans[i].at.line})
	}
	for i := range p.overrides {
		out.Overrides = append(out.Overrides, p.overrides[i].export())
	}
	return out
}

func (o *fileOverride) export() Override {
	return Override{Key: o.key, Plan: o.plan, Rules: exportRules(o.rules), Line: o.at.line}
}

func exportRules(rules []fileRule) []weir.Rule {
	list := slices.Grow([]weir.Rule(nil), len(rules)) // nil if there are none
	for _, r := range rules {
		list = append(list, r.Rule)
	}
	return list
}
