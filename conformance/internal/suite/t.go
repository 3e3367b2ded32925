package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/store"
)

// Name is the name of the limiters of the checks.
const Name = "suite"

// Skew is the largest difference between the clocks of a store's servers.
const Skew = 20 * time.Millisecond

// verdicts is the outcome of a check.
type verdicts struct {
	mu       sync.Mutex
	Failures []string
	Skipped  string
	Note     string // what the check could not see
	ended    bool   // the check ran to its end
}

// MaxFailures limits the output for a store with defects.
const MaxFailures = 5

// stop ends a check early, by panic.
type stop struct{}

// Errorf notes a failure.
func (t *T) Errorf(format string, args ...any) {
	at := lines()
	if at != "" {
		at += ": "
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := at + fmt.Sprintf(format, args...); len(t.Failures) < MaxFailures && !slices.Contains(t.Failures, text) {
		t.Failures = append(t.Failures, text)
	}
}

// lines returns the source lines of the check that runs, the innermost first. Those of the
// helpers that many checks share, in this package and in files called t.go, are left out.
func lines() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	own, more := frames.Next()
	all := strings.TrimSuffix(own.Function, "/internal/suite.lines")
	var list []string
	for more {
		var f runtime.Frame
		f, more = frames.Next()
		base := filepath.Base(f.File)
		if strings.HasPrefix(f.Function, all) && filepath.Dir(f.File) != filepath.Dir(own.File) && base != "t.go" {
			list = append(list, base+":"+strconv.Itoa(f.Line))
		}
	}
	return strings.Join(list, ", from ")
}

// Equal checks that got and want are deeply equal. The args of format are args, and then got
// and want.
func (t *T) Equal(got, want any, format string, args ...any) {
	if !reflect.DeepEqual(got, want) {
		t.Errorf(format, append(args, got, want)...)
	}
}

// Fatalf ends the check. Only the check's own goroutine may call it.
func (t *T) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(stop{})
}

// StopFailed ends the check if there was a failure, and says where.
func (t *T) StopFailed(format string, args ...any) {
	if t.Failed() {
		t.Fatalf(format, args...)
	}
}

// Skipf ends the check as skipped, for a reason.
func (t *T) Skipf(format string, args ...any) {
	t.Skipped = fmt.Sprintf(format, args...)
	panic(stop{})
}

// Times returns the number of times that a random check of a store runs: n, or fewer if the
// run is brief.
func (t *T) Times(n int) int {
	if t.Brief {
		n /= 8
	}
	return max(n, 1)
}

// Goes runs f in a goroutine of wg. A store that panics fails this check and no other.
func (t *T) Goes(wg *sync.WaitGroup, f func()) {
	wg.Go(func() {
		defer t.recover()
		f()
	})
}

func (t *T) recover() {
	switch r := recover().(type) {
	case nil, stop:
	default:
		t.Errorf("panic: %v\n%s", r, debug.Stack())
	}
}

// Failed reports whether there was a failure.
func (t *T) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.Failures) > 0
}

// Rand returns a new random source, made with the seed of the check.
func (t *T) Rand() *rand.Rand { return rand.New(rand.NewPCG(t.Seed, 0)) }

// Key returns a key of this check. Keys with the same tag share a slot.
func (t *T) Key(tag, name string) string { return t.Prefix + ":{" + tag + "}:" + name }

// Keys returns n keys of this check with the same tag.
func (t *T) Keys(tag string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = t.Key(tag, strconv.Itoa(i))
	}
	return keys
}

// Eval runs s, and ends the check if that fails.
func (t *T) Eval(s *store.Script, keys []string, args ...store.Arg) []store.Value {
	return Must[[]store.Value](t, "Eval "+s.Name())(t.Store.Eval(t.Ctx, s, keys, args, nil))
}

// MGet returns the values of keys, and ends the check if that fails.
func (t *T) MGet(keys ...string) []store.Value {
	values := Must[[]store.Value](t, "MGet")(t.Store.MGet(t.Ctx, keys, nil))
	if len(values) != len(keys) {
		t.Fatalf("MGet of %d keys returned %d values", len(keys), len(values))
	}
	return values
}

// Holds checks that MGet returns want for each of keys. The format and its args describe the
// case.
func (t *T) Holds(want store.Value, keys []string, format string, args ...any) {
	for i, v := range t.MGet(keys...) {
		t.Equal(v, want, "%s: the key %.200q holds %v, want %v", fmt.Sprintf(format, args...), keys[i])
	}
}

// Must returns the result of the call named what, and ends the check if there is an error.
func Must[V any](t *T, what string) func(V, error) V {
	return func(v V, err error) V {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return v
	}
}

// Time returns the time of the store.
func (t *T) Time() time.Time { return Must[time.Time](t, "Time")(t.Store.Time(t.Ctx)) }

// GoesOn waits for d, and reports whether ended is still open.
func GoesOn(ended <-chan struct{}, d time.Duration) bool {
	select {
	case <-ended:
		return false
	case <-time.After(d):
		return true
	}
}

// Put sets key to "p1 n", with scripts.LongTTL.
func (t *T) Put(key string, n int64) {
	t.Eval(scripts.Put, []string{key}, scripts.LongMillis, store.IntArg(n))
}

