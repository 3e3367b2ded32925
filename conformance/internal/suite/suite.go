// Package suite runs a check of the conformance suite on a store. The checks are in the
// packages stores, algorithms and limiters.
package suite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"hash/maphash"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// A Check tests one promise. If the check fails, its text is printed.
type Check struct {
	Name, Text string
	Run        func(*T)
	Alone      bool // no other check may run meanwhile: the server loses its scripts, or stores are closed
	source     any  // the function of the check, if it is not Run
}

// Of returns a check whose function needs more than a T: of makes it of the T.
func Of[C any](name, text string, run func(C), of func(*T) C) Check {
	return Check{Name: name, Text: text, Run: func(t *T) { run(of(t)) }, source: run}
}

// At returns the file and line of the check.
func (c Check) At() string {
	source := c.source
	if source == nil {
		source = c.Run
	}
	at := reflect.ValueOf(source).Pointer()
	file, line := runtime.FuncForPC(at).FileLine(at)
	return filepath.Base(file) + ":" + strconv.Itoa(line)
}

// A Group is a list of checks.
type Group struct {
	Name   string
	Checks []Check
}

// Names returns the names of all checks of groups.
func Names(groups []Group) []string {
	var names []string
	for _, g := range groups {
		for _, c := range g.Checks {
			names = append(names, g.Name+"/"+c.Name)
		}
	}
	return names
}

// A Host is a store under test, with what the checks need to know of it. Its fields are
// those of conformance.Backend.
type Host struct {
	New         func(t *testing.T) store.Store
	Keys        func(t *testing.T, st store.Store, part string) map[string]time.Duration
	DropScripts func(t *testing.T, st store.Store)
	Peer        func(t *testing.T, st store.Store) store.Store
	Where       func(t *testing.T, st store.Store) string
	Reopen      func(t *testing.T, st store.Store) store.Store
	Plant       func(t *testing.T, st store.Store, key string, raw []byte)
	Writes      func(t *testing.T, st store.Store) int64
	Seed        uint64
	Brief       bool

	// Mutate, of the suite's own tests, changes the policies of limiters on the store.
	Mutate func(p *weir.Policy)
}

// CheckTime is the time until the context of a check ends. A check that ignores its context
// fails after twice this time.
const CheckTime = 4 * time.Minute

// Run runs c on a new store of h, and deletes the keys that it wrote.
func Run(t *testing.T, h Host, c Check) *T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), CheckTime)
	defer cancel()
	r := New(ctx, t, h)
	if _, err := weir.New("check", r.hooked, algorithm.FixedWindow{Limit: 1, Window: time.Minute}, nil); err != nil {
		t.Fatalf("conformance: Backend.New returned a store that weir.New rejects: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.recover()
		defer r.clean()
		c.Run(r)
		r.ended = true
	}()
	select {
	case <-done:
		if !r.ended && r.Skipped == "" && len(r.Failures) == 0 && !t.Failed() && !t.Skipped() {
			r.Errorf("the check ended early: a function of the Backend ended its goroutine")
		}
		return r
	case <-time.After(2 * CheckTime):
		t.Fatalf("broken: %s\nthe check at %s did not end within %v: a call ignores its context", c.Text, c.At(), 2*CheckTime)
		return nil
	}
}

// NewID returns a key prefix that no other check of any run uses.
func NewID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "weirtest-" + hex.EncodeToString(b[:])
}

// T is the state of a check: its store, the prefix of its keys, and its failures.
type T struct {
	Ctx    context.Context
	Store  store.Store // hooked, and records the keys of its calls
	Prefix string
	Wrote  Written
	Seed   uint64 // of the Host, or a new one
	Brief  bool
	Mutate func(p *weir.Policy)

	host   Host
	test   *testing.T
	hooked store.Store // from New or Reopen, for the functions of the Host
	stuck  bool        // calls do not return, so the keys cannot be deleted
	verdicts
}

// New returns the state of a check on a new store of h.
func New(ctx context.Context, t *testing.T, h Host) *T {
	r := &T{Ctx: ctx, Prefix: NewID(), Seed: h.Seed, Brief: h.Brief, Mutate: h.Mutate, host: h, test: t, hooked: h.New(t)}
	r.Store = Note(r.hooked, &r.Wrote)
	if r.Mutate == nil {
		r.Mutate = func(*weir.Policy) {}
	}
	for r.Seed == 0 {
		r.Seed = new(maphash.Hash).Sum64()
	}
	return r
}

// Written are the keys of a check's calls.
type Written struct {
	Evals atomic.Int64 // the calls of Eval
	mu    sync.Mutex
	Keys  map[string]bool
}

func (w *Written) note(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Keys == nil {
		w.Keys = map[string]bool{}
	}
	for _, key := range keys {
		if !w.Keys[key] {
			w.Keys[strings.Clone(key)] = true // the caller may use its buffer again
		}
	}
}

// Note returns a store over st that adds the keys of its calls to w. It is a pointer, so
// that it can be compared even if st cannot.
func Note(st store.Store, w *Written) store.Store {
	n := noting{st, w}
	if b, ok := st.(store.Batcher); ok {
		return &notingBatcher{n, b}
	}
	return &n
}

// A noting store records the keys of its calls. It borrows strings if its store does.
type noting struct {
	store.Store
	keys *Written
}

func (n *noting) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	n.keys.Evals.Add(1)
	n.keys.note(keys)
	return n.Store.Eval(ctx, s, keys, args, reply)
}

func (n *noting) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	n.keys.note(keys)
	return n.Store.MGet(ctx, keys, values)
}

func (n *noting) BorrowsStrings(store.Store) bool {
	b, ok := n.Store.(store.Borrower)
	return ok && b.BorrowsStrings(n.Store)
}

type notingBatcher struct {
	noting
	batcher store.Batcher
}

func (n *notingBatcher) EvalBatch(ctx context.Context, calls []store.Eval) {
	for _, c := range calls {
		n.keys.note(c.Keys)
	}
	n.batcher.EvalBatch(ctx, calls)
}

// clean deletes the keys that the check wrote. If that fails, so does the check.
func (t *T) clean() {
	if t.stuck {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Ctx), CheckTime/2)
	defer cancel()
	t.Wrote.mu.Lock()
	defer t.Wrote.mu.Unlock()
	slots := map[int][]string{}
	for key := range t.Wrote.Keys {
		slots[store.Slot(key)] = append(slots[store.Slot(key)], key)
	}
	var calls []store.Eval
	for _, keys := range slots {
		for some := range slices.Chunk(keys, 1000) {
			calls = append(calls, store.Eval{Script: scripts.Clean, Keys: some, Args: []store.Arg{store.IntArg(int64(len(some)))}})
		}
	}
	if b, ok := t.hooked.(store.Batcher); ok {
		b.EvalBatch(ctx, calls)
	} else {
		for i := range calls {
			c := &calls[i]
			if _, c.Err = t.hooked.Eval(ctx, c.Script, c.Keys, c.Args, nil); ctx.Err() != nil {
				break
			}
		}
	}
	for _, c := range calls {
		if c.Err != nil {
			t.Errorf("the check ended, and a script that deletes %d of its keys failed: %v", len(c.Keys), c.Err)
			return
		}
	}
}
