// Package conformance tests that a [store.Store] keeps the contract, and that every
// algorithm means the same on it as on every other store:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Backend{
//			New: func(t *testing.T) store.Store { return mine.New(t) },
//		})
//	}
//
// Each check is one promise, and a subtest with a stable name: Store/Atomic, GCRA/Exact. A
// failure begins with the promise that was broken, and names the seed and the source lines
// of the check. Checks run in virtual time wherever they can. They use keys that no other
// run uses, so a server can be shared, and they delete these keys at their end. A run makes
// about 45,000 calls, which may take up to 50 ms each: see [Backend.Parallel].
//
// The author of an algorithm runs [RunAlgorithm]. Its checks, Algorithm/Exact and so on,
// are those that Run makes of every built-in algorithm. They need no model of the
// algorithm. [RunFaults] tests what a store does when its server fails.
package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A Backend is what [Run] needs to know of a store.
type Backend struct {
	// New returns the store under test. It is called once for each check. The
	// stores may share a server. Their clock is the real one. New uses t.Cleanup
	// to close what it opened.
	New func(t *testing.T) store.Store

	// Parallel is how many checks may run at once. 0 means 1. Choose it for a
	// server that is far away: the checks then wait for its replies together.
	// All functions of the Backend but DropScripts and Record are then called
	// by several goroutines.
	Parallel int

	// Keys, if not nil, returns every key whose name contains part, with the
	// time until it expires, negative if never. Without it, the checks of which
	// keys are written are skipped.
	Keys func(t *testing.T, st store.Store, part string) map[string]time.Duration

	// DropScripts, if not nil, makes the server lose the scripts that it has
	// seen. That disturbs other users of a shared server. Without it, the checks
	// of lost scripts are skipped.
	DropScripts func(t *testing.T, st store.Store)

	// Peer, if not nil, returns another store over the same state as st, as
	// another process would have. Without it, the check of several stores is
	// skipped.
	Peer func(t *testing.T, st store.Store) store.Store

	// Unsupported lists checks that the store is known to fail, each with the
	// reason. They are skipped, and fail if the store passes them after all.
	Unsupported map[string]string

	// Record, if not nil, is called with the outcome of each check: in the order
	// of [Checks] if Parallel is at most 1, and never by two goroutines at once.
	Record func(Outcome)

	// Seed makes random checks repeat what they did. 0 means a new seed, which
	// failures print.
	Seed uint64

	// Brief makes random checks try less. With the flag -short of go test, every run
	// is brief.
	Brief bool

	// subject is the algorithm under test, nil in a check of something else.
	subject *Subject

	// In the suite's own tests, wrap changes an algorithm, and policy changes a policy.
	wrap   func(algorithm.Algorithm) algorithm.Algorithm
	policy func(*weir.Policy)
}

// An Outcome is the outcome of a check.
type Outcome struct {
	Check   string // its name, for example GCRA/Exact
	Passed  bool
	Skipped string // why it was skipped, "" if it was not
}

// A check is one promise. Its text is printed when it is broken.
type check struct {
	name string
	text string
	run  func(*T)
}

// disturbs reports whether the check must run alone: it makes the server lose its scripts.
func (c check) disturbs() bool { return c.name == "ScriptLoss" }

// A group is the checks of one subject: of an algorithm, if it has one.
type group struct {
	name    string
	subject *Subject
	checks  []check
}

// groups are the checks of Run.
var groups = slices.Concat([]group{
	{"Store", nil, storeChecks},
	{"Batch", nil, batchChecks},
}, builtins, []group{
	{"Limiter", nil, slices.Concat(limiterChecks, verbChecks, keyChecks)},
})

// Checks returns the names of all checks of [Run], in the order in which they run.
func Checks() []string { return names(groups) }

// AlgorithmChecks returns the names of the checks of [RunAlgorithm], in the order in which
// they run.
func AlgorithmChecks() []string { return names([]group{{"Algorithm", nil, algorithmChecks}}) }

func names(groups []group) []string {
	var names []string
	for _, g := range groups {
		for _, c := range g.checks {
			names = append(names, g.name+"/"+c.name)
		}
	}
	return names
}

// Run runs every check on b, each in a subtest.
func Run(t *testing.T, b Backend) {
	if b.New == nil {
		t.Fatal("conformance: Backend.New is nil: it must return the store under test")
	}
	run(t, b, groups, declared{b.Unsupported, "store", "Backend.Unsupported"})
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
// The checks of TakeUpTo, Refund and MaxWait are for algorithms that support them, as their
// contract.Kind tells. For others, they check that the request is ErrUnsupported, and are
// skipped. If the kind holds leases, every request asks for a lease of its own.
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
	run(t, b, []group{{"Algorithm", &s, algorithmChecks}}, declared{s.Unsupported, "algorithm", "Subject.Unsupported"})
}
