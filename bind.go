package weir

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A base is what a limiter has in common with the limiters that With and Only return.
type base struct {
	store  store.Store
	clock  func() time.Time
	borrow bool          // the store keeps no key beyond a call
	memory *memory.Store // the store, if it is a *memory.Store
	space  *keySpace
	share  bool // made by Limiter.Share

	settles bool // Options.Settles
}

// newBase returns the base of limiters over st.
func newBase(st store.Store, clock func() time.Time, space *keySpace) *base {
	g := &base{store: st, clock: clock, space: space}
	g.memory, _ = st.(*memory.Store)
	if b, ok := st.(store.Borrower); ok {
		g.borrow = b.BorrowsStrings(st)
	}
	return g
}

// checkStore returns an error if st cannot be the store of a limiter.
func checkStore(st store.Store) error {
	if st == nil {
		return errors.New("weir: the store is nil: pass a store, for example memory.New(nil)")
	}
	if c, ok := st.(store.Checker); ok {
		if err := c.Check(); err != nil {
			return fmt.Errorf("weir: %w", err)
		}
	}
	return nil
}

// now reads Options.Clock, which is not nil.
func (g *base) now() (int64, error) {
	t := g.clock()
	now := t.UnixMicro()
	if now < 1 || now >= 1<<52 {
		return 0, fmt.Errorf("weir: Options.Clock returned %v: it must be later than 1970 and earlier than 2112", t)
	}
	return now, nil
}

// settleTime is how long a decision can be settled, at least, in rules that count a unit
// or stand beside a lease: see [Options].Settles.
const settleTime = 10 * time.Minute

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
		if list[i].unit, err = space.unit(label, r.Unit); err != nil {
			return nil, err
		}
		if r.Unit != "" {
			sum := sha256.Sum256([]byte(r.Unit))
			list[i].unitHash = [4]byte(sum[:])
		}
		if by[i], err = space.by(label, r.By); err != nil {
			return nil, err
		}
	}
	return list, space.addRules(list, by)
}

// A ruleSet is a list of rules with their scripts, constants and keys, which are prepared
// once. It is the Decider inside all wrappers.
type ruleSet struct {
	*base
	rules  []rule
	only   bool     // made by Limiter.Only
	limits [32]byte // a digest of the rules' limits
	way    way

	all    *group
	leases *group // the rules that hold leases; nil if there is none
	resets *group // the rules identified by the full key; nil if there is none
	kept   *group // the only rule that keeps metadata; nil if there is none, or several
	pauses *group // the only rule that pauses keys; nil if there is none, or several

	lease  time.Duration // the shortest lease time of all rules
	renews time.Duration // the same, of the shadow rules too
	can    capabilities

	shadows []*ruleSet // one for each shadow rule
}

// A group is a set of rules of a ruleSet that one script decides.
type group struct {
	program *compose.Program
	rules   []*rule // in the order of the limiter
}

// bind prepares the scripts, constants and keys of rules.
func bind(g *base, rules []rule, only bool) (*ruleSet, error) {
	b := &ruleSet{base: g, rules: rules, only: only, lease: Never}
	var err error
	if b.all, err = b.newGroup(func(*rule) bool { return true }); err != nil {
		return nil, err
	}
	for i := range rules {
		r := &rules[i]
		r.index, r.features = i, featuresOf(r, b.all.program.Marked(i), b.all.program.Bills())
		if r.has(leases) {
			b.lease = min(b.lease, r.limit.Lease)
		}
	}
	b.renews = b.lease
	b.can = capabilitiesOf(rules)
	if b.can.any(leases) && b.can.any(entries) {
		return nil, fail(ErrInvalidRule, "a rule that holds leases and a rule that keeps metadata cannot share a limiter: a lease needs an ID, and metadata cannot be refunded: use two limiters")
	}
	for _, one := range []struct {
		group **group
		has   func(r *rule) bool
	}{
		{&b.leases, func(r *rule) bool { return r.has(leases) }},
		{&b.resets, func(r *rule) bool { return only || g.space.full(r.key) }},
		{&b.kept, func(r *rule) bool { return r.has(entries) && b.can.count(entries) == 1 }},
		{&b.pauses, func(r *rule) bool { return r.has(pauses) && b.can.count(pauses) == 1 }},
	} {
		if *one.group, err = b.newGroup(one.has); err != nil {
			return nil, err
		}
	}
	b.limits = digest(rules, g.space.units)
	b.way = b.chooseWay()
	return b, nil
}

