package linear

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"math"
	mathrand "math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/integration/internal/requests"
	"github.com/weir-go/weir/store"
)

// A Recorder records histories of limiters over a store, one at a time.
type Recorder struct {
	// Prefix is what the keys of the histories begin with. No other key does.
	Prefix string

	// Pauses makes the next histories have requests to the limiter with pauses only.
	// Otherwise, a quarter of the histories have some.
	Pauses bool

	clients   [clients]client
	histories int
}

// A client makes one call at a time.
type client struct {
	limiters []*weir.Limiter
	now      time.Time // its clock
	ops      []porcupine.Operation
	unknown  int
	err      error
}

// Faults has functions that a history's clients call. They can call each of them
// concurrently. A field that is nil is not called.
type Faults struct {
	// Before is called before each call, with the number of calls that began earlier.
	Before func(calls int)

	// Lost is called by a client whose call had an unknown outcome. The client goes on
	// when it returns.
	Lost func()

	// More reports whether a client that has made its calls makes them again. The calls
	// have the same requests, with the same IDs.
	More func() bool
}

// New returns a Recorder for st.
func New(st store.Store) (*Recorder, error) {
	r := &Recorder{Prefix: "weirtest-linear-" + rand.Text()}
	for i := range r.clients {
		c := &r.clients[i]
		var err error
		if c.limiters, err = limiters(st, r.Prefix, &c.now); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Record records a history of clients that run concurrently. If faults is nil, an unknown
// outcome is an error.
func (r *Recorder) Record(ctx context.Context, seed uint64, faults *Faults) (*History, error) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	run := r.run(seed, faults)
	for i := range r.clients {
		wg.Go(func() {
			<-begin
			run(ctx, i)
		})
	}
	close(begin)
	wg.Wait()
	return r.history(seed)
}

// Drive records a history of clients that take turns. A client's turn ends before each call,
// and when the store calls [Yield]. The seed chooses the client whose turn is next. So it
// repeats the history, if the store is deterministic.
func (r *Recorder) Drive(ctx context.Context, seed uint64) (*History, error) {
	random := mathrand.New(mathrand.NewPCG(seed, 2))
	run := r.run(seed, nil)
	var turns []func() (struct{}, bool)
	for i := range r.clients {
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			run(context.WithValue(ctx, turn{}, func() { yield(struct{}{}) }), i)
		})
		defer stop()
		turns = append(turns, next)
	}
	for len(turns) > 0 {
		i := random.IntN(len(turns))
		if _, more := turns[i](); !more {
			turns = slices.Delete(turns, i, i+1)
		}
	}
	return r.history(seed)
}

// turn is the key of the function in a context that ends the turn of a client.
type turn struct{}

// Yield ends the turn of the client that makes the call with ctx. It returns when the client
// has a turn again. If the history is not of [Recorder.Drive], other goroutines can run.
func Yield(ctx context.Context) {
	if end, ok := ctx.Value(turn{}).(func()); ok {
		end()
		return
	}
	runtime.Gosched()
}

// run returns a function that makes the calls of client i.
func (r *Recorder) run(seed uint64, faults *Faults) func(ctx context.Context, i int) {
	r.histories++
	steps := plan(seed, fmt.Sprint(r.histories), r.Pauses)
	var f Faults
	if faults != nil {
		f = *faults
	}
	var began, now, ticks atomic.Int64
	now.Store(start.UnixMicro())
	return func(ctx context.Context, i int) {
		c := &r.clients[i]
		c.ops, c.unknown, c.err = nil, 0, nil
		for n := 0; n < calls || f.More != nil && f.More(); n++ {
			s := &steps[i][n%calls]
			if before := began.Add(1) - 1; f.Before != nil {
				f.Before(int(before))
			}
			Yield(ctx)
			c.now = time.UnixMicro(now.Add(s.advance.Microseconds())).UTC()
			call := ticks.Add(1)
			answers := requests.Call(ctx, c.limiters[s.policy], len(policies[s.policy].Rules), s.requests)
			err := c.note(i, s, answers, call, ticks.Add(1))
			switch {
			case err == nil:
			case faults == nil:
				c.err = fmt.Errorf("seed %d: an outcome is unknown without a fault: %w", seed, err)
				return
			case f.Lost != nil:
				f.Lost()
			}
		}
	}
}

// note adds the requests of s to the history of client i. If an outcome is unknown, it
// returns the error of the call.
func (c *client) note(i int, s *step, answers []requests.Answer, call, returned int64) (err error) {
	for n, a := range answers {
		op := porcupine.Operation{ClientId: i + n*clients, Call: call, Return: returned}
		in := input{policy: s.policy, request: s.requests[n], now: c.now, many: len(answers) > 1}
		out := output{result: a.Result, each: a.Each}
		if a.Err != nil {
			out = output{err: a.Err.Error()}
		}
		if requests.Lost(a.Err) {
			err = a.Err
			c.unknown++
			if in.request.Op == weir.Peek {
				continue // it changes nothing, and its answer is unknown
			}
			op.Return, out = math.MaxInt64, output{unknown: true}
		}
		op.Input, op.Output = in, out
		c.ops = append(c.ops, op)
	}
	return err
}

// history returns the history that the clients have recorded.
func (r *Recorder) history(seed uint64) (*History, error) {
	h := &History{Seed: seed}
	for i := range r.clients {
		c := &r.clients[i]
		if c.err != nil {
			return nil, c.err
		}
		h.ops = append(h.ops, c.ops...)
		h.Unknown += c.unknown
	}
	return h, nil
}
