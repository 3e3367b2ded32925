package conformance

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
	"github.com/weir-go/weir/internal/report"
	"github.com/weir-go/weir/store"
)

// declared holds the checks that are known to fail, with the reasons. who fails them: the
// store or the algorithm. field is the field that declares them.
type declared struct {
	reasons    map[string]string
	who, field string
}

// run runs the checks of groups on b, up to b.Parallel at once.
func run(t *testing.T, b Backend, groups []group, d declared) {
	b.Brief = b.Brief || testing.Short()
	known := names(groups)
	for name := range d.reasons {
		if !slices.Contains(known, name) {
			t.Errorf("conformance: %s has the key %q: it must be the name of a check", d.field, name)
		}
	}
	if record := b.Record; record != nil {
		var mu sync.Mutex
		b.Record = func(o Outcome) {
			mu.Lock()
			defer mu.Unlock()
			record(o)
		}
	}
	if b.Report != nil {
		set := report.Settings{Keys: b.Keys != nil, Peer: b.Peer != nil, DropScripts: b.DropScripts != nil, Brief: b.Brief, Seed: b.Seed}
		r := b.Report
		b.recorder = report.Start(t, report.Report{File: r.File, Store: r.Store, Client: r.Client, Server: r.Server, Settings: set}, known)
	}
	free := make(chan struct{}, max(b.Parallel, 1))
	var alone sync.RWMutex
	start := func(wg *sync.WaitGroup, f func()) {
		if b.Parallel > 1 {
			wg.Go(f)
			return
		}
		f()
	}
	var all sync.WaitGroup
	for _, g := range groups {
		b := b
		b.subject = g.subject
		start(&all, func() {
			t.Run(g.name, func(t *testing.T) {
				var own sync.WaitGroup
				for _, c := range g.checks {
					start(&own, func() {
						lock := alone.RLocker()
						if c.disturbs() {
							lock = &alone
						}
						free <- struct{}{}
						lock.Lock()
						defer func() { lock.Unlock(); <-free }()
						t.Run(c.name, func(t *testing.T) { judge(t, b, g.name+"/"+c.name, c, d) })
					})
				}
				own.Wait()
			})
		})
	}
	all.Wait()
}

// judge runs the check c, named name, on b, and reports the outcome to t and to the
// backend.
func judge(t *testing.T, b Backend, name string, c check, d declared) {
	t.Helper()
	out, noted, start := Outcome{Check: name}, report.Check{Name: name, Promise: c.text}, time.Now()
	defer func() {
		noted.Reason = out.Skipped
		b.recorder.Check(noted, time.Since(start), out.Passed, t.Failed())
		if b.Record != nil {
			b.Record(out)
		}
	}()
	r := runCheck(t, b, c)
	noted.Seed = r.seed
	if (t.Failed() || t.Skipped()) && len(r.failures) == 0 {
		return // a function of the Backend failed or skipped the test
	}
	switch reason, known := d.reasons[name]; {
	case known && r.skipped == "" && len(r.failures) == 0:
		t.Errorf("declared unsupported (%s), and it passes: remove it from %s", reason, d.field)
	case known:
		out.Skipped = d.who + " does not support it: " + reason
		t.Skip(out.Skipped)
	case r.skipped != "":
		out.Skipped = r.skipped
		t.Skip(r.skipped)
	case len(r.failures) > 0:
		t.Errorf("broken: %s\nseed %d, check at %s\n%s", c.text, r.seed, c.at(), strings.Join(r.failures, "\n"))
	default:
		out.Passed = true
	}
}

// at returns the file and line of the check.
func (c check) at() string {
	file, line := runtime.FuncForPC(reflect.ValueOf(c.run).Pointer()).FileLine(reflect.ValueOf(c.run).Pointer())
	return filepath.Base(file) + ":" + strconv.Itoa(line)
}

// checkTime is the time until the context of a check ends. A check that ignores its context
// fails after twice this time.
const checkTime = 4 * time.Minute

