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
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/conformance/internal/limiters"
	"github.com/weir-go/weir/conformance/internal/stores"
	"github.com/weir-go/weir/conformance/internal/suite"
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

// groups returns the checks of Run.
func groups() []suite.Group {
	list := []suite.Group{{Name: "Store", Checks: stores.Checks}, {Name: "Batch", Checks: stores.BatchChecks}}
	for _, s := range algorithms.BuiltIn {
		list = append(list, s.Group())
	}
	return append(list, suite.Group{Name: "Limiter", Checks: limiters.Checks})
}

// Checks returns the names of all checks of [Run], in the order in which they run.
func Checks() []string { return suite.Names(groups()) }

// AlgorithmChecks returns the names of the checks of [RunAlgorithm], in the order in which
// they run.
func AlgorithmChecks() []string {
	return suite.Names([]suite.Group{new(algorithms.Subject).Group()})
}

// Run runs every check on b, each in a subtest.
func Run(t *testing.T, b Backend) {
	if b.New == nil {
		t.Fatal("conformance: Backend.New is nil: it must return the store under test")
	}
	run(t, b, groups(), declared{b.Unsupported, "store", "Backend.Unsupported"})
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
	under := &algorithms.Subject{New: s.New, Unit: s.Unit, Huge: s.Huge}
	run(t, b, []suite.Group{under.Group()}, declared{s.Unsupported, "algorithm", "Subject.Unsupported"})
}

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
}
