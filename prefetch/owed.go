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
// too old. Its mutex is locked after the mutex of a holding.
type owed struct {
	mu    sync.Mutex
	live  list.List // of *fetched whose tokens can be used, the oldest first
	ended list.List // of *fetched with unused tokens that nobody can use
	late  list.List // of *fetched whose prefetch or return failed
	odd   bool      // next returned one of late before one of the others
}

// An owedPlace is the place of a fetched in a list. The mutex of the owed guards it.
type owedPlace struct {
	live *list.Element
	gone bool // it is not live any more, or never was
}

// begin adds f, whose tokens can now be used.
func (o *owed) begin(f *fetched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f.place.live = o.live.PushBack(f)
}

// end notes that nobody can use tokens of f any more.
func (o *owed) end(f *fetched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f.place.gone {
		return
	}
	o.remove(f)
	if f.charged > f.used {
		o.push(&o.ended, f)
	}
}

// remove removes f from the list live. The caller holds o.mu.
func (o *owed) remove(f *fetched) {
	f.place.gone = true
	if f.place.live != nil {
		o.live.Remove(f.place.live)
	}
}

// maxEnded is the largest number of prefetches that wait for their return. Only an outage
// leaves that many.
const maxEnded = 1 << 16

// push adds f to l, which is ended or late. If too many prefetches wait, it removes one.
// The caller holds o.mu.
func (o *owed) push(l *list.List, f *fetched) {
	l.PushBack(f)
	switch {
	case o.ended.Len()+o.late.Len() <= maxEnded:
	case o.late.Len() > 0:
		o.late.Remove(o.late.Front())
	default:
		o.ended.Remove(o.ended.Front())
	}
}

// again adds f, whose prefetch or return failed.
func (o *owed) again(f *fetched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.push(&o.late, f)
}

// next removes and returns the next prefetch whose tokens are to be returned, or nil. It
// returns a live prefetch only if that is too old at the time now. Prefetches of failed
// calls come last or, if late is true, every second time.
func (o *owed) next(now time.Duration, late bool) *fetched {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e := o.late.Front(); e != nil && late {
		if o.odd = !o.odd; o.odd {
			return o.late.Remove(e).(*fetched)
		}
	}
	if e := o.ended.Front(); e != nil {
		return o.ended.Remove(e).(*fetched)
	}
	if e := o.live.Front(); e != nil {
		if f := e.Value.(*fetched); now >= f.until {
			o.remove(f)
			return f
		}
	}
	if e := o.late.Front(); e != nil {
		return o.late.Remove(e).(*fetched)
	}
	return nil
}

// len returns the number of prefetches in all lists.
func (o *owed) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.live.Len() + o.ended.Len() + o.late.Len()
}

// returnPause is the time after a return that failed in which no request returns tokens,
// unless it has at least twice as much time as that return had. Otherwise, a server that
// is away would delay every request, including those for other servers of a cluster.
const returnPause = time.Second

// If a return failed less than lateAfter ago, prefetches of failed calls are returned
// last: their server can be away, and the others need not wait for it.
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
