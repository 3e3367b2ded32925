package weir

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A StandIn answers some requests in place of the store, as if the store had decided: it
// remembers a denial, or holds tokens. Package outage must stand inside every StandIn, because
// it would take such an answer for a sign that the store works.
type StandIn interface {
	Decider
	StandsIn()
}

// maxDepth is the largest number of Deciders that stand around one another, as Find sees
// them.
const maxDepth = 1000

// Find returns the first T among d and the Deciders in d: the next one of a Decider is what
// its method Unwrap() Decider returns, and in a [Limiter] are its wrappers. With Find, a
// [Wrapper] detects that it is used twice, or in a wrong order. Find gives up after 1,000
// Deciders, for example if an Unwrap returns its own Decider.
func Find[T any](d Decider) (found T, ok bool) {
	for range maxDepth {
		if d == nil {
			break
		}
		if found, ok = d.(T); ok {
			return found, true
		}
		switch around := d.(type) {
		case *Limiter:
			if d = nil; around != nil {
				d = around.outer
			}
		case interface{ Unwrap() Decider }:
			d = around.Unwrap()
		default:
			d = nil
		}
	}
	return found, false
}

// Wrap returns a limiter in which every decision passes through the wrappers w, from left to
// right, and then through the wrappers of earlier calls:
//
//	lim, err = lim.Wrap(observe.Observer(count).Wrap, denycache.New(nil).Wrap, out.Wrap)
//
// [Limiter.With] and [Limiter.Only] call the wrappers again, for the limiter that they return.
//
// The error is that of a wrapper, for example because the rules do not support it, or because
// of the order of the wrappers. It is another error if a Wrapper is nil, or returns nil.
func (l *Limiter) Wrap(w ...Wrapper) (*Limiter, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	wrappers := slices.Clone(l.wrappers)
	for _, wrapper := range slices.Backward(w) {
		wrappers = append(wrappers, wrapper)
	}
	return newLimiter(l.bound, wrappers)
}

// A RuleInfo describes a rule of a limiter: see [Limiter.Rules].
type RuleInfo struct {
	Name      string              // as a Result has it: the algorithm's name if the rule has none
	By        []string            // the segments that identify the limit
	Algorithm algorithm.Algorithm // with its parameters
	Cost      int64               // as in Rule.Cost
	Shadow    bool                // as in Rule.Shadow

	Kind    string        // the name of the algorithm, for example "gcra"
	Limit   int64         // the capacity, in tokens
	MaxCost int64         // the most tokens that can be consumed at once; 0 means Limit
	Window  time.Duration // the time in which Limit tokens are refilled; 0 for algorithm.Concurrency and Pause

	Reserves bool // Request.MaxWait can be above 0
	Refunds  bool // Request.ID names a decision, which can be refunded if all rules can
	Debt     bool // Force and Settle can consume more than Limit
	Leases   bool // an allowed request holds a lease
	Entries  bool // Request.Metadata is stored
	Queues   bool // requests that reserve tokens go ahead one by one
	Pauses   bool // the rule has no limit: it closes keys, as algorithm.Pause does
}

// Rules describes the rules of l: first the rules of [Policy].Rules in their order, without the
// shadow rules, and then the shadow rules. If l is nil or a zero value, there are none.
func (l *Limiter) Rules() []RuleInfo {
	if l == nil || l.bound == nil {
		return nil
	}
	var infos []RuleInfo
	for i := range l.bound.rules {
		infos = append(infos, l.bound.describe(i, false))
	}
	for _, shadow := range l.bound.shadows {
		infos = append(infos, shadow.describe(0, true))
	}
	return infos
}

// describe describes rule n of b.
func (b *bound) describe(n int, shadow bool) RuleInfo {
	r := &b.rules[n]
	info := RuleInfo{
		Name: r.name, Algorithm: r.algorithm, Cost: r.cost, Shadow: shadow,
		Kind: r.kind().Name, Limit: r.limit.Capacity, MaxCost: r.limit.MaxCost, Window: r.limit.Window,
		Reserves: r.has(reserves), Refunds: r.has(refunds), Debt: r.has(debts),
		Leases: r.has(leases), Entries: r.has(entries), Queues: r.has(queues), Pauses: r.has(pauses),
	}
	for _, i := range r.key.by.list() {
		info.By = append(info.By, b.space.segments[i])
	}
	return info
}

// Store returns the store of l. It is nil if l is nil or a zero value.
func (l *Limiter) Store() store.Store {
	if l == nil || l.bound == nil {
		return nil
	}
	return l.bound.store
}

// Check returns the error of misuse that [Limiter.Decide] would return for r and each, without
// a call of the store. It does not look at the shadow rules.
func (l *Limiter) Check(r Request, each []Result) error {
	if l == nil || l.bound == nil {
		return errNoLimiter
	}
	var q query
	return l.bound.check(&q, &r, len(each))
}

// Digest returns a hash of the keys and the limits of l. Over one store, limiters with the same
// Digest decide alike, apart from their wrappers and shadow rules. It is zero if l is nil or a
// zero value.
func (l *Limiter) Digest() (sum [32]byte) {
	if l == nil || l.bound == nil {
		return sum
	}
	b := l.bound
	text := append([]byte(b.space.head), b.limits[:]...)
	text = append(text, byte(b.space.secret), byte(len(b.space.segments)))
	for _, n := range b.space.shared {
		text = append(text, byte(n))
	}
	for i := range b.rules {
		text = strconv.AppendQuote(append(text, byte(b.rules[i].key.by)), b.rules[i].key.tail)
	}
	return sha256.Sum256(text)
}
