// Package algorithms holds the checks of an algorithm, and describes the built-in algorithms
// to them.
package algorithms

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store/memory"
)

// A Subject is the algorithm under test. New, Unit and Huge are those of
// conformance.Subject.
type Subject struct {
	New  func(r *rand.Rand) algorithm.Algorithm
	Unit func(a algorithm.Algorithm) time.Duration
	Huge []algorithm.Algorithm

	// The following are set for a built-in algorithm. Name is its name. lacks names the
	// checks that it leaves out, because it does not support the verb. refill returns an
	// algorithm that denies for about d when no tokens are left. It is nil if there is
	// none. members are texts that no decision writes to its key: members of a sorted set
	// or, if list is true, of a list.
	Name    string
	lacks   []string
	refill  func(d time.Duration) algorithm.Algorithm
	members []string
	list    bool
}

func (s *Subject) builtIn() bool { return s.Name != "" }

// T is the state of a check of an algorithm.
type T struct {
	*decisions.T
	subject *Subject
}

// On returns the state of a check of s.
func (s *Subject) On(t *suite.T) *T {
	d := decisions.New(t)
	if !s.builtIn() {
		d.Unit = s.Unit
	}
	return &T{d, s}
}

// Times returns the number of times that a random check runs, given the number n for a
// check of a store. RunAlgorithm runs it half as often. There are many built-in
// algorithms, so Run runs it an eighth as often for each, and in a brief run a quarter of
// that, because one algorithm finds what another misses on a store.
func (t *T) Times(n int) int {
	switch {
	case t.subject.builtIn() && t.Brief:
		n /= 32
	case t.subject.builtIn() || t.Brief:
		n /= 8
	default:
		n /= 2
	}
	return max(n, 1)
}

// Group returns the checks of s.
func (s *Subject) Group() suite.Group {
	of := func(name, text string, run func(*T)) suite.Check { return suite.Of(name, text, run, s.On) }
	checks := []suite.Check{
		of("Zero", "NewLimit returns ErrInvalidLimit for the zero value, and always the same Kind for equal limits", checkZero),
		of("Same", "every verb gives the same answers as on the memory store; values, entries and TTLs are the same too, even if the limit changes", checkSame),
		of("Ask", "Peek and a denied request write nothing", checkAsk),
		of("Peek", "Peek answers as Consume would answer, and DoMany answers each peek as Peek does", checkPeek),
		of("Remaining", "exactly Remaining tokens can be consumed", checkRemaining),
		of("Mix", "with up to fifteen other rules, which fit into one script, a rule answers as it does alone; all rules consume or none does; TakeUpTo consumes the fewest tokens that any rule has", checkMix),
		of("Exact", "a denied request is denied until 1µs before RetryAfter, and allowed at RetryAfter", checkExact),
		of("Never", "a cost above the limit is denied with Never, and changes nothing", checkNever),
		of("HotKey", "many concurrent callers consume exactly the limit", checkHotKey),
		of("Backwards", "if the clock steps back, no wait gets longer by more than the step, and no more requests are allowed", checkBackwards),
		of("OwnClock", "the store's clock and a caller's clock give the same answers", checkOwnClock),
		of("Foreign", "if a key holds a foreign value, or has another type, the error is an ErrForeign that names the key, and no key changes", checkForeign),
		of("Layout", "if a value has the algorithm's tag and another layout, an integer with leading zeros, or an integer above 2^53-1, the error is ErrForeign, and the value does not change", checkLayout),
		of("TTL", "every key exists as long as its state is in use, even if its limit changes; a key of a built-in algorithm expires at most 1.05 s later", checkTTL),
		of("Expired", "a decision is the same whether an expired key still exists or not, unless another limit wrote that key", checkExpired),
		of("ResetAfter", "ResetAfter gets shorter as time passes, and at ResetAfter all tokens are available", checkResetAfter),
		of("Reset", "Reset clears one key, and no other", checkReset),
		of("Refund", "Refund refunds, once, the tokens that have not been refilled, and never leaves more tokens than without the request", checkRefund),
		of("MaxWait", "with MaxWait, a request is allowed if and only if its turn is at most MaxWait ahead, and Delay is the time until its turn", checkMaxWait),
		of("Units", "an amount of 0 of a unit consumes nothing, and is denied exactly while the limit is in debt", checkUnits),
		of("Huge", "numbers near their bounds are as exact as small ones", checkHuge),
	}
	if !s.builtIn() {
		checks = append(checks, of("Carry", "Carry says, if the limit changes, whether consumed tokens stay consumed, and how long a caller that has consumed all waits at most", checkCarry))
		return suite.Group{Name: "Algorithm", Checks: checks}
	}
	checks = slices.DeleteFunc(checks, func(c suite.Check) bool { return slices.Contains(s.lacks, c.Name) })
	if s.refill != nil {
		checks = append(checks, of("Refill", "on the store's clock, a denied request is allowed at RetryAfter, and not before", checkRefill))
	}
	if s.list {
		checks = append(checks, of("Newest", "Entries lists the newest 1000 requests if there are more", checkNewest))
	}
	return suite.Group{Name: s.Name, Checks: checks}
}

