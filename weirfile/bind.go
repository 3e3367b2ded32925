package weirfile

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A bound is a policy over a store: its limits, and those of its plans and its overrides.
type bound struct {
	*Policy
	base    *limits
	ones    weir.Costs // 1 of each unit
	byPlan  map[string]*limits
	matches []*match // those with the fewest segments first
}

// limitsOf are the limits of an override, of which many can have the same.
type limitsOf struct {
	plan     string
	rules    *weir.Rule // the first
	access   Access
	segments string
}

// limiter makes the limiter of p, without wrappers.
func (p *Policy) limiter(st store.Store, opts *weir.Options) (*weir.Limiter, error) {
	var own weir.Options
	if opts != nil {
		own = *opts
	}
	own.Settles = own.Settles || p.settles
	return weir.NewPolicy(st, p.Policy, &own)
}

// bind makes the limiters of p. It reports errors to r.
func (r *reader) bind(p *Policy, st store.Store, opts *weir.Options, wrap []weir.Wrapper) *bound {
	b := &bound{Policy: p, byPlan: make(map[string]*limits, len(p.Plans))}
	lim, err := p.limiter(st, opts)
	if err == nil && len(wrap) > 0 {
		lim, err = lim.Wrap(wrap...)
	}
	if err != nil {
		text, at := p.explain(err)
		r.failIs(err, at, "policy %q: %s", p.Name, text)
		return nil
	}
	b.base, b.ones = &limits{lim: lim}, gate.Each(lim, 1)
	for i := range p.Plans {
		plan := &p.Plans[i]
		lim, err := b.with(plan.Rules, plan.Access)
		if err != nil {
			text, at := explain(err, plan.at, plan.Rules, plan.rules)
			r.failIs(err, at, "plan %q: %s", plan.Name, text)
			continue
		}
		b.byPlan[plan.Name] = &limits{lim: lim, rules: plan.Rules, access: plan.Access, line: plan.at.line}
	}
	known := map[limitsOf]*change{}
	for i := range p.Overrides {
		o := &p.Overrides[i]
		if o.Plan != "" && b.byPlan[o.Plan] == nil {
			continue // it is reported
		}
		same := limitsOf{o.Plan, nil, o.Access, fmt.Sprint(p.named(o))}
		if len(o.Rules) > 0 {
			same.rules = &o.Rules[0]
		}
		c, ok := known[same]
		if !ok {
			var err error
			if c, err = p.change(o); err == nil {
				_, err = c.on(b, b.base)
			}
			if err != nil {
				text, at := explain(err, o.at, o.Rules, o.rules)
				r.failIs(err, at, "the override: %s", text)
			}
			known[same] = c
		}
		b.add(o, c)
	}
	r.ambiguous(b)
	return b
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
func (p *Policy) explain(err error) (string, place) {
	text, at := explain(err, p.at, p.Rules, p.rules)
	for _, name := range []string{"segments", "secret", "units"} {
		if key := p.fields[name]; key != nil && strings.HasPrefix(text, name) {
			at = placeOf(key)
		}
	}
	return text, at
}

// explain is Policy.explain for an error of Limiter.With. places are those of the rules.
func explain(err error, at place, rules []weir.Rule, places []place) (string, place) {
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "weir: "), "With: ")
	for i := range rules {
		if strings.Contains(text, fmt.Sprintf("rule %q", rules[i].Name)) {
			at = places[i]
			break
		}
	}
	return inWords.Replace(text), at
}
