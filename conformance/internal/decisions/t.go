// Package decisions has what the checks of algorithms and of limiters share: it makes
// limiters on the store under test, and decides with them.
package decisions

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// T is the state of a check that makes decisions.
type T struct {
	*suite.T
	Unit   func(algorithm.Algorithm) time.Duration // a time in which the state of the algorithm changes
	Leases bool                                    // requests hold leases
	names  int                                     // the number of named leases
}

// New returns a T for built-in algorithms.
func New(t *suite.T) *T { return &T{T: t, Unit: model.Unit} }

// TenPerMinute is a limit for checks that need any algorithm.
var TenPerMinute = algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 5}

// Quarters has 8 buckets and one span.
var Quarters = algorithm.SlidingBuckets{Width: 15 * time.Second, Spans: []algorithm.Span{{Window: 2 * time.Minute, Limit: 5}}}

// Peeks returns one request of the Op Peek for each key.
func Peeks(keys [][]string) []weir.Request {
	requests := make([]weir.Request, len(keys))
	for i, key := range keys {
		requests[i] = weir.Request{Key: weir.KeyOf(key...), Op: weir.Peek}
	}
	return requests
}

// Reset resets key.
func (t *T) Reset(l *weir.Limiter, key ...string) {
	if err := l.Reset(t.Ctx, key...); err != nil {
		t.Errorf("Reset: %v", err)
	}
}

// Refund refunds the decision with the ID, and reports whether any token was refunded.
func (t *T) Refund(l *weir.Limiter, id, key string) bool {
	return t.Do(l, weir.Request{Key: weir.KeyOf(key), Op: weir.Refund, ID: id}).Allowed
}

// Fitting returns the largest cost, at most cost, that a can consume at once.
func (t *T) Fitting(a algorithm.Algorithm, cost int64) int64 {
	limit := t.LimitOf(a)
	if limit.MaxCost > 0 && cost <= limit.Capacity {
		return min(cost, limit.MaxCost)
	}
	return cost
}

// LongestWait returns how far ahead tokens of a can be reserved.
func (t *T) LongestWait(a algorithm.Algorithm) time.Duration {
	if t.KindOf(a).Reserves {
		return contract.Micros(t.LimitOf(a).MaxWait)
	}
	return 0
}

// Limiter returns a limiter over the store. Its clock is c, or the store's clock if c is
// nil. Its segments are those of policyOf.
func (t *T) Limiter(c *Clock, rules ...weir.Rule) *weir.Limiter {
	return t.Policy(t.Store, c, policyOf(rules))
}

// Reference is Limiter over another store.
func (t *T) Reference(st store.Store, c *Clock, rules ...weir.Rule) *weir.Limiter {
	return t.policyOn(st, c, policyOf(rules))
}

// policyOf returns the policy of Limiter. The names of its segments are from "s0" to the
// highest name in a By, or only "s0" if no rule has a By. Its units are those of the rules.
func policyOf(rules []weir.Rule) weir.Policy {
	names := []string{"s0", "s1", "s2"}
	n := 1
	var units []string
	for _, r := range rules {
		if r.Unit != "" && !slices.Contains(units, r.Unit) {
			units = append(units, r.Unit)
		}
		for _, by := range r.By {
			n = max(n, slices.Index(names, by)+1)
		}
	}
	return weir.Policy{Name: suite.Name, Segments: names[:n], Units: units, Rules: rules}
}

// Policy returns the limiter of p, with the prefix of this check. st is the store under test,
// or passes all calls to it.
func (t *T) Policy(st store.Store, c *Clock, p weir.Policy) *weir.Limiter {
	t.Mutate(&p)
	return t.policyOn(st, c, p)
}

func (t *T) policyOn(st store.Store, c *Clock, p weir.Policy) *weir.Limiter {
	opts := &weir.Options{Prefix: t.Prefix}
	if c != nil {
		opts.Clock = c.Now
	}
	if len(p.Units) > 0 { // markers then live longer than the decision
		opts.Settles = true
		if _, err := weir.NewPolicy(st, p, opts); errors.Is(err, weir.ErrUnsupported) {
			opts.Settles = false
		}
	}
	return suite.Must[*weir.Limiter](t.T, "NewPolicy")(weir.NewPolicy(st, p, opts))
}

// One is the only rule of a limiter.
func One(a algorithm.Algorithm) weir.Rule { return weir.Rule{Name: "one", Algorithm: a} }

