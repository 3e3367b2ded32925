package conformance

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
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
}

// algorithmRules are the checks of any algorithm.
var algorithmRules = []rule{
	{"Zero", "NewLimit returns ErrInvalidLimit for the zero value, and always the same Kind for equal limits", subjectZero},
	{"Same", "the algorithm answers as on the memory store, and leaves the same values with the same TTLs, also if its limit changes", subjectSame},
	{"Ask", "Peek and a denied request write nothing", subjectAsk},
	{"Peek", "Peek answers what Consume answers then", subjectPeek},
	{"PeekMany", "DoMany answers each peek as Peek does", subjectPeekMany},
	{"Remaining", "as many tokens as remain can be consumed, and no more, and Remaining counts them", subjectRemaining},
	{"Mix", "with other rules each rule answers as it does alone, and all consume or none does", subjectMix},
	{"Sixteen", "sixteen rules fit into one script, and each answers as it does alone", subjectSixteen},
	{"Exact", "a denied request is denied until 1µs before RetryAfter is over, and passes when it is over", subjectExact},
	{"Never", "a cost above the limit is denied with Never, and changes nothing", subjectNever},
	{"HotKey", "of many concurrent callers no more than the limit pass", subjectHotKey},
	{"HotKeyFull", "of many concurrent callers no fewer than the limit pass", subjectHotKeyFull},
	{"Backwards", "a clock that steps back lengthens no wait by more than the step, and allows nothing", subjectBackwards},
	{"OwnClock", "the store's clock and a caller's clock mean the same", subjectOwnClock},
	{"Foreign", "a foreign value is an ErrForeign that names the key, and no key is changed", subjectForeign},
	{"ForeignType", "a key of another type is an ErrForeign that names the key, and no key is changed", subjectForeignType},
	{"Layout", "a value with the algorithm's tag and another layout, or with an integer above 2^53-1, is an ErrForeign and is not changed", subjectLayout},
	{"TTL", "every key expires, and not before its state is fully reset, also if its limit changes", subjectTTL},
	{"Dead", "a decision is the same whether an expired key is still there or gone", subjectDead},
	{"ResetAfter", "ResetAfter runs down with the clock, and when it is over all tokens are there", subjectResetAfter},
	{"Reset", "Reset clears one key, and no other", subjectReset},
	{"UpTo", "TakeUpTo consumes the fewest tokens that any rule has, as a request for that many does", subjectUpTo},
	{"Refund", "Refund refunds once what is left of a decision, and never makes the limit fuller than without it", subjectRefund},
	{"MaxWait", "with MaxWait a request is allowed exactly if its turn comes by then, and Delay tells when", subjectMaxWait},
	{"Huge", "numbers near their bounds are as exact as small ones", subjectHuge},
}

// AlgorithmRules returns the names of the checks of [RunAlgorithm], in the order in which
// they run.
func AlgorithmRules() []string {
	names := make([]string, len(algorithmRules))
	for i, r := range algorithmRules {
		names[i] = "Algorithm/" + r.name
	}
	return names
}

// RunAlgorithm checks on b that the algorithm of s keeps the promises of the built-in
// ones, each in a subtest. The author of an algorithm runs it on the memory store, which
// runs the algorithm's Go, and on a server, where its Lua must mean the same:
//
//	func TestAlgorithm(t *testing.T) {
//		conformance.RunAlgorithm(t, backend, conformance.Subject{
//			New:  func(r *rand.Rand) algorithm.Algorithm { return mine.Limit{Tokens: 1 + r.Int64N(20)} },
//			Unit: func(algorithm.Algorithm) time.Duration { return time.Minute },
//		})
//	}
//
// The checks of Refund and MaxWait are for algorithms that support them, as their
// contract.Kind tells. For others, they check that the request is ErrUnsupported, and are
// skipped. There are no checks for kinds that hold leases.
//
// Of b, only New is required. With Keys more is checked. b.Unsupported is ignored. That b
// keeps the contract of a store is what [Run] checks.
func RunAlgorithm(t *testing.T, b Backend, s Subject) {
	switch {
	case b.New == nil:
		t.Fatal("conformance: Backend.New is nil: it must return the store to check on")
	case s.New == nil || s.Unit == nil:
		t.Fatal("conformance: Subject.New or Subject.Unit is nil: they must return an algorithm, and a time in which its state changes")
	}
	known := map[string]bool{}
	for _, name := range AlgorithmRules() {
		known[name] = true
	}
	for name := range s.Unsupported {
		if !known[name] {
			t.Errorf("conformance: Subject.Unsupported names %q, which is no check", name)
		}
	}
	b.subject = &s
	t.Run("Algorithm", func(t *testing.T) {
		for _, r := range algorithmRules {
			t.Run(r.name, func(t *testing.T) {
				judge(t, b, "Algorithm/"+r.name, r, s.Unsupported, "algorithm", "Subject.Unsupported")
			})
		}
	})
}

// draw returns an algorithm to check.
func (t *T) draw(r *rand.Rand) algorithm.Algorithm {
	a := t.backend.subject.New(r)
	if a == nil {
		t.fatalf("Subject.New returned nil")
	}
	if t.kindOf(a).Leases {
		t.fatalf("%+v: its kind holds leases, for which there are no checks", a)
	}
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
		l := t.limiterOn(memory.New(nil), nil, one(a))
		if t.peek(l, 1, "small").Limit > smallLimit {
			continue
		}
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
	if t.kindOf(a).Entries {
		req.Metadata = pick(r, "", "some", "\x00\xff m1 ")
	}
	return req
}

// anyCost is small, and now and then more than fits.
func anyCost(r *rand.Rand) int64 { return pick(r, 0, 1, 1, 1, 2, r.Int64N(8)) }

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
