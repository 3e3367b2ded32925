package weir

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// shared is the part of a limiter that the limiters made by With and Only share with it.
type shared struct {
	store  store.Store
	clock  func() time.Time
	borrow bool          // the store keeps no key beyond a call
	memory *memory.Store // the store, if it is a *memory.Store
	space  *keySpace
}

// newShared returns the shared part of limiters over st.
func newShared(st store.Store, clock func() time.Time, space *keySpace) *shared {
	sh := &shared{store: st, clock: clock, space: space}
	sh.memory, _ = st.(*memory.Store)
	if b, ok := st.(store.Borrower); ok {
		sh.borrow = b.BorrowsStrings(st)
	}
	return sh
}

// A rule is a valid Rule.
type rule struct {
	given string // Rule.Name: it can be empty
	name  string // the name in results
	limit *contract.Limit
	cost  int64 // 0 means the cost of the request
	key   *ruleKey
	index int // the rule's index in the limiter

	features feature

	algorithm algorithm.Algorithm // which made the limit
	share     int64               // of how many shares of the algorithm's limit the limit is one; 0 means the whole
}

// newRules checks rules, and adds them to space.
func newRules(space *keySpace, rules []Rule) ([]rule, error) {
	if len(rules) < 1 || len(rules) > MaxRules {
		return nil, fail(ErrInvalidRule, "the limiter has %d rules: it must have from 1 to %d", len(rules), MaxRules)
	}
	list := make([]rule, len(rules))
	by := make([]segmentSet, len(rules))
	seen := map[string]bool{}
	for i, r := range rules {
		label := ruleLabel(i, r.Name)
		switch {
		case r.Name == "" && len(rules) > 1:
			return nil, fail(ErrInvalidRule, "rule %d has no Name: if a limiter has several rules, each needs a Name", i)
		case len(r.Name) > MaxSegment:
			return nil, fail(ErrInvalidRule, "rule %d: its Name has %d bytes: it must have at most %d", i, len(r.Name), MaxSegment)
		case seen[r.Name]:
			return nil, fail(ErrInvalidRule, "two rules are named %q: each rule needs its own name", r.Name)
		}
		seen[r.Name] = true
		var err error
		if list[i], err = newRule(label, r); err != nil {
			return nil, err
		}
		if by[i], err = space.by(label, r.By); err != nil {
			return nil, err
		}
	}
	return list, space.addRules(list, by)
}

// ruleLabel returns the text that names rule i in an error.
func ruleLabel(i int, name string) string {
	if name == "" {
		return fmt.Sprintf("rule %d", i)
	}
	return fmt.Sprintf("rule %q", name)
}

// newRule checks the algorithm and the cost of r.
func newRule(label string, r Rule) (rule, error) {
	limit, err := newLimit(label, r.Algorithm)
	if err != nil {
		return rule{}, err
	}
	switch {
	case r.Cost < 0:
		return rule{}, fail(ErrInvalidRule, "%s: Cost is %d: it must be 0, which means the request's cost, or more", label, r.Cost)
	case r.Cost > limit.Capacity:
		return rule{}, fail(ErrInvalidRule, "%s: Cost is %d: it must be at most %d, the limit", label, r.Cost, limit.Capacity)
	case limit.MaxCost > 0 && r.Cost > limit.MaxCost:
		return rule{}, fail(ErrInvalidRule, "%s: Cost is %d: a %s can consume at most %d at once", label, r.Cost, limit.Kind.Common().Name, limit.MaxCost)
	}
	name := r.Name
	if name == "" {
		name = limit.Kind.Common().Name
	}
	return rule{given: r.Name, name: name, limit: limit, cost: r.Cost, algorithm: copied(r.Algorithm)}, nil
}

// copied returns a, or a copy of what a points to: the caller can change that later.
func copied(a algorithm.Algorithm) algorithm.Algorithm {
	if v := reflect.ValueOf(a); v.Kind() == reflect.Pointer {
		if value, ok := v.Elem().Interface().(algorithm.Algorithm); ok {
			return value
		}
	}
	return a
}

// newLimit returns the limit of a. Errors name the rule by label.
func newLimit(label string, a algorithm.Algorithm) (*contract.Limit, error) {
	if v := reflect.ValueOf(a); a == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fail(ErrInvalidRule, "%s: its Algorithm is nil: set one, for example algorithm.GCRA", label)
	}
	limit, err := a.NewLimit()
	switch {
	case err != nil:
		return nil, fail(err, "%s: %s", label, plain(err))
	case limit == nil || limit.Kind == nil || limit.Kind.Common() == nil:
		return nil, fail(ErrInvalidRule, "%s: NewLimit of its %T returned no limit, or a limit without a Kind: it must return a limit with a Kind, or an error", label, a)
	case limit.Capacity < 1 || limit.Capacity > contract.MaxTokens:
		return nil, fail(ErrInvalidRule, "%s: NewLimit of its %T returned the Capacity %d: it must be from 1 to %d", label, a, limit.Capacity, int64(contract.MaxTokens))
	}
	return limit, nil
}

