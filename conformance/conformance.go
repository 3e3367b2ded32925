// Package conformance tests that a [store.Store] keeps the contract, and that every
// algorithm means the same on it as on every other store. The author of a store runs it
// in one test:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Backend{New: func(t *testing.T) store.Store { return mine.New(t) }})
//	}
//
// Each check is a subtest with a stable name, Subject/Check. A failure begins with the
// promise that was broken, and names the seed and the source line of the check. Checks run
// in virtual time wherever they can. They use keys that no other run uses, so a server can
// be shared. A run makes about 30,000 calls, which may take up to 50 ms each. All keys
// that it leaves behind have a TTL.
//
// The author of an algorithm runs [RunAlgorithm]. Its checks, Algorithm/Check, are those
// that every algorithm must pass, and need no model of the algorithm. [RunFaults] tests
// what a store does when its server fails.
package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/maphash"
	"slices"
	"strings"
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

	// Record, if not nil, is called with the outcome of each check, in order.
	Record func(Outcome)

	// Seed makes random checks repeat what they did. 0 means a new seed, which
	// failures print.
	Seed uint64

	// subject is what RunAlgorithm checks, nil in Run.
	subject *Subject

	// In the suite's own tests, wrap changes an algorithm, policy changes a policy,
	// and brief makes random checks try an eighth as much.
	wrap   func(algorithm.Algorithm) algorithm.Algorithm
	policy func(*weir.Policy)
	brief  bool
}

// An Outcome is the outcome of a check.
type Outcome struct {
	Rule    string // the check, Subject/Check
	Passed  bool
	Skipped string // why it was skipped, "" if it was not
}

// A rule is a check: one promise. Its text is printed when it is broken.
type rule struct {
	name string
	text string
	run  func(*T)
}

// subjects are all checks, by subject.
var subjects = []struct {
	name  string
	rules []rule
}{
	{"Store", storeRules},
	{"Batch", batchRules},
	{"GCRA", gcraRules},
	{"FixedWindow", fixedWindowRules},
	{"MetadataWindow", metadataWindowRules},
	{"SlidingBuckets", slidingBucketsRules},
	{"SlidingCounter", slidingCounterRules},
	{"SlidingLog", slidingLogRules},
	{"TokenBucket", tokenBucketRules},
	{"LeakyBucket", leakyBucketRules},
	{"Concurrency", concurrencyRules},
	{"Limiter", slices.Concat(limiterRules, verbRules, keyRules)},
	{"Hygiene", hygieneRules},
}

// Rules returns the names of all checks of [Run], in the order in which they run.
func Rules() []string {
	var names []string
	for _, s := range subjects {
		for _, r := range s.rules {
			names = append(names, s.name+"/"+r.name)
		}
	}
	return names
}

// Run runs every check on b, each in a subtest.
func Run(t *testing.T, b Backend) {
	if b.New == nil {
		t.Fatal("conformance: Backend.New is nil: it must return the store under test")
	}
	known := map[string]bool{}
	for _, name := range Rules() {
		known[name] = true
	}
	for name := range b.Unsupported {
		if !known[name] {
			t.Errorf("conformance: Backend.Unsupported names %q, which is no check", name)
		}
	}
	for _, s := range subjects {
		t.Run(s.name, func(t *testing.T) {
			for _, r := range s.rules {
				t.Run(r.name, func(t *testing.T) {
					judge(t, b, s.name+"/"+r.name, r, b.Unsupported, "store", "Backend.Unsupported")
				})
			}
		})
	}
}

// judge runs the check r, which is called name, on b, and reports the outcome to t and to
// the backend. unsupported are the checks that who is declared, there, to fail.
func judge(t *testing.T, b Backend, name string, r rule, unsupported map[string]string, who, there string) {
	t.Helper()
	out := Outcome{Rule: name}
	if b.Record != nil {
		defer func() { b.Record(out) }()
	}
	c := check(t, b, r)
	if t.Failed() || t.Skipped() {
		return // by a hook
	}
	switch reason, declared := unsupported[name]; {
	case declared && c.skipped == "" && len(c.failures) == 0:
		t.Errorf("declared unsupported (%s), and it passes: remove it from %s", reason, there)
	case declared:
		out.Skipped = who + " does not support it: " + reason
		t.Skip(out.Skipped)
	case c.skipped != "":
		out.Skipped = c.skipped
		t.Skip(c.skipped)
	case len(c.failures) > 0:
		t.Errorf("broken: %s\nseed %d\n%s", r.text, c.seed, strings.Join(c.failures, "\n"))
	default:
		out.Passed = true
	}
}

// ruleTime bounds a check: the deadline of its context. A check that ignores its context
// fails after twice that time.
const ruleTime = 2 * time.Minute

// check runs r on a new store of b.
func check(t *testing.T, b Backend, r rule) *T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ruleTime)
	defer cancel()
	c := &T{ctx: ctx, test: t, backend: b, store: b.New(t), id: newID(), seed: b.Seed}
	if c.store == nil {
		t.Fatal("conformance: Backend.New returned nil")
	}
	for c.seed == 0 {
		c.seed = new(maphash.Hash).Sum64()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.recover()
		r.run(c)
		c.ended = true
	}()
	select {
	case <-done:
		if !c.ended && c.skipped == "" && len(c.failures) == 0 {
			c.errorf("the check ended early: a hook ended its goroutine")
		}
		return c
	case <-time.After(2 * ruleTime):
		t.Fatalf("broken: %s\nthe check did not end within %v: a call ignores its context", r.text, 2*ruleTime)
		return nil
	}
}

// newID returns a key prefix that no other check of any run uses.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "weirtest-" + hex.EncodeToString(b[:])
}

// T is what a check uses: the store, keys of its own, and a place for failures.
type T struct {
	ctx     context.Context
	test    *testing.T
	backend Backend
	store   store.Store
	id      string
	seed    uint64
	verdicts
}