// Draw returns an algorithm to check.
func (t *T) Draw(r *rand.Rand) algorithm.Algorithm {
	a := t.subject.New(r)
	if a == nil {
		t.Fatalf("Subject.New returned nil")
	}
	t.Leases = t.KindOf(a).Leases
	return a
}

// drawn returns an algorithm to check, and a limiter of it with a clock.
func (t *T) drawn(r *rand.Rand) (algorithm.Algorithm, *decisions.Clock, *weir.Limiter) {
	a, c := t.Draw(r), decisions.NewClock()
	return a, c, t.Limiter(c, decisions.One(a))
}

// relative returns an algorithm that shares its state with a and has another limit. If
// Subject.New returns none, relative returns a.
func (t *T) relative(r *rand.Rand, a algorithm.Algorithm) algorithm.Algorithm {
	for range 20 {
		b := t.Draw(r)
		x, y := t.KindOf(a), t.KindOf(b)
		if x.Tag == y.Tag && max(x.Keys, 1) == max(y.Keys, 1) && !reflect.DeepEqual(a, b) {
			return b
		}
	}
	return a
}

// small returns an algorithm whose limit is at most smallLimit. ok must accept the
// algorithm and its first denial.
func (t *T) small(r *rand.Rand, what string, ok func(algorithm.Algorithm, weir.Result) bool) algorithm.Algorithm {
	const draws = 500
	for range draws {
		a := t.Draw(r)
		if t.LimitOf(a).Capacity > smallLimit {
			continue
		}
		l := t.Reference(memory.New(nil), nil, decisions.One(a))
		for range 2 * smallLimit {
			if res := t.Allow(l, 1, "small"); !res.Allowed {
				if ok(a, res) {
					return a
				}
				break
			}
		}
	}
	t.Fatalf("Subject.New returned %d algorithms: at least one must have a limit of at most %d and %s", draws, smallLimit, what)
	return nil
}

// smallLimit is the largest limit whose tokens a check consumes one by one, several times.
const smallLimit = 50

// slow returns an algorithm that refills no token within a minute. If the window of an
// algorithm is about to end, for example a day, slow waits until it has ended, once.
func (t *T) slow(r *rand.Rand) algorithm.Algorithm {
	waited := false
	return t.small(r, "refill no token within a minute", func(_ algorithm.Algorithm, res weir.Result) bool {
		if res.RetryAfter <= time.Minute && !waited && res.Window > smallLimit*time.Minute {
			time.Sleep(res.RetryAfter)
			waited = true
		}
		return res.RetryAfter > time.Minute
	})
}

// request returns a request to a for cost tokens, or fewer if a cannot consume cost at once.
func (t *T) request(r *rand.Rand, a algorithm.Algorithm, cost int64, key string) weir.Request {
	req := weir.Request{Key: weir.KeyOf(key), Cost: t.Fitting(a, cost)}
	switch kind := t.KindOf(a); {
	case kind.Entries:
		req.Metadata = model.Pick(r, "", "some", "\x00\xff m1 ", strings.Repeat("\xff", algorithm.MaxMetadata))
	case kind.Leases:
		req.ID = t.Lease()
	}
	return req
}

