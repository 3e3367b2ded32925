package histories

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/suite"
)

// A version is a limiter as one process has it.
type version struct {
	rules []weir.Rule           // without "x", which holds leases, and "p", which pauses keys
	index map[string]int        // of all rules in lim, by name
	place algorithm.Concurrency // of "x"
	lim   *weir.Limiter
	wide  *weir.Limiter // all rules of the history, with wide limits
	one   *weir.Limiter // in a history of work, a single place
	algs  map[string]algorithm.Algorithm
	life  time.Duration // how long markers of rules with a Unit live, at least

	follows, counts bool // a rule has no Cost and no Unit; a rule has a Unit
}

// manyPlaces is more places than a user takes.
const manyPlaces = 1000

// placesRule returns the rule that holds leases.
func placesRule(limit int64, lease time.Duration) weir.Rule {
	return weir.Rule{Name: "x", Algorithm: algorithm.Concurrency{Limit: limit, Lease: lease}, Cost: 1}
}

// places reports whether a rule of v holds leases, bills whether an ID has a bill beside its
// lease, and pauses whether a rule pauses keys.
func (v *version) places() bool { return v.place.Limit > 0 }
func (v *version) bills() bool  { return v.places() && v.life > 0 }
func (v *version) pauses() bool { _, ok := v.index["p"]; return ok }

// deploy adds a version: some of the rules, with other limits, in another order. It can be a
// plan of the version before.
func (h *history) deploy() error {
	v := &version{algs: maps.Clone(h.base)}
	plan := len(h.versions) > 0 && h.r.IntN(3) == 0
	if plan {
		last := h.versions[len(h.versions)-1]
		v.rules, v.index = slices.Clone(last.rules), last.index
	} else {
		for _, i := range h.r.Perm(len(h.names)) {
			if len(v.rules) == 0 || h.names[i] == h.shared || h.r.IntN(6) > 0 {
				v.rules = append(v.rules, weir.Rule{Name: h.names[i], By: h.by(h.names[i]), Unit: h.units[h.names[i]]})
				if last := &v.rules[len(v.rules)-1]; h.units != nil && h.r.IntN(5) == 0 {
					last.Unit = pick(h.r, "", "u", "v", "w")
				}
			}
		}
	}
	for i := range v.rules {
		r := &v.rules[i]
		if r.Algorithm = h.base[r.Name]; h.r.IntN(3) == 0 {
			r.Algorithm = like(h.r, r.Algorithm)
		}
		if i > 0 && r.Unit == "" && h.r.IntN(5) == 0 {
			r.Cost = 1
		}
		v.algs[r.Name] = r.Algorithm
	}
	p := weir.Policy{Name: suite.Name, Segments: []string{"tenant", "user"}, Rules: h.join(v)}
	if h.units != nil {
		for _, i := range h.r.Perm(len(units)) {
			p.Units = append(p.Units, units[i])
		}
		p.Units = append([]string{"new"}[:h.r.IntN(2)], p.Units...)
	}
	opts := &weir.Options{Prefix: h.prefix, Clock: h.c.Now}
	var err error
	if plan {
		last := h.versions[len(h.versions)-1]
		v.life = last.life
		v.lim, err = last.lim.With(p.Rules...)
	} else {
		settles := *opts
		if settles.Settles = h.r.IntN(2) == 0 || h.work && h.r.IntN(4) > 0; settles.Settles {
			v.life = 10 * time.Minute
		}
		v.lim, err = weir.NewPolicy(h.st, p, &settles)
	}
	if err != nil {
		return err
	}
	v.index = map[string]int{}
	for i, r := range v.lim.Rules() {
		v.index[r.Name] = i
	}
	for i := range v.rules { // With keeps a Cost
		v.rules[i].Cost = v.lim.Rules()[v.index[v.rules[i].Name]].Cost
	}
	if v.life > 0 {
		v.life = max(10*time.Minute, v.place.Lease)
	}
	for _, r := range v.rules {
		v.counts, v.follows = v.counts || r.Unit != "", v.follows || follows(r)
	}
	p.Rules = nil
	for _, name := range h.names {
		p.Rules = append(p.Rules, weir.Rule{Name: name, By: h.by(name), Algorithm: widest(v.algs[name])})
	}
	if h.work {
		p.Rules = append(p.Rules, placesRule(manyPlaces, time.Second))
	}
	if v.wide, err = weir.NewPolicy(h.st, p, opts); err == nil && h.work {
		if v.one, err = v.wide.Only("x"); err == nil {
			v.one, err = v.one.With(placesRule(1, time.Second))
		}
	}
	h.versions = append(h.versions, v)
	h.log = append(h.log, fmt.Sprintf("version %d, plan %v, units %v, life %v: %+v, %+v of %v", len(h.versions)-1, plan, p.Units, v.life, v.rules, v.place, v.index))
	return err
}

func (h *history) by(name string) []string {
	if name == h.shared {
		return []string{"tenant"}
	}
	return nil
}

// join returns the rules of v, and in a history of work mostly those that hold leases and pause
// keys, anywhere among them. A plan has the rules of the version before.
func (h *history) join(v *version) []weir.Rule {
	list, fresh := slices.Clone(v.rules), h.work && v.index == nil
	insert := func(r weir.Rule) { list = slices.Insert(list, h.r.IntN(len(list)+1), r) }
	if _, had := v.index["x"]; had || fresh && h.r.IntN(6) > 0 {
		x := placesRule(pick[int64](h.r, 1, 1, 1, 2, 3), pick[time.Duration](h.r, 2, 5, 60, 660, 1500)*time.Second)
		v.place = x.Algorithm.(algorithm.Concurrency)
		insert(x)
	}
	if fresh && h.r.IntN(2) == 0 {
		insert(weir.Rule{Name: "p", Algorithm: algorithm.Pause{}})
	}
	return list
}

// asked returns what r asks of rule i.
func (v *version) asked(i int, r *weir.Request) int64 {
	switch rule := v.rules[i]; {
	case rule.Unit != "":
		n, _ := r.Costs.Amount(rule.Unit)
		return n
	case rule.Cost > 0:
		return rule.Cost
	}
	return r.Cost
}

// follows reports whether r consumes Request.Cost.
func follows(r weir.Rule) bool { return r.Unit == "" && r.Cost == 0 }

// rejects returns the error of a decision r that no limiter like v can make, or nil.
func (v *version) rejects(r weir.Request) error {
	switch {
	case r.MaxWait > 0, r.Op == weir.Force && v.places() && !v.bills(), r.Op == weir.TakeUpTo && !v.follows:
		return weir.ErrUnsupported
	case v.places() && r.ID == "" && r.Op != weir.Force && r.Op != weir.Peek:
		return weir.ErrInvalidLease
	}
	for _, rule := range v.rules {
		if _, ok := r.Costs.Amount(rule.Unit); rule.Unit != "" && !ok {
			return weir.ErrInvalidCost
		}
	}
	return nil
}
