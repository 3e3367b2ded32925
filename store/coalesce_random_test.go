package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// An erratic is a store whose calls take random times, and fail or panic as their keys
// say.
type erratic struct {
	server
	flying atomic.Int32 // calls and batches under way
	most   atomic.Int32
}

func (e *erratic) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	calls := []store.Eval{{Script: script, Keys: keys, Args: args}}
	e.EvalBatch(ctx, calls)
	if calls[0].Err == nil {
		reply = append(reply, calls[0].Reply...)
	}
	return reply, calls[0].Err
}

func (e *erratic) EvalBatch(ctx context.Context, calls []store.Eval) {
	n := e.flying.Add(1)
	defer e.flying.Add(-1)
	for most := e.most.Load(); n > most && !e.most.CompareAndSwap(most, n); most = e.most.Load() {
	}
	for range rand.IntN(20) {
		runtime.Gosched()
	}
	for i := range calls {
		c := &calls[i]
		switch kind := c.Keys[0][0]; {
		case ctx.Err() != nil:
			c.Err = ctx.Err()
		case kind == 'p' && rand.IntN(4) == 0:
			panic("lost the plot")
		case kind == 'f':
			c.Reply, c.Err = append(c.Reply, store.BulkValue("of an error")), store.Foreign(c.Keys[0])
		default:
			for n := range c.Keys {
				c.Reply = append(c.Reply, store.BulkValue(c.Keys[n]), store.BulkValue(c.Args[n].String()))
			}
		}
	}
}

// Each of many callers gets its own answer, whatever happens to the other calls: errors,
// panics, and contexts that end at any time. At most two trips are under way at a time.
func TestCoalesceRandom(t *testing.T) {
	t.Parallel()
	e := new(erratic)
	st := store.Coalesce(e)
	var wg sync.WaitGroup
	for id := range 40 {
		wg.Go(func() {
			for i := range 200 {
				one(t, st, fmt.Sprintf("%c-%d-%d", "pfookkkk"[rand.IntN(8)], id, i))
			}
		})
	}
	wg.Wait()
	if n := e.most.Load(); n > 2 {
		t.Errorf("%d trips were under way at once, want at most 2", n)
	}
}

// one makes a call for key, with up to three keys in all, and checks the answer.
func one(t *testing.T, st store.Store, key string) {
	keys, args := []string{key}, []store.Arg{store.StringArg("arg of " + key)}
	for range rand.IntN(3) {
		keys, args = append(keys, keys[len(keys)-1]+"x"), append(args, store.StringArg(args[len(args)-1].String()+"x"))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch rand.IntN(4) {
	case 0:
		cancel()
	case 1:
		go func() {
			runtime.Gosched()
			cancel()
		}()
	case 2:
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, time.Duration(rand.IntN(100_000)))
		defer stop()
	}
	before := []store.Value{store.IntegerValue(7)}
	reply, err := func() (reply []store.Value, err error) {
		defer func() {
			if p := recover(); p != nil { // of a call that was sent alone
				reply, err = before, fmt.Errorf("%v: %w", p, store.ErrScript)
			}
		}()
		return st.Eval(ctx, noop, keys, args, before)
	}()
	if err != nil {
		own := ctx.Err() != nil && errors.Is(err, ctx.Err()) || errors.Is(err, store.ErrScript) ||
			errors.Is(err, store.ErrForeign) && key[0] == 'f' || errors.Is(err, context.DeadlineExceeded)
		if _, bounded := ctx.Deadline(); !own || errors.Is(err, context.DeadlineExceeded) && !bounded {
			t.Errorf("%s: got error %v, which is not its own", key, err)
		}
		if len(reply) != 1 {
			t.Errorf("%s: got reply %v with an error, want the unchanged one", key, reply)
		}
		return
	}
	if len(reply) != 1+2*len(keys) || key[0] == 'f' {
		t.Errorf("%s: got reply %v", key, reply)
		return
	}
	for i := range keys {
		if reply[1+2*i].Str() != keys[i] || reply[2+2*i].Str() != args[i].String() {
			t.Errorf("%s: got reply %v, want that of %v", key, reply, keys)
		}
	}
}

// A slowDone is a context that has ended, but whose Done channel is still open. So its
// caller does not see it yet.
type slowDone struct {
	context.Context
	done chan struct{}
}

func (s slowDone) Done() <-chan struct{} { return s.done }
func (s slowDone) Err() error            { return context.Canceled }

// A call whose context ends while it waits is not sent, even if its caller has not seen
// the end of the context yet.
func TestCoalesceEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		st := store.Coalesce(s)
		var wg sync.WaitGroup
		ask(t, &wg, t.Context(), st, "first", nil)
		synctest.Wait()
		ended := slowDone{t.Context(), make(chan struct{})}
		ask(t, &wg, ended, st, "ended", context.Canceled)
		synctest.Wait()
		ask(t, &wg, t.Context(), st, "other", nil)
		time.Sleep(1500 * time.Millisecond)
		close(ended.done)
		wg.Wait()
		s.check(t, "first", "other")
	})
}