// Do decides r. If each is not empty, it gets the results of the rules. If r needs a lease
// and has no ID, Do gives it a new one.
func (t *T) Do(l *weir.Limiter, r weir.Request, each ...weir.Result) weir.Result {
	if t.Leases && r.Op == weir.Consume && r.ID == "" {
		r.ID = t.Lease()
	}
	res, err := l.Decide(t.Ctx, r, each)
	if err != nil {
		t.Fatalf("Decide %+v: %v", r, err)
	}
	return res
}

// Lease returns a new name of a lease.
func (t *T) Lease() string {
	t.names++
	return "lease" + strconv.Itoa(t.names)
}

// Allow consumes cost tokens. A cost of 0 means 1.
func (t *T) Allow(l *weir.Limiter, cost int64, key ...string) weir.Result {
	return t.Do(l, weir.Request{Key: weir.KeyOf(key...), Cost: cost})
}

// Peek asks for cost tokens. A cost of 0 means 1.
func (t *T) Peek(l *weir.Limiter, cost int64, key ...string) weir.Result {
	return t.Do(l, weir.Request{Key: weir.KeyOf(key...), Op: weir.Peek, Cost: cost})
}

// Entries returns what Entries lists for key.
func (t *T) Entries(l *weir.Limiter, key ...string) []weir.Entry {
	return suite.Must[[]weir.Entry](t.T, "Entries")(l.Entries(t.Ctx, key...))
}

// LimitOf returns the limit of a.
func (t *T) LimitOf(a algorithm.Algorithm) *contract.Limit {
	return suite.Must[*contract.Limit](t.T, "NewLimit")(a.NewLimit())
}

// A Kind is a contract.Kind in one type. The fields of the other kind are zero.
type Kind struct {
	*contract.Head
	contract.MeterKind
	contract.StepKind
}

// KindOf returns the kind of a.
func (t *T) KindOf(a algorithm.Algorithm) (k Kind) {
	switch one := t.LimitOf(a).Kind.(type) {
	case *contract.MeterKind:
		k.Head, k.MeterKind = &one.Head, *one
	case *contract.StepKind:
		k.Head, k.StepKind = &one.Head, *one
	}
	return k
}

// KeysLike returns the keys that the limiters of this check wrote for names that begin with
// start, with their TTLs. A start that ends with } is one whole name. If the backend lists
// no keys, KeysLike returns none.
func (t *T) KeysLike(start string) map[string]time.Duration {
	return t.List(":" + suite.Name + ":{" + start)
}

// A Clock is a virtual clock.
type Clock struct{ Micros int64 }

// NewClock starts at a fixed instant, 2026-01-01 00:00:00 UTC, and never at 0.
func NewClock() *Clock { return &Clock{Micros: 1_767_225_600_000_000} }

// Now returns the time.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.Micros) }

// Advance adds d to the time.
func (c *Clock) Advance(d time.Duration) { c.Micros += d.Microseconds() }

// Escaper escapes a segment that is a whole part of a key. It does not shorten.
var Escaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// KeyOf returns the first key in the store of the rule called name with the algorithm a.
// shared is the segment that all rules share, and other are the rule's other segments.
func (t *T) KeyOf(shared, name string, a algorithm.Algorithm, other ...string) string {
	return t.KeysOf(shared, name, a, other...)[0]
}

// KeysOf returns all keys of that rule.
func (t *T) KeysOf(shared, name string, a algorithm.Algorithm, other ...string) []string {
	kind := t.KindOf(a)
	key := t.Prefix + ":" + suite.Name + ":{" + Escaper.Replace(shared) + "}:" + strings.ReplaceAll(Escaper.Replace(name), ":", "%3A") + "." + string(kind.Tag[:])
	for _, segment := range other {
		key += ":" + Escaper.Replace(segment)
	}
	if kind.Keys <= 1 {
		return []string{key}
	}
	keys := make([]string, kind.Keys)
	for i := range keys {
		keys[i] = key + ":" + strconv.Itoa(i)
	}
	return keys
}

// MarkersOf returns the keys of the markers of the decision r, which has an ID, by a limiter
// with rules. There is one for each rule that supports Refund.
func (t *T) MarkersOf(r weir.Request, rules ...weir.Rule) []string {
	return Markers(func(st store.Store) {
		r.Op = weir.Consume
		_, _ = t.Reference(st, NewClock(), rules...).Decide(t.Ctx, r, nil)
	})
}

// Markers returns the keys of the markers of the decisions that decide makes on st.
func Markers(decide func(st store.Store)) []string {
	var named suite.Written
	decide(suite.Note(memory.New(nil), &named))
	return slices.DeleteFunc(slices.Sorted(maps.Keys(named.Keys)), func(key string) bool { return !strings.Contains(key, ":%id=") })
}
