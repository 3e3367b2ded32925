package conformance

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/report"
	"github.com/weir-go/weir/store"
)

// A Backend describes the store that [Run] tests.
type Backend struct {
	// New returns the store under test, for one check. The stores can share a server,
	// and must use the real time. New uses t.Cleanup to close what it opened.
	New func(t *testing.T) store.Store

	// Parallel is the number of checks that run at once, for a slow network. 0 means 1.
	// If it is above 1, several goroutines call the functions of the Backend, except
	// DropScripts, Reopen and Record.
	Parallel int

	// Keys returns every key whose name contains part, with its TTL, even if what is
	// stored for it is empty. The TTL is negative if the key has none. Without Keys, the
	// checks Limiter/Prefix and TTL are skipped, and other checks check less.
	Keys func(t *testing.T, st store.Store, part string) map[string]time.Duration

	// DropScripts makes the server lose its scripts, which disturbs other users of a
	// shared server. Without it, the checks of lost scripts are skipped.
	DropScripts func(t *testing.T, st store.Store)

	// Peer returns another store with the same state as st, in this process. It cannot
	// show that processes share the state: see Where. If Peer is nil, the suite uses
	// Open. Without both, the check Store/Peer is skipped.
	Peer func(t *testing.T, st store.Store) store.Store

	// Where returns where another process finds the state of st, for example the name of
	// a file. Open returns a store with that state, and uses t.Cleanup to close it. The
	// suite starts the test binary again, which runs the test of t up to Run, so the code
	// before Run runs in each process. Without Where and Open, the checks Store/Processes
	// and Store/ProcessWait are skipped.
	Where func(t *testing.T, st store.Store) string
	Open  func(t *testing.T, where string) store.Store

	// Reopen closes st, and returns a store with its state, as after a restart. Stores of
	// later calls of New must work too. No other check runs meanwhile. Without Reopen, the
	// check Store/Durable is skipped.
	Reopen func(t *testing.T, st store.Store) store.Store

	// Plant makes raw the stored value of key, past st: for example in the column or the
	// file that holds its encoding. The key must not expire within ten minutes. st writes
	// no such value. Without Plant, the check Store/Unreadable is skipped, unless the store
	// runs Lua.
	Plant func(t *testing.T, st store.Store, key string, raw []byte)

	// Writes returns a number that grows with each write of st to its database, for
	// example the size of a log, and that stands still most of the time while st is idle.
	// Without Writes, the check Limiter/Writes is skipped.
	Writes func(t *testing.T, st store.Store) int64

	// Faults makes the faults under which the store is tested, by name: the check of
	// "Locked" is Faults/Locked. A name can be any word, and some names in [FaultChecks]
	// promise more. All keys of a check have the slot of key. See [RunFaults].
	Faults map[string]func(t *testing.T, key string) Fault

	// Unsupported lists the checks that the store fails, each with the reason. They still
	// run. If such a check fails, it counts as skipped. If it passes, perhaps by chance,
	// the test logs that.
	Unsupported map[string]string

	// Strict makes a check fail if it is skipped and not in Unsupported. The test fails too
	// if Faults is empty, unless Unsupported has "Faults".
	Strict bool

	// Record is called with the outcome of each check, by one goroutine at a time, and in
	// the order of [Checks] if Parallel is at most 1. It can be nil.
	Record func(Outcome)

	// Report describes the report that Run writes. If it is nil, Run writes none.
	Report *Report

	// Seed is the seed of random checks, which a failure prints. 0 means a new seed for
	// each check.
	Seed uint64

	// Brief makes random checks try less: a run makes a third of the calls. With the flag
	// -short of go test, every run is brief.
	Brief bool
}

// host returns b for the checks. The recorder notes its stores.
func (b Backend) host(recorder *report.Recorder) suite.Host {
	if b.Open == nil {
		b.Where = nil
	}
	if b.Peer == nil && b.Where != nil {
		b.Peer = func(t *testing.T, st store.Store) store.Store { return b.Open(t, b.Where(t, st)) }
	}
	return suite.Host{
		New: func(t *testing.T) store.Store {
			st := b.New(t)
			recorder.Store(st)
			return st
		},
		Keys: b.Keys, DropScripts: b.DropScripts, Peer: b.Peer, Where: b.Where, Reopen: b.Reopen,
		Plant: b.Plant, Writes: b.Writes, Seed: b.Seed, Brief: b.Brief,
	}
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
	Check   string        // the name of the check, for example GCRA/Exact
	Promise string        // what the check tests
	Passed  bool          // the check passed
	Skipped string        // why the check was skipped, or empty
	Failure string        // what is broken; empty if a function of the Backend failed the test
	Fault   *FaultOutcome // what happened in a check of a fault; nil in other checks
}

// A Subject describes the algorithm that [RunAlgorithm] tests.
type Subject struct {
	// New returns an algorithm with random parameters from r. It is called many times.
	// Use a wide range of parameters, so that more cases are checked. Some of the
	// algorithms must have a limit of at most 50 tokens. Of these algorithms, some must
	// refill no token within a minute. A new key must start with Capacity tokens at any
	// time: the checks do not support limits that depend on the time of day.
	New func(r *rand.Rand) algorithm.Algorithm

	// Unit returns a time in which the state of a changes, for example the time until
	// one token is refilled, or a quarter of a window. It must be at least 1 µs. The
	// checks make random requests, and Unit is the typical pause between them.
	Unit func(a algorithm.Algorithm) time.Duration

	// Huge lists algorithms at their bounds: the largest limit, the longest time.
	Huge []algorithm.Algorithm

	// Unsupported lists the checks that the algorithm fails, each with the reason, as
	// Backend.Unsupported does for a store.
	Unsupported map[string]string
}
