package conformance

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store/memory"
)

// A Subject is what [RunAlgorithm] needs to know of an algorithm.
type Subject struct {
	// New returns an algorithm to check, made with r. It is called many times. The
	// more the algorithms differ, the more is checked. Some of them must have a
	// limit of at most 50 tokens, and some of these must be slow: no token comes
	// back within a minute of its consumption.
	New func(r *rand.Rand) algorithm.Algorithm

	// Unit returns a time in which the state of a changes, 1 µs or more: one token
	// comes back, or a quarter of a window passes. The pauses of random histories
	// are about as long.
	Unit func(a algorithm.Algorithm) time.Duration

	// Huge lists algorithms at their bounds: the largest limit, the longest time.
	Huge []algorithm.Algorithm

	// Unsupported lists checks that the algorithm is known to fail, each with the
	// reason. They are skipped, and fail if the algorithm passes them after all.
	Unsupported map[string]string

	// Of a built-in algorithm: refill makes one that denies for about d when it is used
	// up; members are texts that no decision writes to its key, of a set or a list.
	builtin bool
	refill  func(d time.Duration) algorithm.Algorithm
	members []string
	list    bool
}

// algorithmChecks are the checks of any algorithm, built in or not.
var algorithmChecks = []check{
	{"Zero", "NewLimit returns ErrInvalidLimit for the zero value, and always the same Kind for equal limits", checkZero},
	{"Same", "every verb answers as on the memory store, and leaves the same values, entries and TTLs, also if its limit changes", checkSame},
	{"Ask", "Peek and a denied request write nothing", checkAsk},
	{"Peek", "Peek answers what Consume answers then", checkPeek},
	{"PeekMany", "DoMany answers each peek as Peek does", checkPeekMany},
	{"Remaining", "as many tokens as remain can be consumed, and no more, and Remaining counts them", checkRemaining},
	{"Mix", "with other rules each rule answers as it does alone, all consume or none does, and TakeUpTo consumes the fewest tokens that any has", checkMix},
	{"Sixteen", "sixteen rules fit into one script, and each answers as it does alone", checkSixteen},
	{"Exact", "a denied request is denied until 1µs before RetryAfter is over, and passes when it is over", checkExact},
	{"Never", "a cost above the limit is denied with Never, and changes nothing", checkNever},
	{"HotKey", "of many concurrent callers exactly the limit pass", checkHotKey},
	{"Backwards", "a clock that steps back lengthens no wait by more than the step, and allows nothing", checkBackwards},
	{"OwnClock", "the store's clock and a caller's clock mean the same", checkOwnClock},
	{"Foreign", "a foreign value is an ErrForeign that names the key, and no key is changed", checkForeign},
	{"ForeignType", "a key of another type is an ErrForeign that names the key, and no key is changed", checkForeignType},
	{"Layout", "a value with the algorithm's tag and another layout, or with an integer above 2^53-1, is an ErrForeign and is not changed", checkLayout},
	{"TTL", "every key lives as long as its state is in use, also if its limit changes, and of a built-in algorithm at most 1.05 s longer", checkTTL},
	{"Dead", "a decision is the same whether an expired key is still there or gone", checkDead},
	{"ResetAfter", "ResetAfter runs down with the clock, and when it is over all tokens are there", checkResetAfter},
	{"Reset", "Reset clears one key, and no other", checkReset},
	{"Refund", "Refund refunds once what is left of a decision, and never makes the limit fuller than without it", checkRefund},
	{"MaxWait", "with MaxWait a request is allowed exactly if its turn comes by then, and Delay tells when", checkMaxWait},
	{"Huge", "numbers near their bounds are as exact as small ones", checkHuge},
}

// unitOf returns a time in which the state of a changes.
func (t *T) unitOf(a algorithm.Algorithm) time.Duration {
	if t.backend.subject == nil {
		return unitOf(a)
	}
	return t.backend.subject.Unit(a)
}

// draw returns an algorithm to check.
func (t *T) draw(r *rand.Rand) algorithm.Algorithm {
	a := t.backend.subject.New(r)
	if a == nil {
		t.fatalf("Subject.New returned nil")
	}
	t.leases = t.kindOf(a).Leases
	return a
}

// relative returns an algorithm to check that shares its state with a, under another
// limit, or a if Subject.New makes none.
func (t *T) relative(r *rand.Rand, a algorithm.Algorithm) algorithm.Algorithm {
	for range 20 {
		b := t.draw(r)
		x, y := t.kindOf(a), t.kindOf(b)
		if x.Tag == y.Tag && max(x.Keys, 1) == max(y.Keys, 1) && !reflect.DeepEqual(a, b) {
			return b
		}
	}
	return a
}

// small returns an algorithm to check, of a limit that single tokens can use up. ok must
// accept it, and what it answers when it is used up.
func (t *T) small(r *rand.Rand, what string, ok func(algorithm.Algorithm, weir.Result) bool) algorithm.Algorithm {
	const draws = 500
	for range draws {
		a := t.draw(r)
		if t.limitOf(a).Capacity > smallLimit {
			continue
		}
		l := t.limiterOn(memory.New(nil), nil, one(a))
		for range 2 * smallLimit {
			if res := t.allow(l, 1, "small"); !res.Allowed {
				if ok(a, res) {
					return a
				}
				break
			}
		}
	}
	t.fatalf("of %d algorithms of Subject.New none has a limit of at most %d and %s", draws, smallLimit, what)
	return nil
}

// smallLimit is a limit that a check can use up several times, token by token.
const smallLimit = 50

