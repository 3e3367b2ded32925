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

// A Subject describes the algorithm that [RunAlgorithm] tests.
type Subject struct {
	// New returns an algorithm with random parameters from r. It is called many times.
	// Use a wide range of parameters, so that more cases are checked. Some of the
	// algorithms must have a limit of at most 50 tokens. Of these algorithms, some must
	// refill no token within a minute.
	New func(r *rand.Rand) algorithm.Algorithm

	// Unit returns a time in which the state of a changes, for example the time until
	// one token is refilled, or a quarter of a window. It must be at least 1 µs. The
	// checks make random requests, and Unit is the typical pause between them.
	Unit func(a algorithm.Algorithm) time.Duration

	// Huge lists algorithms at their bounds: the largest limit, the longest time.
	Huge []algorithm.Algorithm

	// Unsupported lists the checks that the algorithm fails, each with the reason.
	// They still run. If such a check fails, it counts as skipped. If it passes,
	// the test fails.
	Unsupported map[string]string

	// These are set for a built-in algorithm. refill returns an algorithm that, without
	// tokens, denies for about d. members are texts that no decision writes to its key:
	// members of a sorted set or, if list is true, of a list.
	builtin bool
	refill  func(d time.Duration) algorithm.Algorithm
	members []string
	list    bool
}

// algorithmChecks are the checks of any algorithm, built in or not.
var algorithmChecks = []check{
	{"Zero", "NewLimit returns ErrInvalidLimit for the zero value, and always the same Kind for equal limits", checkZero},
	{"Same", "every verb gives the same answers as on the memory store; values, entries and TTLs are the same too, even if the limit changes", checkSame},
	{"Ask", "Peek and a denied request write nothing", checkAsk},
	{"Peek", "Peek answers as Consume would answer, and DoMany answers each peek as Peek does", checkPeek},
	{"Remaining", "exactly Remaining tokens can be consumed", checkRemaining},
	{"Mix", "with other rules, a rule answers as it does alone; all rules consume or none does; TakeUpTo consumes the fewest tokens that any rule has", checkMix},
	{"Sixteen", "sixteen rules fit into one script, and each answers as it does alone", checkSixteen},
	{"Exact", "a denied request is denied until 1µs before RetryAfter, and allowed at RetryAfter", checkExact},
	{"Never", "a cost above the limit is denied with Never, and changes nothing", checkNever},
	{"HotKey", "many concurrent callers consume exactly the limit", checkHotKey},
	{"Backwards", "if the clock steps back, no wait gets longer by more than the step, and no more requests are allowed", checkBackwards},
	{"OwnClock", "the store's clock and a caller's clock give the same answers", checkOwnClock},
	{"Foreign", "if a key holds a foreign value, the error is an ErrForeign that names the key, and no key changes", checkForeign},
	{"ForeignType", "if a key has another type, the error is an ErrForeign that names the key, and no key changes", checkForeignType},
	{"Layout", "if a value has the algorithm's tag and another layout, or an integer above 2^53-1, the error is ErrForeign, and the value does not change", checkLayout},
	{"TTL", "every key exists as long as its state is in use, even if its limit changes; a key of a built-in algorithm expires at most 1.05 s later", checkTTL},
	{"Expired", "a decision is the same whether an expired key still exists or not", checkExpired},
	{"ResetAfter", "ResetAfter gets shorter as time passes, and at ResetAfter all tokens are available", checkResetAfter},
	{"Reset", "Reset clears one key, and no other", checkReset},
	{"Refund", "Refund refunds, once, the tokens that have not been refilled, and never leaves more tokens than without the request", checkRefund},
	{"MaxWait", "with MaxWait, a request is allowed if and only if its turn is at most MaxWait ahead, and Delay is the time until its turn", checkMaxWait},
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

// drawn returns an algorithm to check, and a limiter of it with a clock.
func (t *T) drawn(r *rand.Rand) (algorithm.Algorithm, *clock, *weir.Limiter) {
	a, c := t.draw(r), newClock()
	return a, c, t.limiter(c, one(a))
}

// relative returns an algorithm that shares its state with a and has another limit. If
// Subject.New returns none, relative returns a.
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

// small returns an algorithm whose limit is at most smallLimit. ok must accept the
// algorithm and its first denial.
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
	t.fatalf("Subject.New returned %d algorithms: at least one must have a limit of at most %d and %s", draws, smallLimit, what)
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
	req := weir.Request{Key: weir.KeyOf(key), Cost: t.fitting(a, cost)}
	switch kind := t.kindOf(a); {
	case kind.Entries:
		req.Metadata = pick(r, "", "some", "\x00\xff m1 ", strings.Repeat("\xff", algorithm.MaxMetadata))
	case kind.Leases:
		req.ID = t.lease()
	}
	return req
}

// anyRequest returns a random request to a: Consume, Peek or TakeUpTo or, if a has leases,
// Consume, Peek, Renew or Release.
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

// anyCost returns a small cost, which is sometimes too large to be allowed.
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

// takeAll consumes all tokens that a has, and returns their number.
func (t *T) takeAll(l *weir.Limiter, a algorithm.Algorithm, key string) int64 {
	taken := int64(0)
	for range min(10_000, t.limitOf(a).Capacity) { // leases can expire as fast as a slow store gives them
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

// has draws n algorithms, and returns those that support verb. It checks that the others
// return ErrUnsupported. If no algorithm supports verb, the check is skipped.
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
	if t.kindOf(a).Reserves {
		return contract.Micros(t.limitOf(a).MaxWait)
	}
	return 0
}