// runCheck runs c on a new store of b, and deletes the keys that it wrote.
func runCheck(t *testing.T, b Backend, c check) *T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), checkTime)
	defer cancel()
	r := &T{ctx: ctx, test: t, backend: b, hooked: b.New(t), id: newID(), seed: b.Seed}
	if _, err := weir.New("check", r.hooked, tenPerMinute, nil); err != nil {
		t.Fatalf("conformance: Backend.New returned a store that weir.New rejects: %v", err)
	}
	b.recorder.Store(r.hooked)
	r.store = r.noted(r.hooked)
	for r.seed == 0 {
		r.seed = new(maphash.Hash).Sum64()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.recover()
		defer r.clean()
		c.run(r)
		r.ended = true
	}()
	select {
	case <-done:
		if !r.ended && r.skipped == "" && len(r.failures) == 0 && !t.Failed() && !t.Skipped() {
			r.errorf("the check ended early: a function of the Backend ended its goroutine")
		}
		return r
	case <-time.After(2 * checkTime):
		t.Fatalf("broken: %s\nthe check at %s did not end within %v: a call ignores its context", c.text, c.at(), 2*checkTime)
		return nil
	}
}

// newID returns a key prefix that no other check of any run uses.
func newID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "weirtest-" + hex.EncodeToString(b[:])
}

// T is the state of a check: its store, the prefix of its keys, and its failures.
type T struct {
	ctx     context.Context
	test    *testing.T
	backend Backend
	hooked  store.Store // from Backend.New, for the functions of the Backend
	store   store.Store // hooked, and records the keys of its calls
	id      string
	seed    uint64
	leases  bool // requests hold leases
	names   int  // the number of named leases
	verdicts

	wrote written
}

// written are the keys of a check's calls.
type written struct {
	evals atomic.Int64 // the calls of Eval
	mu    sync.Mutex
	keys  map[string]bool
}

func (w *written) note(keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys == nil {
		w.keys = map[string]bool{}
	}
	for _, key := range keys {
		if !w.keys[key] {
			w.keys[strings.Clone(key)] = true // the caller may use its buffer again
		}
	}
}

// noted returns a store over st that records the keys of its calls. It is a pointer, so that
// it can be compared even if st cannot.
func (t *T) noted(st store.Store) store.Store {
	n := noting{st, &t.wrote}
	if b, ok := st.(store.Batcher); ok {
		return &notingBatcher{n, b}
	}
	return &n
}

// A noting store records the keys of its calls. It borrows strings if its store does.
type noting struct {
	store.Store
	keys *written
}

func (n *noting) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	n.keys.evals.Add(1)
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

// clean tries to delete the keys that the check wrote.
func (t *T) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), checkTime/4)
	defer cancel()
	t.wrote.mu.Lock()
	defer t.wrote.mu.Unlock()
	slots := map[int][]string{}
	for key := range t.wrote.keys {
		slots[store.Slot(key)] = append(slots[store.Slot(key)], key)
	}
	var calls []store.Eval
	for _, keys := range slots {
		for some := range slices.Chunk(keys, 1000) {
			calls = append(calls, store.Eval{Script: cleanScript, Keys: some, Args: []store.Arg{store.IntArg(int64(len(some)))}})
		}
	}
	if b, ok := t.hooked.(store.Batcher); ok {
		b.EvalBatch(ctx, calls)
		return
	}
	for _, c := range calls {
		if _, err := t.hooked.Eval(ctx, c.Script, c.Keys, c.Args, nil); ctx.Err() != nil && err != nil {
			return
		}
	}
}

// cleanScript deletes its keys. ARGV[1] is their number.
var cleanScript = store.NewScript("clean", `
return {redis.call('UNLINK', unpack(KEYS))}
`, func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for i := range int(args[0].Int()) {
		tx.Del(i)
	}
	return append(reply, store.IntegerValue(0)), nil
})
