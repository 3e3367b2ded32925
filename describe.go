package weir

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// Name returns the name of the limiter's policy.
func (l *Limiter) Name() string {
	if l == nil || l.ruleSet == nil {
		return ""
	}
	return l.ruleSet.space.name
}

// A SegmentInfo describes a segment: see [Limiter.Segments].
type SegmentInfo struct {
	Name   string
	Secret bool // the store has only its hash: see Policy.Secret
}

// Segments describes the segments of the limiter's keys, in the order of
// [Policy].Segments.
func (l *Limiter) Segments() []SegmentInfo {
	if l == nil || l.ruleSet == nil {
		return nil
	}
	ks := l.ruleSet.space
	infos := make([]SegmentInfo, len(ks.segments))
	for i, name := range ks.segments {
		infos[i] = SegmentInfo{Name: name, Secret: ks.secret.has(i)}
	}
	return infos
}

// A RuleInfo describes a [Rule]: see [Limiter.Rules].
type RuleInfo struct {
	Name      string   // the algorithm's name if the rule has none
	By        []string // never nil
	Algorithm algorithm.Algorithm
	CostBy    CostBy
	Cost      int64  // 0 unless CostBy is CostOwn
	Unit      string // empty unless CostBy is CostUnit
	Shadow    bool

	Kind    string        // the name of the algorithm, for example "gcra"
	Type    RuleType      // as in Result
	Limit   int64         // the capacity, in tokens
	MaxCost int64         // the most tokens of one request; 0 means Limit
	Window  time.Duration // as in Result

	Reserves bool // supports Request.MaxWait
	Refunds  bool // supports Refund, and an ID that names a decision
	Debt     bool // supports Force, and Settle if it also refunds
	Entries  bool // stores Request.Metadata
	Queues   bool // lets requests that reserve tokens go ahead one by one
}

// Rules describes the rules of l, in the order of [Policy].Rules but with the shadow
// rules last.
func (l *Limiter) Rules() []RuleInfo {
	if l == nil || l.ruleSet == nil {
		return nil
	}
	var infos []RuleInfo
	for i := range l.ruleSet.rules {
		infos = append(infos, l.ruleSet.describe(i, false))
	}
	for _, shadow := range l.ruleSet.shadows {
		infos = append(infos, shadow.describe(0, true))
	}
	return infos
}

// describe describes rule n of b.
func (b *ruleSet) describe(n int, shadow bool) RuleInfo {
	r := &b.rules[n]
	info := RuleInfo{
		Name: r.name, Algorithm: r.algorithm, CostBy: r.costBy, Cost: r.cost, Unit: b.unitOf(r), Shadow: shadow,
		Kind: r.kind().Name, Type: r.limit.Kind.Type(), Limit: r.limit.Capacity, MaxCost: r.limit.MaxCost, Window: r.limit.Window,
		Reserves: r.has(reserves), Refunds: r.has(refunds), Debt: r.has(debts),
		Entries: r.has(entries), Queues: r.has(queues),
	}
	for _, i := range r.key.by.list() {
		info.By = append(info.By, b.space.segments[i])
	}
	return info
}

// unitOf returns the unit that r counts, or "".
func (b *ruleSet) unitOf(r *rule) string {
	if r.unit == 0 {
		return ""
	}
	return b.space.units[r.unit-1]
}

// Units returns the names in [Policy].Units.
func (l *Limiter) Units() []string {
	if l == nil || l.ruleSet == nil {
		return nil
	}
	return slices.Clone(l.ruleSet.space.units)
}

// Store returns the store of l.
func (l *Limiter) Store() store.Store {
	if l == nil || l.ruleSet == nil {
		return nil
	}
	return l.ruleSet.store
}

// Check returns the error of misuse that [Limiter.Decide] would return for r and each,
// without a call of the store. It ignores shadow rules.
func (l *Limiter) Check(r Request, each []Result) error {
	if l == nil || l.ruleSet == nil {
		return errNoLimiter
	}
	var q query
	return l.ruleSet.check(&q, &r, len(each))
}

// Digest returns a hash of the keys and the limits of l. Over one store, limiters with
// the same Digest decide alike, apart from wrappers, shadow rules and time zone data.
func (l *Limiter) Digest() (sum [32]byte) {
	if l == nil || l.ruleSet == nil {
		return sum
	}
	b := l.ruleSet
	text := append([]byte(b.space.head), b.limits[:]...)
	text = append(text, byte(b.space.secret), byte(len(b.space.segments)))
	if b.settles && b.can.any(leases|counts) { // it decides how long a decision is known
		text = append(text, "settles"...)
	}
	for _, n := range b.space.shared.list {
		text = append(text, byte(n))
	}
	for i := range b.rules {
		text = strconv.AppendQuote(append(text, byte(b.rules[i].key.by)), b.rules[i].key.tail)
	}
	return sha256.Sum256(text)
}