// A bound is a list of rules with their scripts, constants and keys, which are prepared
// once. It is the Decider inside all wrappers.
type bound struct {
	*shared
	rules  []rule
	only   bool     // made by Limiter.Only
	limits [32]byte // a digest of the rules' limits
	way    way

	all    *group
	leases *group // the rules that hold leases; nil if there is none
	resets *group // the rules identified by the full key; nil if there is none
	kept   *group // the only rule that keeps metadata; nil if there is none, or several

	lease time.Duration // the shortest lease time of all rules
	can   capabilities

	shadows []*bound // one for each shadow rule
}

// A group is a set of rules of a bound that one script decides.
type group struct {
	program *compose.Program
	rules   []*rule // in the order of the limiter
}

// bind prepares the scripts, constants and keys of rules.
func bind(sh *shared, rules []rule, only bool) (*bound, error) {
	b := &bound{shared: sh, rules: rules, only: only, lease: Never}
	var err error
	if b.all, err = b.newGroup(func(*rule) bool { return true }); err != nil {
		return nil, err
	}
	for i := range rules {
		r := &rules[i]
		r.index, r.features = i, featuresOf(r, b.all.program.Marked(i))
		if r.has(leases) {
			b.lease = min(b.lease, r.limit.Lease)
		}
	}
	b.can = capabilitiesOf(rules)
	if b.can.any(leases) && b.can.any(entries) {
		return nil, fail(ErrInvalidRule, "a rule that holds leases and a rule that keeps metadata cannot share a limiter: use two limiters")
	}
	for _, g := range []struct {
		group **group
		has   func(r *rule) bool
	}{
		{&b.leases, func(r *rule) bool { return r.has(leases) }},
		{&b.resets, func(r *rule) bool { return only || sh.space.full(r.key) }},
		{&b.kept, func(r *rule) bool { return r.has(entries) && b.can.count(entries) == 1 }},
	} {
		if *g.group, err = b.newGroup(g.has); err != nil {
			return nil, err
		}
	}
	b.limits = digest(rules)
	b.way = b.chooseWay()
	return b, nil
}

// newGroup returns the group with the rules for which has returns true. It returns nil if
// there are none.
func (b *bound) newGroup(has func(r *rule) bool) (*group, error) {
	var g group
	var rules []compose.Rule
	for i := range b.rules {
		if r := &b.rules[i]; has(r) {
			g.rules = append(g.rules, r)
			rules = append(rules, compose.Rule{Name: r.name, Limit: r.limit, Cost: r.cost, Share: r.share})
		}
	}
	switch {
	case len(rules) == 0:
		return nil, nil //nolint:nilnil // a limiter need not have such rules
	case len(rules) == len(b.rules) && b.all != nil:
		return b.all, nil
	}
	var err error
	if g.program, err = compose.New(rules); err != nil {
		return nil, fail(ErrInvalidRule, "%s", plain(err))
	}
	return &g, nil
}

// digest returns a hash of the rules' limits and costs.
func digest(rules []rule) [32]byte {
	var b []byte
	for _, r := range rules {
		b = strconv.AppendQuote(b, r.kind().Name)
		b = strconv.AppendInt(b, r.cost, 10)
		if r.share > 0 { // its arguments are those of the whole limit
			b = strconv.AppendInt(append(b, '/'), r.share, 10)
		}
		if k, ok := r.limit.Kind.(*contract.StepKind); ok && k.Keys > 0 { // the windows of an algorithm.SlidingBuckets are in its Lua only
			b = strconv.AppendQuote(b, k.Lua)
		}
		for _, arg := range r.limit.Args {
			b = strconv.AppendQuote(b, arg.String())
		}
	}
	return sha256.Sum256(b)
}

// now reads Options.Clock, which is not nil.
func (sh *shared) now() (int64, error) {
	t := sh.clock()
	now := t.UnixMicro()
	if now < 1 || now >= 1<<52 {
		return 0, fmt.Errorf("weir: Options.Clock returned %v: it must be later than 1970 and earlier than 2112", t)
	}
	return now, nil
}
