package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Coalesce returns a store that sends concurrent calls of Eval together, in one batch.
// Use it if many goroutines of a process decide at once, unless the client is rueidis or
// valkey-go, which send concurrent calls together themselves.
//
//	lim, err := weir.New("api", store.Coalesce(goredis.New(rdb)), algorithm.TokenBucket{…}, nil)
//
// In a cluster, a batch ends when the slowest server has answered. If a server does not
// answer, all calls wait for it, including calls for other servers. So give every call a
// deadline, or set the timeouts of the client.
//
// If no other call is under way, a call is sent at once. Calls that arrive before it
// returns wait, and are then sent together. If 16 calls wait, they are sent as a second
// batch while the first is under way, so that the client and the server work at the same
// time. There is never a third. So a call waits for at most one other call or batch
// before it is sent. No timer is involved.
//
// The store st must be a [Batcher]. Otherwise every method returns an error, and so does
// weir.New. MGet, Time, EvalBatch and List go to st unchanged.
//
// If the context of a call ends while the call waits, the call is not sent. If it ends
// later, Eval returns the context's error at once, and the script may have run. The
// context of a batch ends at the latest deadline of its calls, or when all their contexts
// have ended. It has none of their values, for example no trace.
//
// While calls wait, the returned store runs a goroutine, and a second one if 16 calls
// wait.
func Coalesce(st Store) Store {
	c := &coalesced{Store: st}
	c.batcher, _ = st.(Batcher)
	switch {
	case st == nil:
		c.err = errors.New("store: Coalesce: the store is nil")
	case c.batcher == nil:
		c.err = fmt.Errorf("store: Coalesce: %T is not a Batcher: it cannot send calls together, so use it without Coalesce", st)
	default:
		if checker, ok := st.(Checker); ok {
			c.err = checker.Check()
		}
	}
	return c
}

// crowd is the number of waiting calls for which a second batch is sent. With fewer
// calls, two small batches would cost more than one.
const crowd = 16

type coalesced struct {
	Store
	batcher Batcher
	err     error // the reason why no call can work

	mu      sync.Mutex
	trips   int // the calls and batches under way: at most 2
	waiting []*queued
	left    int       // callers of waiting that have left, at least
	calls   sync.Pool // of *queued
}

var (
	_ Batcher         = (*coalesced)(nil)
	_ Checker         = (*coalesced)(nil)
	_ DeadlineChecker = (*coalesced)(nil)
	_ Lister          = (*coalesced)(nil)
)

// A queued is a call that is sent with others.
type queued struct {
	Eval
	ctx      context.Context
	deadline time.Time     // of ctx; zero if there is none
	done     chan struct{} // gets a value when the batch has returned
	batch    *batch        // nil until the call is sent
}

// A batch is several calls that are under way.
type batch struct {
	calls   []*queued
	callers int // without those that have left
	cancel  context.CancelFunc
}

func (c *coalesced) Check() error { return c.err }

func (c *coalesced) CheckDeadline() error {
	if checker, ok := c.Store.(DeadlineChecker); ok && c.err == nil {
		return checker.CheckDeadline()
	}
	return c.err
}

func (c *coalesced) List(ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
	if c.err != nil {
		return keys, "", c.err
	}
	lister, ok := c.Store.(Lister)
	if !ok {
		return keys, "", fmt.Errorf("store: %w: %T is not a Lister: it cannot list keys", errors.ErrUnsupported, c.Store)
	}
	return lister.List(ctx, prefix, cursor, keys)
}

func (c *coalesced) Eval(ctx context.Context, script *Script, keys []string, args []Arg, reply []Value) ([]Value, error) {
	if c.err != nil {
		return reply, c.err
	}
	q := c.queue(ctx, script, keys, args)
	if q == nil {
		defer c.next()
		return c.Store.Eval(ctx, script, keys, args, reply)
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		if c.leave(q) {
			return reply, fmt.Errorf("store: eval %s: %w", script.Name(), ctx.Err())
		}
		<-q.done
	}
	err := q.Err
	if err == nil {
		reply = append(reply, q.Reply...)
	}
	q.ctx, q.batch = nil, nil
	c.calls.Put(q)
	return reply, err
}

func (c *coalesced) EvalBatch(ctx context.Context, calls []Eval) {
	if c.err == nil {
		c.batcher.EvalBatch(ctx, calls)
		return
	}
	for i := range calls {
		calls[i].Err = c.err
	}
}

