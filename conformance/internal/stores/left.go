package stores

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// checkPanic runs a form that panics, alone and in a batch. A server that runs the Lua only
// sees a script that fails.
func checkPanic(t *suite.T) {
	keys := t.Keys("a", 2)
	before := []store.Value{store.IntegerValue(5)}
	fails := func(what string, reply []store.Value, err error) {
		if !errors.Is(err, store.ErrScript) || errors.Is(err, store.ErrUnavailable) || !slices.Equal(reply, before) {
			t.Errorf("%s whose form panics: got %v and error %v, want %v and ErrScript alone", what, reply, err, before)
		}
	}
	reply, err := t.Store.Eval(t.Ctx, scripts.Panics, keys, nil, before)
	fails("a call", reply, err)
	t.Equal(t.Served(t.Store, keys, "a form panicked")[0].Int(), int64(0), "the key counted %d after a form that panicked, want %d")
	b, ok := t.Store.(store.Batcher)
	if !ok {
		return
	}
	calls := []store.Eval{{Script: scripts.Counter, Keys: keys}, {Script: scripts.Panics, Keys: keys, Reply: before}, {Script: scripts.Counter, Keys: keys}}
	b.EvalBatch(t.Ctx, calls)
	fails("a call of a batch", calls[1].Reply, calls[1].Err)
	for _, i := range []int{0, 2} {
		if calls[i].Err != nil {
			t.Errorf("call %d of a batch in which a form panics: %v", i, calls[i].Err)
		}
	}
	t.Equal(t.Served(t.Store, keys, "a form of a batch panicked")[0].Int(), int64(3), "the key counted %d after a batch in which a form panicked, want %d")
}

// checkInterrupted ends contexts in the middle of calls, which can then succeed or fail. A
// server that runs the Lua does not notice it.
func checkInterrupted(t *suite.T) {
	keys := t.Keys("a", 2)
	for range 10 { // a pool can have several connections
		n := t.Served(t.Store, keys, "no context has ended")[0].Int() + 1
		for _, c := range []struct {
			what   string
			script *store.Script
			arg    int64
			fails  error
			writes int64
		}{
			{"the context ended before a commit", scripts.Counter, 1 << 40, nil, 1},
			{"the context ended in a form that failed", scripts.Counter, 1 << 40, errors.New("broken on purpose"), 0},
			{"the context ended in a form that changes nothing", scripts.Echo, 0, nil, 0},
			{"the context ended in a form that only reads", scripts.Look, 2, nil, 0},
		} {
			ctx, cancel := context.WithCancel(t.Ctx)
			_, err := t.Store.Eval(ctx, c.script.WithForm(func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
				cancel()
				reply, err := c.script.GoForm()(tx, args, reply)
				return reply, cmp.Or(err, c.fails)
			}), keys, []store.Arg{store.IntArg(c.arg)}, nil)
			interrupted := ctx.Err() != nil
			cancel()
			got := t.Served(t.Store, keys, c.what)[0].Int()
			if interrupted && got != n+c.writes && (err == nil || got != n) || c.fails != nil && interrupted && err == nil {
				t.Errorf("%s, and the call returned the error %v: the key counted %d, and then %d", c.what, err, n, got)
			}
			n = got + 1
		}
	}
}

// checkProcesses counts in two processes at once, and then kills one of them in a call.
func checkProcesses(t *suite.T) {
	p := t.Process()
	defer p.End()
	keys := t.Keys("a", 2)
	var ops []suite.Op
	ops = append(ops, p.Count(keys, 200, func() { ops = append(ops, suite.OpOf(t.Eval(scripts.Counter, keys))) })...)
	slices.SortFunc(ops, func(a, b suite.Op) int { return cmp.Or(cmp.Compare(a.N, b.N), cmp.Compare(a.Now, b.Now)) })
	var clock steps
	for i, op := range ops {
		switch {
		case op.N < int64(i):
			t.Fatalf("two processes are not atomic: two calls returned value %d, so the step of one was lost", op.N)
		case op.N > int64(i):
			t.Fatalf("value %d was returned in place of %d: a step ran twice", op.N, i)
		case i > 0 && op.Now < ops[i-1].Now:
			clock.back(op.N, "value %d was returned at %d µs, and the next value, perhaps by another process, at %d", i-1, ops[i-1].Now, op.Now)
		}
	}
	clock.check(t)
	if p.Hold(keys) {
		p.Kill()
		n := t.Served(t.Store, keys, "a process was killed while the form of its call ran")[0].Int()
		t.Equal(n, int64(len(ops)), "after a process was killed while the form of its call ran, the key counted %d, want %d")
	}
}

