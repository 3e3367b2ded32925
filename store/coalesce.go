package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Coalesce returns a store that sends concurrent calls of Eval together. Use it if many
// goroutines of a process decide at once, over a client that does not send their commands
// together itself. rueidis does. go-redis and redigo do not.
//
//	lim, err := weir.New("api", store.Coalesce(goredis.New(rdb)), algorithm.GCRA{…}, nil)
//
// A call that finds no other call under way is sent at once. Calls that arrive in the
// meantime wait, and are sent together when it returns. So a call waits at most for the
// one batch that is under way. No timer is involved.
//
// The store st must be a [Batcher]. Otherwise every method returns an error, and so does
// weir.New. MGet, Time and EvalBatch go to st as they are.
//
// If the context of a call ends while the call waits, the call is not sent. If it ends
// later, Eval returns the context's error at once, and the script may have run. A batch
// ends at the latest deadline of its calls. It has none of the values of their contexts,
// for example no trace. In a cluster, a batch takes as long as its slowest server.
//
// The returned store starts a goroutine when calls wait. The goroutine ends when no call
// waits.
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

type coalesced struct {
	Store
	batcher Batcher
	err     error // the reason why no call can work

	mu      sync.Mutex
	busy    bool // a call or a batch is under way
	waiting []*queued
	calls   sync.Pool // of *queued
}

var (
	_ Batcher = (*coalesced)(nil)
	_ Checker = (*coalesced)(nil)
)

// A queued is a call that is sent with others.
type queued struct {
	Eval
	deadline time.Time     // zero if there is none
	done     chan struct{} // gets a value when the batch has returned
	left     bool          // its caller has left without an answer
}

func (c *coalesced) Check() error { return c.err }

func (c *coalesced) Eval(ctx context.Context, script *Script, keys []string, args []Arg, reply []Value) ([]Value, error) {
	if c.err != nil {
		return reply, c.err
	}
	c.mu.Lock()
	if !c.busy {
		c.busy = true
		c.mu.Unlock()
		defer c.next()
		return c.Store.Eval(ctx, script, keys, args, reply)
	}
	q := c.queue(ctx, script, keys, args)
	c.mu.Unlock()
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

// queue adds a call to those that wait. It copies the slices, which are the caller's again
// as soon as Eval returns.
func (c *coalesced) queue(ctx context.Context, script *Script, keys []string, args []Arg) *queued {
	q, _ := c.calls.Get().(*queued)
	if q == nil {
		q = &queued{done: make(chan struct{}, 1)}
	}
	q.Script, q.Keys, q.Args = script, append(q.Keys[:0], keys...), append(q.Args[:0], args...)
	q.Reply, q.Err = q.Reply[:0], nil
	q.deadline, _ = ctx.Deadline()
	q.left = false
	c.waiting = append(c.waiting, q)
	return q
}

// leave reports whether the caller of q can return without an answer. It cannot if the
// answer is there.
func (c *coalesced) leave(q *queued) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.left = len(q.done) == 0
	return q.left
}

// next ends a call that was sent alone.
func (c *coalesced) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy = len(c.waiting) > 0; c.busy {
		go c.send()
	}
}

// send sends batches until no call waits.
func (c *coalesced) send() {
	for {
		batch := c.take()
		if batch == nil {
			return
		}
		c.run(batch)
		c.mu.Lock()
		for _, q := range batch {
			if !q.left {
				q.done <- struct{}{}
			}
		}
		c.mu.Unlock()
	}
}

// take returns the calls that wait. If there are none, the store is idle.
func (c *coalesced) take() []*queued {
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch []*queued
	for _, q := range c.waiting {
		if !q.left {
			batch = append(batch, q)
		}
	}
	c.waiting = nil
	c.busy = batch != nil
	return batch
}

// run sends a batch. A panic of the store is an error of every call: no caller could
// recover it.
func (c *coalesced) run(batch []*queued) {
	ctx, latest, bounded := context.Background(), time.Time{}, true
	calls := make([]Eval, len(batch))
	for i, q := range batch {
		calls[i] = q.Eval
		bounded = bounded && !q.deadline.IsZero()
		if q.deadline.After(latest) {
			latest = q.deadline
		}
	}
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, latest)
		defer cancel()
	}
	defer func() {
		p := recover()
		for i, q := range batch {
			if q.Eval = calls[i]; p != nil {
				q.Err = fmt.Errorf("store: eval %s: a batch panicked: %v: %w", q.Script.Name(), p, ErrScript)
			}
		}
	}()
	c.batcher.EvalBatch(ctx, calls)
}