// AnyRequest returns a random request to a: Consume, Peek or TakeUpTo or, if a has leases,
// Consume, Peek, Renew or Release.
func (t *T) AnyRequest(r *rand.Rand, a algorithm.Algorithm, key string) weir.Request {
	req := t.request(r, a, model.Pick(r, model.Cost(r), model.Cost(r), r.Int64N(9)), key)
	if t.Leases {
		req.ID = model.Pick(r, leaseNames[:min(int64(len(leaseNames)), t.LimitOf(a).Capacity+2)]...)
		switch req.Op = model.Pick(r, weir.Consume, weir.Consume, weir.Consume, weir.Consume, weir.Peek, weir.Renew, weir.Release); req.Op {
		case weir.Renew, weir.Release:
			req.Cost = 0
		case weir.Peek:
			req.ID = model.Pick(r, req.ID, "")
		}
		return req
	}
	req.Op = model.Pick(r, weir.Consume, weir.Consume, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Peek)
	switch {
	case req.Op == weir.TakeUpTo:
		req.Cost = model.Pick(r, req.Cost, 1+r.Int64N(30), hugeCost)
	case t.KindOf(a).Reserves && r.IntN(4) == 0:
		req.MaxWait = model.Wait(r, t.Unit(a))
	}
	return req
}

var leaseNames = []string{"a", "7", "\x00", "c2 a", " ", strings.Repeat("\xff", algorithm.MaxLease), "x", "y", "z"}

// hugeCost is more than any capacity, and near the largest integer.
const hugeCost = 1 << 62

// takeAll consumes all tokens that a has, and returns their number.
func (t *T) takeAll(l *weir.Limiter, a algorithm.Algorithm, key string) int64 {
	taken := int64(0)
	for range min(10_000, t.LimitOf(a).Capacity) { // leases can expire as fast as a slow store gives them
		left := t.Peek(l, 1, key).Remaining
		if left == 0 {
			break
		}
		cost := t.Fitting(a, left)
		if res := t.Allow(l, cost, key); !res.Allowed {
			t.Errorf("%+v: %d tokens remain, and %d are denied: %+v", a, left, cost, res)
			break
		}
		taken += cost
	}
	return taken
}

// patience returns the MaxWait with which all tokens of a can be consumed one by one: 0,
// or Never if a is a queue, where a request passes only if no other waits.
func (t *T) patience(a algorithm.Algorithm) time.Duration {
	if !t.KindOf(a).Reserves {
		return 0
	}
	l := t.Reference(memory.New(nil), decisions.NewClock(), decisions.One(a))
	limit := t.Allow(l, 1, "queue").Limit
	if limit > 1 && t.Peek(l, 1, "queue").Remaining == 0 {
		return weir.Never
	}
	return 0
}

// refundable reports whether decisions of a can be refunded.
func (t *T) refundable(a algorithm.Algorithm) bool {
	_, err := t.Reference(memory.New(nil), decisions.NewClock(), decisions.One(a)).Refund(t.Ctx, weir.Request{Key: weir.KeyOf("k"), ID: "id"})
	switch {
	case errors.Is(err, weir.ErrUnsupported):
		return false
	case err != nil:
		t.Fatalf("Refund: %v", err)
	}
	return true
}

// has draws n algorithms, and returns those that support verb. It checks that the others
// return ErrUnsupported. If no algorithm supports verb, the check is skipped.
func (t *T) has(n int, verb string, such func(algorithm.Algorithm) bool, r weir.Request) []algorithm.Algorithm {
	random := t.Rand()
	var list []algorithm.Algorithm
	for range n {
		a := t.Draw(random)
		if such(a) {
			list = append(list, a)
			continue
		}
		r.Key = weir.KeyOf("has")
		if t.Leases {
			r.ID = "has"
		}
		if _, err := t.Limiter(decisions.NewClock(), decisions.One(a)).Decide(t.Ctx, r, nil); !errors.Is(err, weir.ErrUnsupported) {
			t.Errorf("%+v has no %s: it returns the error %v, want ErrUnsupported", a, verb, err)
		}
	}
	if len(list) == 0 && !t.Failed() {
		t.Skipf("algorithm has no %s", verb)
	}
	return list
}