// If all callers of a batch have left, the batch is canceled, and the next calls do not
// wait for it.
func TestCoalesceDeserted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		st := store.Coalesce(s)
		start := time.Now()
		var wg sync.WaitGroup
		ask(t, &wg, t.Context(), st, "first", nil)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		for _, key := range []string{"a", "b"} {
			ask(t, &wg, ctx, st, key, context.Canceled)
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		ask(t, &wg, gone, st, "gone", context.Canceled)
		synctest.Wait()
		leave() // before it is sent, so it does not count
		time.Sleep(1200 * time.Millisecond)
		ask(t, &wg, t.Context(), st, "next", nil)
		synctest.Wait()
		cancel()
		wg.Wait()
		if got, want := time.Since(start), 2200*time.Millisecond; got != want {
			t.Errorf("got %v, want %v: the batch that nobody waited for did not end", got, want)
		}
		s.check(t, "first", "a b", "next")

		// A caller that leaves does not end the batch of the others.
		ask(t, &wg, t.Context(), st, "first", nil)
		synctest.Wait()
		ctx, cancel = context.WithCancel(t.Context())
		ask(t, &wg, ctx, st, "a", context.Canceled)
		synctest.Wait()
		ask(t, &wg, t.Context(), st, "b", nil)
		time.Sleep(1200 * time.Millisecond)
		cancel()
		wg.Wait()
		s.check(t, "first", "a b", "next", "first", "a b")
	})
}

// A tap is a store that calls batch for each batch, and answers nothing.
type tap struct {
	server
	unfit error
	batch func(ctx context.Context, calls []store.Eval)
}

func (s *tap) EvalBatch(ctx context.Context, calls []store.Eval) { s.batch(ctx, calls) }
func (s *tap) Check() error                                      { return s.unfit }

// The slices of a caller that has left are its own again, although its batch is under
// way. The context of a batch ends with the batch.
func TestCoalesceSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batch context.Context
		var key, arg string
		st := store.Coalesce(&tap{batch: func(ctx context.Context, calls []store.Eval) {
			time.Sleep(time.Minute)
			batch, key, arg = ctx, calls[0].Keys[0], calls[0].Args[0].String()
		}})
		var wg sync.WaitGroup
		ask(t, &wg, t.Context(), st, "first", nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		ask(t, &wg, ctx, st, "a", context.DeadlineExceeded)
		wg.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		if key != "a" || arg != "arg of a" {
			t.Errorf("got key %q and arg %q in the batch, after the caller had left", key, arg)
		}
		args := []store.Arg{store.IntArg(1)}
		wg.Go(func() { _, _ = st.Eval(t.Context(), noop, []string{"b"}, args, nil) })
		synctest.Wait()
		wg.Go(func() { _, _ = st.Eval(t.Context(), noop, []string{"c"}, args, nil) })
		wg.Wait()
		if key != "c" || batch.Err() == nil {
			t.Errorf("the context of the batch of %q has not ended", key)
		}
	})
}

// A caller whose context ends when its answer arrives does not end the next batch.
func TestCoalesceLate(t *testing.T) {
	for range 300 { // the caller sees either first
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			st := store.Coalesce(&tap{batch: func(batch context.Context, calls []store.Eval) {
				time.Sleep(time.Second)
				if calls[0].Err = batch.Err(); calls[0].Keys[0] == "a" {
					cancel()
				}
			}})
			var wg sync.WaitGroup
			ask(t, &wg, t.Context(), st, "first", nil)
			synctest.Wait()
			wg.Go(func() { _, _ = st.Eval(ctx, noop, []string{"a"}, nil, nil) })
			time.Sleep(1500 * time.Millisecond)
			if _, err := st.Eval(t.Context(), noop, []string{"b"}, nil, nil); err != nil {
				t.Errorf("b: got %v", err)
			}
			wg.Wait()
		})
	}
}

// The context of a batch can end only if the contexts of all its calls can.
func TestCoalesceEndless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []bool
		st := store.Coalesce(&tap{batch: func(batch context.Context, _ []store.Eval) {
			ends = append(ends, batch.Done() != nil)
		}})
		for _, other := range []context.Context{t.Context(), context.Background()} {
			var wg sync.WaitGroup
			ask(t, &wg, t.Context(), st, "first", nil)
			synctest.Wait()
			for _, ctx := range []context.Context{other, t.Context()} {
				wg.Go(func() { _, _ = st.Eval(ctx, noop, []string{"a"}, nil, nil) })
			}
			wg.Wait()
			synctest.Wait() // the store is idle
		}
		if !slices.Equal(ends, []bool{true, false}) {
			t.Errorf("got %v, want true, false", ends)
		}
	})
}

// A store that can never work says why.
func TestCoalesceCheck(t *testing.T) {
	unfit := errors.New("no client")
	if err := store.Coalesce(&tap{unfit: unfit}).(store.Checker).Check(); err != unfit {
		t.Errorf("got %v, want %v", err, unfit)
	}
}

// A panicky is a context whose Deadline panics, like a nil context.
type panicky struct{ context.Context }

func (panicky) Deadline() (time.Time, bool) { panic("no context") }

// A panic of a caller's context, and a Goexit of the store, do not block other calls.
func TestCoalesceUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(server)
		st := store.Coalesce(s)
		var wg sync.WaitGroup
		ask(t, &wg, t.Context(), st, "a", nil)
		synctest.Wait()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was lost")
				}
			}()
			_, _ = st.Eval(panicky{t.Context()}, noop, []string{"b"}, nil, nil)
		}()
		ask(t, &wg, t.Context(), st, "exit", store.ErrScript)
		synctest.Wait()
		ask(t, &wg, t.Context(), st, "c", store.ErrScript)
		time.Sleep(1500 * time.Millisecond)
		ask(t, &wg, t.Context(), st, "d", nil)
		wg.Wait()
		s.check(t, "a", "exit c", "d")
	})
}