// newGroup returns the group with the rules for which has returns true. It returns nil if
// there are none.
func (b *ruleSet) newGroup(has func(r *rule) bool) (*group, error) {
	var g group
	var rules []compose.Rule
	life := time.Duration(0)
	if b.settles {
		life = settleTime
		for i := range b.rules {
			life = max(life, b.rules[i].limit.Lease)
		}
	}
	for i := range b.rules {
		if r := &b.rules[i]; has(r) {
			unit := r.unit
			if unit == 0 && len(b.space.units) > 0 {
				unit = -1
			}
			g.rules = append(g.rules, r)
			rules = append(rules, compose.Rule{Name: r.name, Limit: r.limit, Cost: r.cost, Unit: unit, Life: life.Microseconds(), Share: r.share})
		}
	}
	switch {
	case len(rules) == 0:
		return nil, nil // a limiter need not have such rules
	case len(rules) == len(b.rules) && b.all != nil:
		return b.all, nil
	}
	var err error
	if g.program, err = compose.New(rules); err != nil {
		return nil, fail(ErrInvalidRule, "%s", plain(err))
	}
	return &g, nil
}

// digest returns a hash of the rules' limits, costs and units.
func digest(rules []rule, units []string) [32]byte {
	var b []byte
	for _, r := range rules {
		b = strconv.AppendQuote(b, r.kind().Name)
		b = strconv.AppendInt(b, r.cost, 10)
		if r.unit > 0 {
			b = strconv.AppendQuote(b, units[r.unit-1])
		}
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

// A way is how a limiter decides. It is chosen once, when the rules are bound.
type way uint8

const (
	byScript    way = iota // Eval of the store runs a script
	onSlots                // a decision on the slots of a memory store, and byScript what it does not support
	inLine                 // the same in a straight line for plain requests, and onSlots the others
	withUnits              // as onSlots or byScript, for rules that count units
	withShadows            // shadow rules decide beside the others
)

// chooseWay returns how b decides if it has no shadow rules.
func (b *ruleSet) chooseWay() way {
	switch {
	case b.can.any(counts):
		return withUnits
	case b.memory == nil || !b.all.program.HasCells():
		return byScript
	case len(b.rules) == 1 && b.can.plain() && b.clock == nil && len(b.rules[0].key.other.list) == 0:
		return inLine
	}
	return onSlots
}

// every returns the rules and the shadow rules.
func (b *ruleSet) every() []rule {
	rules := slices.Clone(b.rules)
	for _, shadow := range b.shadows {
		rules = append(rules, shadow.rules...)
	}
	return rules
}

// of returns the ruleSet that has rule n of every.
func (b *ruleSet) of(n int) *ruleSet {
	if n < len(b.rules) {
		return b
	}
	return b.shadows[n-len(b.rules)]
}

// find returns the index in every, which is b.every(), of the rule with that name, or -1.
func (b *ruleSet) find(every []rule, name string) int {
	if name == "" && len(b.rules) == 1 {
		return 0
	}
	return slices.IndexFunc(every, func(r rule) bool { return r.name == name })
}

// names lists the names of the rules.
func (b *ruleSet) names() string {
	var names []string
	for _, r := range b.every() {
		names = append(names, r.name)
	}
	return quoted(names)
}
