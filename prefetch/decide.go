package prefetch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/guard"
)

// maxWaits is how often a goroutine waits for a prefetch. It waits again if others used
// the tokens before it could run.
const maxWaits = 4

// A decider is the Decider of a limiter with a Pool.
type decider struct {
	*Pool
	next   weir.Decider
	rules  []weir.RuleInfo
	limits limits
	freed  func(*weir.Key) // see OnFree; nil if there is no such wrapper
}

// limits is the Digest of a limiter. Limiters with the same limits share held tokens.
type limits [32]byte

// Unwrap returns the next Decider, for [weir.Find].
func (d *decider) Unwrap() weir.Decider { return d.next }

// StandsIn implements [weir.StandIn].
func (*decider) StandsIn() {}

// OnFree is for a wrapper around d that remembers denials: d calls f when it may have
// returned tokens of a key to the store.
func (d *decider) OnFree(f func(key *weir.Key)) { d.freed = f }

// Decide implements [weir.Decider].
func (d *decider) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	if r.Op == weir.Reset { // tokens of before the Reset would add to those of after it
		d.drop(&r.Key)
		defer d.drop(&r.Key)
	}
	q, done, res, err := d.held(ctx, &r, each)
	if done {
		return res, err
	}
	res, err = d.next.Decide(ctx, r, each)
	if d.decided(&q, &r, &res, err) {
		d.returnOne(ctx)
	}
	return res, err
}

// DecideMany implements [weir.ManyDecider]. It answers what held tokens cover, after
// prefetches if the key is busy, and decides the others together.
func (d *decider) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	var all []asked
	var rest []int
	for i := range requests {
		r, a := &requests[i], &answers[i]
		if r.Op == weir.Reset {
			d.drop(&r.Key)
			defer d.drop(&r.Key)
		}
		q, done, res, err := d.held(ctx, r, nil)
		if a.Result, a.Err = res, err; !done {
			all, rest = append(all, q), append(rest, i)
		}
	}
	gate.Rest(ctx, d.next, requests, answers, rest)
	works := false
	for n, i := range rest {
		works = d.decided(&all[n], &requests[i], &answers[i].Result, answers[i].Err) || works
	}
	if works {
		d.returnOne(ctx)
	}
}

// An asked is a request that is decided without prefetched tokens.
type asked struct {
	alone bool          // prefetched tokens can answer such requests
	h     *holding      // of the key; can be nil
	since time.Duration // before the decision
}

// held answers r from held tokens, and first prefetches some if the key is busy. If done
// is false, r must be decided without them.
func (d *decider) held(ctx context.Context, r *weir.Request, each []weir.Result) (q asked, done bool, res weir.Result, err error) {
	if r.Op != weir.Consume || r.ID != "" || r.MaxWait != 0 || r.Metadata != "" || r.Cost < 0 || r.Costs != (weir.Costs{}) ||
		len(each) > 0 && len(each) < len(d.rules) || ctx.Err() != nil {
		return asked{}, false, weir.Result{}, nil
	}
	cost, h := max(r.Cost, 1), d.find(&r.Key, &d.limits)
	for waits := 0; h != nil; waits++ {
		now := d.now()
		h.mu.Lock()
		if h.serve(now, cost, &res, each) {
			h.mu.Unlock()
			return asked{}, true, res, nil
		}
		alone := waits > 0 && !h.brought
		if busy := h.busy; busy != nil && waits < maxWaits && h.asked >= cost && !alone {
			h.asked -= cost
			h.mu.Unlock()
			select {
			case <-busy:
				continue
			case <-ctx.Done():
				return asked{}, true, weir.Result{}, fmt.Errorf("prefetch: %w", ctx.Err())
			}
		}
		n := int64(0)
		if h.busy == nil && !h.gone && !alone && !d.away.Load() {
			n = h.ask(now, cost, &d.opts)
		}
		if n == 0 {
			h.mu.Unlock()
			break
		}
		h.busy, h.asked = make(chan struct{}), n-cost
		resets := h.resets
		h.mu.Unlock()
		ok, res, err := d.take(ctx, h, n, resets, cost, each)
		if ok && d.note(&res) {
			d.returnOne(ctx)
		}
		if ok || err != nil {
			return asked{}, true, res, err
		}
		break
	}
	return asked{alone: true, h: h, since: d.now()}, false, weir.Result{}, nil
}