// checkProcessWait lets calls wait while another process holds their keys. It releases them
// only when the calls have returned, or are late: the machine can be busy, so a store can be
// late twice.
func checkProcessWait(t *suite.T) {
	p := t.Process()
	defer p.End()
	for try := 1; ; try++ {
		keys := t.Keys("a"+strconv.Itoa(try), 2)
		if !p.Hold(keys) { // the store runs the Lua
			return
		}
		var wg sync.WaitGroup
		counted, late := int64(0), ""
		for name, call := range map[string]func(ctx context.Context) error{
			"Eval": func(ctx context.Context) error {
				_, err := t.Store.Eval(ctx, scripts.Counter, keys, nil, nil)
				if err == nil { // the store is optimistic
					counted++
				}
				return err
			},
			"Eval of a read-only script": func(ctx context.Context) error {
				_, err := t.Store.Eval(ctx, scripts.Look, keys, []store.Arg{store.IntArg(2)}, nil)
				return err
			},
			"MGet": func(ctx context.Context) error {
				_, err := t.Store.MGet(ctx, keys, nil)
				return err
			},
		} {
			if !endsInTime(t, &wg, name, call) {
				late = name
				break
			}
		}
		released := p.Release()
		if wg.Wait(); released {
			counted++
		}
		n := t.Served(t.Store, keys, "another process held the keys for longer than the context of a call")[0].Int()
		t.Equal(n, counted, "the key counted %d, want %d, which is the number of calls that succeeded")
		switch {
		case late == "":
			return
		case try == 8:
			t.Fatalf("%s with a timeout of %v waited for more than %v for keys that another process holds", late, lockTimeout, lockTimeout+mostLate)
		}
	}
}

const lockTimeout, mostLate = 100 * time.Millisecond, 2 * time.Second

// endsInTime reports whether call, in a goroutine of wg, ends soon after its context.
func endsInTime(t *suite.T, wg *sync.WaitGroup, name string, call func(ctx context.Context) error) bool {
	ctx, cancel := context.WithTimeout(t.Ctx, lockTimeout)
	ended := make(chan struct{})
	t.Goes(wg, func() {
		defer cancel()
		defer close(ended)
		if err := call(ctx); err != nil && (!errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable)) {
			t.Errorf("%s, whose context ended while another process held the keys: got error %v, want %v alone", name, err, context.DeadlineExceeded)
		}
	})
	return !suite.GoesOn(ended, lockTimeout+mostLate)
}

// checkDurable closes the store, and opens it again.
func checkDurable(t *suite.T) {
	const ttl = 500 * time.Millisecond
	keys := t.Keys("a", 6)
	counts, sets, gone := keys[:2], keys[2:4], keys[4:]
	for range 3 {
		t.Eval(scripts.Counter, counts)
	}
	for i, text := range []string{"x\x00\xff", "y"} {
		t.Change(sets[0], scripts.SetChange{Add: store.Member{Score: int64(i), Text: text}})
	}
	t.Change(sets[1], scripts.SetChange{Add: scripts.Member, TTL: ttl})
	t.Put(gone[1], 1)
	t.Delete(t.Store, gone[1])
	first := t.Eval(scripts.Put, gone[:1], store.IntArg(ttl.Milliseconds()), store.IntArg(1))[0].Int()
	state := func() []store.Value {
		look := t.Look(counts[0], counts[1], gone[1])
		return append(look[:3:3], t.Change(sets[0], scripts.SetChange{Find: "x\x00\xff"})...)
	}
	before, listed := state(), t.List("")
	t.Reopen()
	t.Equal(state(), before, "after the store was opened again, two counters, a deleted key (-1 is missing), and a set hold %v, want %v as before")
	t.Holds(store.BulkValue("c1 3"), counts, "after the store was opened again")
	for key, left := range t.List("") {
		if before := listed[key]; left > before+suite.Skew || left <= 0 && before > ttl { // the others may end just now
			t.Errorf("before the store was opened again, the TTL of key %q was %v, and then it was %v", key, before, left)
		}
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		look := t.Look(gone[0])
		here, age := look[0].Int() > 0, time.Duration(look[1].Int()-first)*time.Microsecond
		members := t.Eval(scripts.Count, sets[1:])[0].Int()
		switch {
		case !here && age+suite.Skew < ttl:
			t.Fatalf("after the store was opened again, a key with a TTL of %v is missing after %v", ttl, age)
		case !here && members == 0:
			return
		case age > 5*time.Second:
			t.Fatalf("after the store was opened again, a key (%v) and a set (%d members) with a TTL of %v have not expired after %v", here, members, ttl, age)
		}
	}
}
