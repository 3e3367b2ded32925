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
// server can be shared, and each check deletes its keys. A run makes about 65,000 calls, or
// 25,000 if [Backend.Brief] is set, and each check may take up to four minutes. If the
// network to the server is slow, set [Backend.Parallel], and if a call takes 30 ms or more,
// set [Backend.Brief] too.
//
// Authors of algorithms run [RunAlgorithm]. [Run] runs the same checks on every built-in
// algorithm. [Backend.Faults] tests what a store does if its server or its file fails.
package conformance

import (
	"testing"

	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/conformance/internal/limiters"
	"github.com/weir-go/weir/conformance/internal/pauses"
	"github.com/weir-go/weir/conformance/internal/stores"
	"github.com/weir-go/weir/conformance/internal/suite"
)

// groups returns the checks of Run.
func groups() []suite.Group {
	list := []suite.Group{
		{Name: "Store", Checks: stores.Checks},
		{Name: "Batch", Checks: stores.BatchChecks},
		{Name: "List", Checks: stores.ListChecks},
	}
	for _, s := range algorithms.BuiltIn {
		list = append(list, s.Group())
	}
	return append(list, suite.Group{Name: "Limiter", Checks: limiters.Checks}, suite.Group{Name: "Pause", Checks: pauses.Checks})
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
// Only b.New is required. If b.Keys is set, more is checked. b.Faults, b.Unsupported and
// b.Report are ignored. RunAlgorithm does not test the store: [Run] does.
func RunAlgorithm(t *testing.T, b Backend, s Subject) {
	switch {
	case b.New == nil:
		t.Fatal("conformance: Backend.New is nil: it must return the store on which the algorithm is tested")
	case s.New == nil || s.Unit == nil:
		t.Fatal("conformance: Subject.New or Subject.Unit is nil: New must return an algorithm, and Unit the time in which its state changes")
	}
	b.Report, b.Faults = nil, nil
	under := &algorithms.Subject{New: s.New, Unit: s.Unit, Huge: s.Huge}
	run(t, b, []suite.Group{under.Group()}, declared{s.Unsupported, "algorithm", "Subject.Unsupported"})
}