// decided notes the answer of the next Decider to r. It reports whether the store made the
// decision.
func (d *decider) decided(q *asked, r *weir.Request, res *weir.Result, err error) bool {
	if err != nil {
		return false
	}
	if q.alone && res.Degraded == nil {
		if q.h == nil && res.Allowed && res.Remaining/part >= 2*max(r.Cost, 1) {
			q.h = d.hold(&r.Key, &d.limits, q.since)
		}
		q.h.learn(res)
	}
	return d.note(res)
}

// note notes whether the store made the decision res, and reports it.
func (d *decider) note(res *weir.Result) bool {
	if degraded := res.Degraded != nil; degraded != d.away.Load() {
		d.away.Store(degraded)
	}
	return res.Degraded == nil
}

// take asks the store for n tokens for a request of that cost, and lets h hold them.
// resets is the value of h.resets when h became busy. ok reports whether res and each
// answer the request. Otherwise the request must be decided without the tokens.
func (d *decider) take(ctx context.Context, h *holding, n int64, resets uint32, cost int64, each []weir.Result) (ok bool, res weir.Result, err error) {
	defer func() { // even if the next Decider panics
		h.mu.Lock()
		defer h.mu.Unlock()
		close(h.busy)
		h.busy, h.brought = nil, ok
	}()
	f := &fetched{holding: h, decider: d, id: rand.Text(), at: d.now(), each: make([]weir.Result, max(len(d.rules), len(each)))}
	f.worth = weir.Never // tokens can stay in a limit for longer than its Window
	res, err = d.next.Decide(ctx, weir.Request{Key: h.key, Op: weir.TakeUpTo, Cost: n, ID: f.id}, f.each)
	f.each = f.each[:len(d.rules)]
	switch {
	case err != nil:
		if guard.Unknown(err) {
			f.charged = n // or nothing
			d.owed.again(f)
		}
		return false, weir.Result{}, err
	case res.Degraded != nil: // these tokens are not for the time after the outage
		d.away.Store(true)
		f.charged = n // in the store or in the process, or nothing
		d.owed.again(f)
		var instead weir.Decider
		if !errors.As(res.Degraded, &instead) {
			return false, weir.Result{}, nil
		}
		// The caller does not wait for the store again, and later requests of the outage
		// need the tokens that were granted in place of the store.
		_, _ = instead.Decide(context.WithoutCancel(ctx), f.settled(0), nil)
		res, err = instead.Decide(ctx, weir.Request{Key: h.key, Cost: cost}, each)
		return err == nil, res, err
	case !res.Allowed:
		h.learn(&res)
		copy(each, f.each)
		return cost == 1, res, nil // otherwise RetryAfter is for another cost
	}
	ok = d.keep(ctx, f, &res, resets, cost, each)
	return ok, res, nil
}

// keep lets the holding of f hold the tokens that res granted, except those that others
// need. It sets res and each to the answer to a request with that cost. If there are
// fewer tokens, keep refunds them all, and returns false.
func (d *decider) keep(ctx context.Context, f *fetched, res *weir.Result, resets uint32, cost int64, each []weir.Result) bool {
	f.charged = res.Granted
	if res.Granted >= cost {
		f.held = min(res.Granted, max((res.Granted+res.Remaining)/2, cost))
	}
	if f.held < f.charged {
		_ = f.settle(ctx, f.held) // after an error, ended tokens are settled again
	}
	f.start(res)
	if f.held == 0 {
		f.holding.learn(&weir.Result{Remaining: res.Granted + res.Remaining})
		if f.charged > 0 {
			d.owed.again(f)
		}
		return false
	}
	h := f.holding
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(&d.owed)
	d.owed.begin(f)
	h.note(f.charged, f.result.Remaining)
	h.current = f
	*res = weir.Result{}
	h.serve(f.at, cost, res, each)
	if h.gone || h.resets != resets {
		h.end(&d.owed)
	}
	return true
}
