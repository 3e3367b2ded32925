package prefetch

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
)

// owed has the prefetches whose unused tokens are to be returned, now or when they are
// too old. Its mutex is locked after the mutex of a holding, and guards place and ended of
// each fetched.
type owed struct {
	mu     sync.Mutex
	list   list.List // of *fetched: first those whose tokens nobody can use any more, then the oldest
	failed list.List // of *fetched whose prefetch or return failed: their server can be away
	odd    bool      // next returned one of failed before one of the others
}

// begin adds f, whose tokens can now be used.
func (o *owed) begin(f *fetched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f.place = o.list.PushBack(f)
}

// end notes that nobody can use tokens of f any more. The caller holds the mutex of its
// holding.
func (o *owed) end(f *fetched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case f.place == nil: // somebody returns them just now
	case f.charged == f.used:
		o.remove(f)
	default:
		f.ended = true
		o.list.MoveToFront(f.place)
	}
}

// remove removes f from the list. The caller holds o.mu.
func (o *owed) remove(f *fetched) {
	o.list.Remove(f.place)
	f.place = nil
}

// maxFailed is the largest number of failed prefetches that wait for their return. Only an
// outage leaves that many. The others are fewer, because each busy key has one, and each
// prefetch that ends one also returns one.
const maxFailed = 1 << 16

// again adds f, whose prefetch or return failed.
func (o *owed) again(f *fetched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed.PushBack(f); o.failed.Len() > maxFailed {
		o.failed.Remove(o.failed.Front())
	}
}

// next removes and returns the next prefetch whose tokens are to be returned, or nil. If
// its tokens can be used, they are too old at the time now. Failed prefetches come last
// or, if late is true, every second time.
func (o *owed) next(now time.Duration, late bool) *fetched {
	o.mu.Lock()
	defer o.mu.Unlock()
	failed, first := o.failed.Front(), o.list.Front()
	o.odd = late && failed != nil && !o.odd
	if first != nil && !o.odd {
		if f := first.Value.(*fetched); f.ended || now >= f.until {
			o.remove(f)
			return f
		}
	}
	if failed == nil {
		return nil
	}
	return o.failed.Remove(failed).(*fetched)
}

// len returns the number of prefetches.
func (o *owed) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list.Len() + o.failed.Len()
}

// returnPause is the time after a return that failed in which no request returns tokens,
// unless it has at least twice as much time as that return had. Otherwise, a server that
// is away would delay every request, including those for other servers of a cluster.
const returnPause = time.Second

// If a return failed less than lateAfter ago, failed prefetches are returned last: the
// others need not wait for their server.
const lateAfter = 10 * returnPause

// A failedReturn says when a return failed, and how much time it had.
type failedReturn struct{ at, given time.Duration }

// returnOne returns the unused tokens of at most one prefetch. After an error, they are
// returned later.
func (p *Pool) returnOne(ctx context.Context) {
	now, given := p.now(), guard.Time
	if deadline, ok := ctx.Deadline(); ok {
		given = min(given, time.Until(deadline))
	}
	since, last := weir.Never, p.failed.Load()
	if last != nil && now >= last.at {
		since = now - last.at
	}
	if given <= 0 || since < returnPause && given < 2*last.given {
		return
	}
	late := since >= lateAfter
	for f := p.owed.next(now, late); f != nil; f = p.owed.next(now, late) {
		if !f.close(now) {
			continue
		}
		if guard.Unknown(p.giveBack(ctx, f)) {
			p.failed.Store(&failedReturn{p.now(), given})
		}
		return
	}
}

// returnAll tries to return the unused tokens of all current prefetches. It returns the
// first error.
func (p *Pool) returnAll(ctx context.Context) error {
	now := p.now()
	var first error
	for range p.owed.len() {
		if guard.Ended(ctx) {
			return cmp.Or(first, ctx.Err(), error(context.DeadlineExceeded))
		}
		f := p.owed.next(weir.Never, false)
		if f == nil {
			break
		}
		if f.close(now) {
			first = cmp.Or(first, p.giveBack(ctx, f))
		}
	}
	return first
}

// close ends the use of the tokens of f, which is in no list. It reports whether there
// are unused tokens to return.
func (f *fetched) close(now time.Duration) bool {
	h := f.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.held = f.used; h.current == f {
		h.current = nil
	}
	return f.charged > f.used && now < f.worth
}

// giveBack returns the unused tokens of f, which is closed. It takes at most guard.Time.
func (p *Pool) giveBack(ctx context.Context, f *fetched) error {
	ctx, cancel := context.WithTimeout(ctx, guard.Time)
	defer cancel()
	err := f.settle(ctx, f.used)
	if guard.Unknown(err) {
		p.owed.again(f)
	}
	return err
}

// settle makes actual what f consumed in the store.
func (f *fetched) settle(ctx context.Context, actual int64) error {
	res, err := f.decider.next.Decide(ctx, f.settled(actual), nil)
	if free := f.decider.freed; free != nil {
		free(&f.holding.key)
	}
	switch {
	case err != nil:
		return err
	case res.Degraded != nil: // only the process's share is settled
		return res.Degraded
	}
	f.charged = actual
	return nil
}

// settled returns the request that makes actual the cost of the decision f.
func (f *fetched) settled(actual int64) weir.Request {
	return weir.Request{Key: f.holding.key, Op: weir.Settle, ID: f.id, Actual: weir.ActualCost(actual)}
}