func (c *coalesced) MGet(ctx context.Context, keys []string, values []Value) ([]Value, error) {
	if c.err != nil {
		return values, c.err
	}
	return c.Store.MGet(ctx, keys, values)
}

func (c *coalesced) Time(ctx context.Context) (time.Time, error) {
	if c.err != nil {
		return time.Time{}, c.err
	}
	return c.Store.Time(ctx)
}

// queue adds a call to those that wait. It copies the slices, which are the caller's
// again as soon as Eval returns. If nothing is under way, queue returns nil: the call is
// sent alone.
func (c *coalesced) queue(ctx context.Context, script *Script, keys []string, args []Arg) *queued {
	deadline, _ := ctx.Deadline() // without the lock, because it can panic
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trips == 0 {
		c.trips = 1
		return nil
	}
	q, _ := c.calls.Get().(*queued)
	if q == nil {
		q = &queued{done: make(chan struct{}, 1)}
	}
	q.Script, q.Keys, q.Args = script, append(q.Keys[:0], keys...), append(q.Args[:0], args...)
	q.Reply, q.Err = q.Reply[:0], nil
	q.ctx, q.deadline = ctx, deadline
	c.waiting = append(c.waiting, q)
	if c.trips == 1 && len(c.waiting) >= crowd {
		c.trips = 2
		go c.send()
	}
	return q
}

// leave reports whether the caller of q can return without an answer. It cannot if the
// answer is there. The last caller that leaves a batch ends it.
func (c *coalesced) leave(q *queued) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(q.done) > 0 {
		return false
	}
	if b := q.batch; b != nil {
		if b.callers--; b.callers == 0 {
			b.cancel()
		}
		return true
	}
	// A trip can take long. Until it ends, at most twice the calls of present callers are
	// kept.
	if c.left++; 2*c.left > len(c.waiting) {
		c.waiting = slices.DeleteFunc(c.waiting, func(q *queued) bool { return q.ctx.Err() != nil })
		c.left = 0
	}
	return true
}

// next ends a call that was sent alone.
func (c *coalesced) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		go c.send()
	} else {
		c.trips--
	}
}

// send sends batches until no call waits.
func (c *coalesced) send() {
	for {
		b, ctx := c.take()
		if b == nil {
			return
		}
		c.run(ctx, b)
	}
}

// take makes a batch of the calls that wait, and returns it with its context. If no call
// waits, it returns nil, and the trip has ended. A caller whose context has ended leaves
// on its own.
func (c *coalesced) take() (*batch, context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := new(batch)
	latest, bounded, ends := time.Time{}, true, true
	for _, q := range c.waiting {
		if q.ctx.Err() != nil {
			continue
		}
		b.calls, q.batch = append(b.calls, q), b
		bounded = bounded && !q.deadline.IsZero()
		ends = ends && q.ctx.Done() != nil
		if q.deadline.After(latest) {
			latest = q.deadline
		}
	}
	c.waiting, c.left = nil, 0
	if b.calls == nil {
		c.trips--
		return nil, nil
	}
	b.callers = len(b.calls)
	ctx := context.Background()
	switch {
	case bounded:
		ctx, b.cancel = context.WithDeadline(ctx, latest)
	case ends:
		ctx, b.cancel = context.WithCancel(ctx)
	default: // a caller never leaves; some clients are quicker if a context never ends
		b.cancel = func() {}
	}
	return b, ctx
}

// run sends a batch, and hands out the answers. If the store panics, or ends the
// goroutine, every call returns an error: no caller could recover the panic.
func (c *coalesced) run(ctx context.Context, b *batch) {
	calls := make([]Eval, len(b.calls))
	for i, q := range b.calls {
		calls[i] = q.Eval
	}
	returned := false
	defer func() {
		reason := recover()
		c.mu.Lock()
		defer c.mu.Unlock()
		b.cancel()
		if !returned && reason == nil {
			reason = "it called runtime.Goexit"
			go c.send() // this goroutine ends
		}
		for i, q := range b.calls {
			if q.Eval = calls[i]; !returned {
				q.Err = fmt.Errorf("store: eval %s: a batch panicked: %v: %w", q.Script.Name(), reason, ErrScript)
			}
			q.done <- struct{}{} // never blocks, even if the caller has left
		}
	}()
	c.batcher.EvalBatch(ctx, calls)
	returned = true
}