// slow returns an algorithm of which no token comes back within a minute.
func (t *T) slow(r *rand.Rand) algorithm.Algorithm {
	return t.small(r, "returns no token within a minute", func(_ algorithm.Algorithm, res weir.Result) bool {
		return res.RetryAfter > time.Minute
	})
}

// request is a request to a for cost tokens, or for as many as a can consume at once.
func (t *T) request(r *rand.Rand, a algorithm.Algorithm, cost int64, key string) weir.Request {
	req := weir.Request{Key: weir.KeyOf(key), Cost: t.fitting(a, cost)}
	switch kind := t.kindOf(a); {
	case kind.Entries:
		req.Metadata = pick(r, "", "some", "\x00\xff m1 ", strings.Repeat("\xff", algorithm.MaxMetadata))
	case kind.Leases:
		req.ID = t.lease()
	}
	return req
}

// anyRequest is a random request to a, of any verb that leaves the decisions before alone.
func (t *T) anyRequest(r *rand.Rand, a algorithm.Algorithm, key string) weir.Request {
	req := t.request(r, a, pick(r, anyCost(r), anyCost(r), r.Int64N(9)), key)
	if t.leases {
		req.ID = pick(r, leaseNames[:min(int64(len(leaseNames)), t.limitOf(a).Capacity+2)]...)
		switch req.Op = pick(r, weir.Consume, weir.Consume, weir.Consume, weir.Consume, weir.Peek, weir.Renew, weir.Release); req.Op {
		case weir.Renew, weir.Release:
			req.Cost = 0
		case weir.Peek:
			req.ID = pick(r, req.ID, "")
		}
		return req
	}
	req.Op = pick(r, weir.Consume, weir.Consume, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Peek)
	switch {
	case req.Op == weir.TakeUpTo:
		req.Cost = pick(r, req.Cost, 1+r.Int64N(30), hugeCost)
	case t.kindOf(a).Reserves && r.IntN(4) == 0:
		req.MaxWait = anyWait(r, t.unitOf(a))
	}
	return req
}

var leaseNames = []string{"a", "7", "\x00", "c2 a", " ", strings.Repeat("\xff", algorithm.MaxLease), "x", "y", "z"}

// anyCost is small, and now and then more than fits.
func anyCost(r *rand.Rand) int64 { return pick(r, 0, 1, 1, 1, 2, r.Int64N(8)) }

// hugeCost is more than any capacity, and near the largest integer.
const hugeCost = 1 << 62

// fitting returns the largest cost, at most cost, that a can consume at once.
func (t *T) fitting(a algorithm.Algorithm, cost int64) int64 {
	limit := t.limitOf(a)
	if limit.MaxCost > 0 && cost <= limit.Capacity {
		return min(cost, limit.MaxCost)
	}
	return cost
}

// takeAll consumes all tokens that a has, and returns how many these are.
func (t *T) takeAll(l *weir.Limiter, a algorithm.Algorithm, key string) int64 {
	taken := int64(0)
	for range 10_000 {
		left := t.peek(l, 1, key).Remaining
		if left == 0 {
			break
		}
		cost := t.fitting(a, left)
		if res := t.allow(l, cost, key); !res.Allowed {
			t.errorf("%+v: %d tokens remain, and %d are denied: %+v", a, left, cost, res)
			break
		}
		taken += cost
	}
	return taken
}

// patience returns the MaxWait with which all tokens of a can be consumed one by one: 0,
// or Never if a is a queue, where a request passes only if no other waits.
func (t *T) patience(a algorithm.Algorithm) time.Duration {
	if !t.kindOf(a).Reserves {
		return 0
	}
	l := t.limiterOn(memory.New(nil), newClock(), one(a))
	limit := t.allow(l, 1, "queue").Limit
	if limit > 1 && t.peek(l, 1, "queue").Remaining == 0 {
		return weir.Never
	}
	return 0
}

// refundable reports whether decisions of a can be refunded.
func (t *T) refundable(a algorithm.Algorithm) bool {
	_, err := t.limiterOn(memory.New(nil), newClock(), one(a)).Refund(t.ctx, weir.Request{Key: weir.KeyOf("k"), ID: "id"})
	switch {
	case errors.Is(err, weir.ErrUnsupported):
		return false
	case err != nil:
		t.fatalf("Refund: %v", err)
	}
	return true
}

// has returns those of n algorithms to check that support a verb, and checks that the
// others return ErrUnsupported. If all do, the check is skipped.
func (t *T) has(n int, verb string, such func(algorithm.Algorithm) bool, r weir.Request) []algorithm.Algorithm {
	random := t.rand()
	var list []algorithm.Algorithm
	for range n {
		a := t.draw(random)
		if such(a) {
			list = append(list, a)
			continue
		}
		r.Key = weir.KeyOf("has")
		if t.leases {
			r.ID = "has"
		}
		if _, err := t.limiter(newClock(), one(a)).Decide(t.ctx, r, nil); !errors.Is(err, weir.ErrUnsupported) {
			t.errorf("%+v has no %s: it returns the error %v, want ErrUnsupported", a, verb, err)
		}
	}
	if len(list) == 0 && !t.failed() {
		t.skipf("algorithm has no %s", verb)
	}
	return list
}

// longestWait returns how far ahead tokens of a can be reserved.
func (t *T) longestWait(a algorithm.Algorithm) time.Duration {
	if limit := t.limitOf(a); limit.Kind.Reserves {
		return contract.Micros(limit.MaxWait)
	}
	return 0
}
