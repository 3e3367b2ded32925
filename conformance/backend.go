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

// host returns b for the checks. The recorder notes its stores.
func (b Backend) host(recorder *report.Recorder) suite.Host {
	return suite.Host{
		New: func(t *testing.T) store.Store {
			st := b.New(t)
			recorder.Store(st)
			return st
		},
		Keys: b.Keys, DropScripts: b.DropScripts, Peer: b.Peer, Seed: b.Seed, Brief: b.Brief,
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
	Check   string // the name of the check, for example GCRA/Exact
	Passed  bool   // the check passed
	Skipped string // why the check was skipped, or empty
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
