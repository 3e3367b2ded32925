package weir

import (
	"fmt"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A plan is the program of all rules of a limiter, or of some.
type plan struct {
	program *algorithm.Program
	rules   []int // by number, ascending
	keys    []int // how many keys each of these has
	fixed   uint  // a bit for each of these that has a cost of its own
}

// newPlan returns the plan of rules, of which fragments are the steps.
func (l *Limiter) newPlan(rules []int, fragments []*algorithm.Fragment) (*plan, error) {
	program, err := algorithm.Compose(fragments...)
	if err != nil {
		return nil, err
	}
	p := &plan{program: program, rules: rules}
	for n, i := range rules {
		p.keys = append(p.keys, max(fragments[n].Keys, 1))
		if l.rules[i].cost > 0 {
			p.fixed |= 1 << n
		}
	}
	return p, nil
}

// A planKey is what a plan depends on: which rules, by a bit for each, and their
// fragments.
type planKey struct {
	set       uint
	fragments [MaxRules]*algorithm.Fragment
}

// planFor returns the plan of all rules under limits, those of a call, each nil for
// the rule's own.
func (l *Limiter) planFor(limits []algorithm.Limit) (*plan, error) {
	if limits == nil {
		return l.all, nil
	}
	return l.part(1<<len(l.rules)-1, limits)
}

// part returns the plan of the rules whose bits are in set, under limits.
func (l *Limiter) part(set uint, limits []algorithm.Limit) (*plan, error) {
	if limits != nil && len(limits) != len(l.rules) {
		return nil, fmt.Errorf("weir: Request.Limits has %d elements: it must have one for each of the %d rules, nil for the rule's own", len(limits), len(l.rules))
	}
	key := planKey{set: set}
	own := set == 1<<len(l.rules)-1
	for i, r := range l.rules {
		f := r.limit.Fragment()
		if limits != nil && limits[i] != nil {
			given := limits[i].Fragment()
			if given == nil || given.Name != f.Name {
				return nil, fmt.Errorf("weir: %w: Request.Limits[%d] is for another algorithm than rule %q, a %s: its keys hold that one's state", ErrInvalidLimit, i, r.name, f.Name)
			}
			own = own && given == f
			f = given
		}
		if set&(1<<i) != 0 {
			key.fragments[i] = f
		}
	}
	if own {
		return l.all, nil
	}
	if p, ok := l.plans.Load(key); ok {
		return p.(*plan), nil
	}
	var rules []int
	var fragments []*algorithm.Fragment
	for i, f := range key.fragments {
		if f != nil {
			rules, fragments = append(rules, i), append(fragments, f)
		}
	}
	p, err := l.newPlan(rules, fragments)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	kept, _ := l.plans.LoadOrStore(key, p)
	return kept.(*plan), nil
}

// only returns the set of the rules whose fragment is such.
func (l *Limiter) only(such func(f *algorithm.Fragment) bool) uint {
	var set uint
	for i, r := range l.rules {
		if such(r.limit.Fragment()) {
			set |= 1 << i
		}
	}
	return set
}

// limitOf is the limit of rule i: that of the call, if there is one.
func (l *Limiter) limitOf(i int, limits []algorithm.Limit) algorithm.Limit {
	if limits != nil && limits[i] != nil {
		return limits[i]
	}
	return l.rules[i].limit
}

// costOf is what a request of that cost costs under rule i.
func (l *Limiter) costOf(i int, cost int64) int64 {
	if own := l.rules[i].cost; own > 0 {
		return own
	}
	return cost
}

// appendArgs appends the arguments of p's scripts.
func (l *Limiter) appendArgs(args []store.Arg, p *plan, now int64, ask *algorithm.Request, limits []algorithm.Limit) []store.Arg {
	args = p.program.AppendNow(args, now)
	for _, i := range p.rules {
		r := *ask
		r.Cost = l.costOf(i, ask.Cost)
		args = l.limitOf(i, limits).AppendArgs(args, r)
	}
	return args
}

// appendOnes appends the arguments of p's scripts for cost 1, whatever a rule
// has to cost.
func (l *Limiter) appendOnes(args []store.Arg, p *plan, now int64, r algorithm.Request, limits []algorithm.Limit) []store.Arg {
	r.Cost = 1
	args = p.program.AppendNow(args, now)
	for _, i := range p.rules {
		args = l.limitOf(i, limits).AppendArgs(args, r)
	}
	return args
}

// keysOf returns the keys of p for a path that was checked, and with an id those
// of its markers behind them.
func (l *Limiter) keysOf(p *plan, path []string, id string) []string {
	var s scratch
	l.setKeys(&s, p, path, id, false)
	return s.keys
}
