package conformance

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// A Subject is what [RunAlgorithm] needs to know of an algorithm.
type Subject struct {
	// New returns an algorithm to check, made with r. It is called again and
	// again: one that always returns the same is checked, one that returns very
	// different ones is checked better. Some of them have a limit of at most 50
	// tokens, and some of these are slow: what was taken does not come back
	// within a minute.
	New func(r *rand.Rand) algorithm.Algorithm

	// Unit returns a time in which something happens to a, 1 µs or more: a token
	// comes back, or a quarter of a window goes by. Random histories pause about
	// as long.
	Unit func(a algorithm.Algorithm) time.Duration

	// Huge lists algorithms at their bounds: the largest limit, the longest time.
	Huge []algorithm.Algorithm

	// Unsupported lists rules that do not hold for the algorithm, each with the
	// reason. They are skipped, and fail if it keeps them after all.
	Unsupported map[string]string
}

// algorithmRules are the rules for an algorithm of anybody's.
var algorithmRules = []rule{
	{"Zero", "NewLimit finds the zero value invalid, and a valid one has one fragment", subjectZero},
	{"Same", "on the store it answers as on the memory store, and leaves the same values, as long", subjectSame},
	{"Ask", "a denial, a cost of 0 and Peek write nothing", subjectAsk},
	{"Peek", "Peek answers what Allow then does", subjectPeek},
	{"PeekMany", "PeekMany answers for each path as Peek does", subjectPeekMany},
	{"Remaining", "what remains can be taken, and no more, and what is taken is what is missing then", subjectRemaining},
	{"Mix", "beside other rules it answers as it does alone; all are charged or none", subjectMix},
	{"Sixteen", "sixteen of it fit into one script, and each answers as it does alone", subjectSixteen},
	{"Exact", "a denied request is denied 1µs before RetryAfter is over and passes when it is", subjectExact},
	{"Never", "a cost above the limit is denied for ever and changes nothing", subjectNever},
	{"HotKey", "of many concurrent callers no more than the limit pass", subjectHotKey},
	{"HotKeyFull", "of many concurrent callers no less than the limit pass", subjectHotKeyFull},
	{"Backwards", "a clock that steps back extends no wait by more than the step, and admits nothing", subjectBackwards},
	{"OwnClock", "the store's clock means what the same time of a caller means", subjectOwnClock},
	{"Foreign", "a key with someone else's value is an ErrForeign that names it; no key is changed", subjectForeign},
	{"ForeignType", "a key of another type is an ErrForeign that names it; no key is changed", subjectForeignType},
	{"TTL", "every key expires, and not before its state is as new", subjectTTL},
	{"Dead", "a decision is the same whether a dead key is still there or gone", subjectDead},
	{"ResetAfter", "ResetAfter runs down with the clock; when it is over all of the limit is there", subjectResetAfter},
	{"Reset", "Reset makes it as new, and nobody else", subjectReset},
	{"UpTo", "TakeUpTo takes the least that remains of any rule, as a request for just that does", subjectUpTo},
	{"Refund", "Refund gives back once what is left of what was taken, and never more", subjectRefund},
	{"MaxWait", "with MaxWait passes just what has its turn by then, and it is told when", subjectMaxWait},
	{"Huge", "numbers near their bounds are as exact as small ones", subjectHuge},
}

// AlgorithmRules returns the names of the rules of [RunAlgorithm], in the order
// in which they run.
func AlgorithmRules() []string {
	names := make([]string, len(algorithmRules))
	for i, r := range algorithmRules {
		names[i] = "Algorithm/" + r.name
	}
	return names
}

// RunAlgorithm checks on b that the algorithm of s keeps what the built-in ones
// do, each rule in a subtest. Whoever writes an algorithm runs it on the memory
// store, which runs its Go form, and on a server, where its Lua has to mean the
// same:
//
//	func TestAlgorithm(t *testing.T) {
//		conformance.RunAlgorithm(t, backend, conformance.Subject{
//			New:  func(r *rand.Rand) algorithm.Algorithm { return mine.Limit{Tokens: 1 + r.Int64N(20)} },
//			Unit: func(algorithm.Algorithm) time.Duration { return time.Minute },
//		})
//	}
//
// A rule on a verb that the algorithm's fragment does not have, TakeUpTo, Refund or
// MaxWait, checks that it is refused, and is skipped. There are no rules for
// fragments that hold leases.
//
// Of b, New is needed, and with Keys more is seen; its Unsupported does not
// matter. That b keeps the contract is for [Run] to say.
func RunAlgorithm(t *testing.T, b Backend, s Subject) {
	switch {
	case b.New == nil:
		t.Fatal("conformance: Backend.New is nil: it must return the store to check on")
	case s.New == nil || s.Unit == nil:
		t.Fatal("conformance: Subject.New or Subject.Unit is nil: it must return an algorithm, and the time in which something happens to it")
	}
	known := map[string]bool{}
	for _, name := range AlgorithmRules() {
		known[name] = true
	}
	for name := range s.Unsupported {
		if !known[name] {
			t.Errorf("conformance: Subject.Unsupported names %q, which is no rule", name)
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
	if t.fragment(a).Leases {
		t.fatalf("%+v: its fragment Leases, for which there are no rules", a)
	}
	return a
}

// fragment returns the fragment of a.
func (t *T) fragment(a algorithm.Algorithm) *algorithm.Fragment {
	limit, err := a.NewLimit()
	if err != nil {
		t.fatalf("%+v: NewLimit: %v", a, err)
	}
	f := limit.Fragment()
	if f == nil {
		t.fatalf("%+v: Fragment returns nil", a)
	}
	return f
}

// small returns an algorithm to check, of a limit that can be used up by single
// tokens, such that ok says yes to it and what it answers once it is used up.
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
	t.fatalf("of %d that Subject.New made none has a limit of at most %d and %s", draws, smallLimit, what)
	return nil
}

// smallLimit is such that a rule may use it up some times, token by token.
const smallLimit = 50

// slow returns an algorithm to which nothing comes back for a while.
func (t *T) slow(r *rand.Rand) algorithm.Algorithm {
	return t.small(r, "gives nothing back within a minute", func(_ algorithm.Algorithm, res weir.Result) bool {
		return res.RetryAfter > time.Minute
	})
}

// request is for cost tokens of a at path, or as many as it takes at once.
func (t *T) request(r *rand.Rand, a algorithm.Algorithm, cost int64, path ...string) weir.Request {
	req := weir.Request{Path: path, Cost: t.fitting(a, cost)}
	if t.lister(a) {
		req.Metadata = pick(r, "", "some", "\x00\xff m1 ")
	}
	return req
}

func (t *T) lister(a algorithm.Algorithm) bool {
	limit, err := a.NewLimit()
	if err != nil {
		t.fatalf("%+v: NewLimit: %v", a, err)
	}
	_, ok := limit.(algorithm.Lister)
	return ok
}

// anyCost is small, or now and then beyond what fits.
func anyCost(r *rand.Rand) int64 { return pick(r, 0, 1, 1, 1, 2, r.Int64N(8)) }

// takeAll takes what there is of a at path, and returns how much.
func (t *T) takeAll(l *weir.Limiter, a algorithm.Algorithm, path ...string) int64 {
	taken := int64(0)
	for range 10_000 {
		left := t.peek(l, 0, path...).Remaining
		if left == 0 {
			break
		}
		cost := t.fitting(a, left)
		if res := t.allow(l, cost, path...); !res.Allowed {
			t.errorf("%+v: %d tokens remain, and %d are denied: %+v", a, left, cost, res)
			break
		}
		taken += cost
	}
	return taken
}