// Look returns the first number of each of keys, or -1 if it is missing, and the time.
func (t *T) Look(keys ...string) []store.Value {
	return t.Eval(scripts.Look, keys, store.IntArg(int64(len(keys))))
}

// Change runs scripts.SetStep on key.
func (t *T) Change(key string, c scripts.SetChange) []store.Value {
	return t.Eval(scripts.SetStep, []string{key}, c.Args()...)
}

// Delete deletes keys of st, which share a slot.
func (t *T) Delete(st store.Store, keys ...string) {
	Must[[]store.Value](t, "Eval")(st.Eval(t.Ctx, scripts.Clean, keys, []store.Arg{store.IntArg(int64(len(keys)))}, nil))
}

// DropScripts makes the server lose its scripts.
func (t *T) DropScripts() {
	if t.host.DropScripts == nil {
		t.Skipf("backend gives no DropScripts")
	}
	t.host.DropScripts(t.test, t.hooked)
}

// Peer returns another store with the same state.
func (t *T) Peer() store.Store {
	if t.host.Peer == nil {
		t.Skipf("backend gives no Peer")
	}
	return Note(t.host.Peer(t.test, t.hooked), &t.Wrote)
}

// HasPeer reports whether the backend gives a Peer.
func (t *T) HasPeer() bool { return t.host.Peer != nil }

// Reopen closes the store, and replaces it by another one with the same state.
func (t *T) Reopen() {
	if t.host.Reopen == nil {
		t.Skipf("backend gives no Reopen")
	}
	t.hooked = t.host.Reopen(t.test, t.hooked)
	t.Store = Note(t.hooked, &t.Wrote)
}

// served is how long a call may take that need not wait for another call.
const served = 20 * time.Second

// Served counts with the two keys on st, and returns the reply. If the call is not served
// soon, an earlier call has left something behind, so Served ends the check. what says
// what happened before.
func (t *T) Served(st store.Store, keys []string, what string) []store.Value {
	ctx, cancel := context.WithTimeout(t.Ctx, served)
	defer cancel()
	var reply []store.Value
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer t.recover()
		reply, err = st.Eval(ctx, scripts.Counter, keys, nil, nil)
	}()
	select {
	case <-ended:
	case <-time.After(served + 5*time.Second):
		t.stuck = true
		t.Fatalf("%s, and then a call on the same keys did not return: a lock is still held", what)
	}
	if t.stuck = err != nil; err != nil || len(reply) != 3 {
		t.Fatalf("%s, and then a call on the same keys failed: a lock, or a broken connection, is left: got %v, %v", what, reply, err)
	}
	return reply
}

// Plant makes raw the value of key, past the store. A store that runs Lua does it with a
// script.
func (t *T) Plant(key, raw string) {
	if t.host.Plant != nil {
		t.Wrote.note([]string{key})
		t.host.Plant(t.test, t.hooked, key, []byte(raw))
		return
	}
	_, err := t.Store.Eval(t.Ctx, scripts.PutText.WithForm(nil), []string{key}, []store.Arg{store.StringArg(raw)}, nil)
	if errors.Is(err, store.ErrNoGoForm) {
		t.Skipf("backend gives no Plant")
	}
	Must[any](t, "Eval of a script that sets a text")(nil, err)
}

// Writes returns a number that grows when the store writes.
func (t *T) Writes() int64 {
	if t.host.Writes == nil {
		t.Skipf("backend gives no Writes")
	}
	return t.host.Writes(t.test, t.hooked)
}

// Borrows reports whether the store says that it borrows the strings of calls to it, and
// whether it says so of calls to another store.
func (t *T) Borrows() (own, other bool) {
	b, ok := t.hooked.(store.Borrower)
	return ok && b.BorrowsStrings(t.hooked), ok && b.BorrowsStrings(struct{ store.Store }{t.hooked})
}

// DeadlineError returns the error of CheckDeadline, or nil if the store does not have it.
func (t *T) DeadlineError() error {
	if c, ok := t.hooked.(store.DeadlineChecker); ok {
		return c.CheckDeadline()
	}
	return nil
}

// Closed returns a store of New whose test has ended, so that New's cleanup functions have
// run, or nil if New failed.
func (t *T) Closed() store.Store {
	var st store.Store
	if !t.test.Run("closed", func(test *testing.T) { st = t.host.New(test) }) {
		return nil
	}
	return Note(st, &t.Wrote)
}

// Lists reports whether the backend lists its keys.
func (t *T) Lists() bool { return t.host.Keys != nil }

// List returns the keys of this check that begin with start, with their TTLs. If the
// backend lists no keys, List returns none.
func (t *T) List(start string) map[string]time.Duration {
	if !t.Lists() {
		return nil
	}
	return t.host.Keys(t.test, t.hooked, t.Prefix+start)
}

// Lister returns the store as a Lister.
func (t *T) Lister() store.Lister {
	l, ok := t.hooked.(store.Lister)
	if !ok {
		t.Skipf("store is no Lister")
	}
	return l
}

// Left returns the keys that the check left in the store.
func (t *T) Left() map[string]time.Duration {
	if !t.Lists() {
		t.Skipf("backend gives no Keys")
	}
	return t.List("")
}
