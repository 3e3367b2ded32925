// Package conformance tests stores and algorithms. It tests that a [store.Store] keeps its
// contract, and that every algorithm gives the same answers on it as on every other store:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Backend{
//			New: func(t *testing.T) store.Store { return mine.New(t) },
//		})
//	}
//
// Each check tests one promise, and is a subtest with a stable name: Store/Atomic,
// GCRA/Exact. A failure starts with the broken promise, and names the seed and the source
// lines of the check. Most checks run in virtual time. Each run uses its own keys, so a
// server can be shared, and each check deletes its keys. A run makes about 50,000 calls,
// and each check may take up to four minutes. If the network to the server is slow, set
// [Backend.Parallel], and if a call takes 30 ms or more, set [Backend.Brief] too.
//
// Authors of algorithms run [RunAlgorithm]. [Run] runs the same checks on every built-in
// algorithm. [RunFaults] tests what a store does if its server fails.
package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/report"
	"github.com/weir-go/weir/store"
)

// A Backend describes the store that [Run] tests.
type Backend struct {
	// New returns the store under test. It is called once for each check. The
	// stores can share a server. They must use the real time. New uses t.Cleanup
	// to close what it opened.
	New func(t *testing.T) store.Store

	// Parallel is the number of checks that run at once. 0 means 1. Use a higher
	// number if the network to the server is slow. If Parallel is above 1, all
	// functions of the Backend except DropScripts and Record are called by
	// several goroutines.
	Parallel int

	// Keys returns every key whose name contains part, with its TTL. The TTL is
	// negative if the key has none. If Keys is nil, the checks Limiter/Prefix
	// and TTL are skipped, and other checks check less.
	Keys func(t *testing.T, st store.Store, part string) map[string]time.Duration

	// DropScripts makes the server lose its scripts. This disturbs other users
	// of a shared server. If DropScripts is nil, the checks of lost scripts are
	// skipped.
	DropScripts func(t *testing.T, st store.Store)

	// Peer returns another store with the same state as st, like the store of
	// another process. If Peer is nil, the check Store/Peer is skipped.
	Peer func(t *testing.T, st store.Store) store.Store

	// Unsupported lists the checks that the store fails, each with the reason.
	// They still run. If such a check fails, it counts as skipped. If it passes,
	// the test fails.
	Unsupported map[string]string

	// Record is called with the outcome of each check. It can be nil. It is never
	// called by two goroutines at once. If Parallel is at most 1, the order is
	// that in [Checks].
	Record func(Outcome)

	// Report describes the report that Run writes. If it is nil, Run writes none.
	Report *Report

	// Seed is the seed of random checks. 0 means a new seed for each check. A
	// failure prints the seed.
	Seed uint64

	// Brief makes random checks try less. With the flag -short of go test, every run
	// is brief.
	Brief bool

	// subject is the algorithm under test. It is nil if the check tests none.
	subject  *Subject
	recorder *report.Recorder // nil without Report

	// In the suite's own tests, wrap changes an algorithm, and policy changes a policy.
	wrap   func(algorithm.Algorithm) algorithm.Algorithm
	policy func(*weir.Policy)
}

// A Report describes the report of a run, as JSON and as Markdown. Until the run ends, the
// files say that it is incomplete. If they cannot be written, the test fails.
type Report struct {
	File   string // the name of the JSON file, which ends in .json; the Markdown ends in .md instead
	Store  string // the name of the store, for example "goredis"
	Client string // the client and its version, for example "go-redis v9.23.0"; can be empty
	Server string // the server and its version, for example "Redis 8.0.2, cluster"; can be empty
}

// An Outcome is the outcome of a check.
type Outcome struct {
	Check   string // the name of the check, for example GCRA/Exact
	Passed  bool   // the check passed
	Skipped string // why the check was skipped, or empty
}

// A check tests one promise. If the check fails, its text is printed.
type check struct {
	name string
	text string
	run  func(*T)
}

// disturbs reports whether the check must run alone, because the server loses its scripts.
func (c check) disturbs() bool { return c.name == "ScriptLoss" }

// A group is a list of checks. If subject is not nil, they test its algorithm.
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

// RunAlgorithm tests that the algorithm of s keeps the promises of the built-in algorithms.
// Each check is a subtest. Run it on the memory store, which runs the Go form, and on a
// server, which runs the Lua:
//
//	func TestAlgorithm(t *testing.T) {
//		conformance.RunAlgorithm(t, backend, conformance.Subject{
//			New:  func(r *rand.Rand) algorithm.Algorithm { return mine.Limit{Tokens: 1 + r.Int64N(20)} },
//			Unit: func(algorithm.Algorithm) time.Duration { return time.Minute },
//		})
//	}
//
// If an algorithm does not support Refund or MaxWait, the checks of these test that the
// error is ErrUnsupported, and are skipped. If the algorithm has leases, the checks acquire,
// renew and release leases.
//
// Only b.New is required. If b.Keys is set, more is checked. b.Unsupported and
// b.Report are ignored. RunAlgorithm does not test the store: [Run] does.
func RunAlgorithm(t *testing.T, b Backend, s Subject) {
	switch {
	case b.New == nil:
		t.Fatal("conformance: Backend.New is nil: it must return the store on which the algorithm is tested")
	case s.New == nil || s.Unit == nil:
		t.Fatal("conformance: Subject.New or Subject.Unit is nil: New must return an algorithm, and Unit the time in which its state changes")
	}
	b.Report = nil
	run(t, b, []group{{"Algorithm", &s, algorithmChecks}}, declared{s.Unsupported, "algorithm", "Subject.Unsupported"})
}
