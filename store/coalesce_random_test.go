package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
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
