package conformance

import (
	"context"
	"errors"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// answered checks and counts an answer. took is the duration of the call, and late is how
// long this process was starved meanwhile. The cost of a Peek is 0.
func (r *faultRun) answered(c *caller, f Fault, start time.Time, took, late time.Duration, done bool, cost int64, res weir.Result, err error) {
	cancelled := errors.Is(err, context.DeadlineExceeded)
	unavailable := errors.Is(err, store.ErrUnavailable)
	switch {
	case err == nil && (!res.Allowed || res.Granted != cost):
		r.errorf("caller %d was denied: %+v", c.number, res)
	case err == nil && (c.each[0].Limit != c.limit || c.pair && c.each[1].Limit != sharedLimit):
		r.errorf("caller %d, of limit %d, got the answer to another call: %+v", c.number, c.limit, c.each)
	case err == nil && c.limit-c.each[0].Remaining < c.granted+cost && !f.Loses:
		r.errorf("caller %d was granted %d tokens and then %d, and the last answer says that %d remain of %d", c.number, c.granted, cost, c.each[0].Remaining, c.limit)
	case err != nil && unavailable == cancelled:
		r.errorf("caller %d: %v: want either ErrUnavailable or DeadlineExceeded", c.number, err)
	case cancelled && !done:
		r.errorf("caller %d: %v after %v, before its deadline", c.number, err, took)
	case errors.Is(err, store.ErrForeign) || errors.Is(err, store.ErrScript) || errors.Is(err, store.ErrCrossSlot) || errors.Is(err, context.Canceled):
		r.errorf("caller %d: %v: want either ErrUnavailable or DeadlineExceeded, and nothing else", c.number, err)
	case err != nil && r.serves(c):
		r.errorf("caller %d: %v: want every call served", c.number, err)
	case took > f.Longest+2*late && !r.serves(c): // the server was late too
		r.errorf("caller %d waited %v for an answer, %v: want at most %v, and twice the %v for which the machine was late", c.number, took, err, f.Longest, late)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	c.asked, c.ended = time.Time{}, start
	if r.begun.Load() {
		r.out.Calls++
		r.out.Slowest = max(r.out.Slowest, took)
		switch {
		case cancelled:
			r.out.Cancelled++
		case err != nil:
			r.out.Unavailable++
		default:
			r.out.Allowed++
		}
	}
	if err != nil {
		c.unknown += cost
		r.lastError = now
		return
	}
	c.granted += cost
	c.served = start
	for n := cost; f.Confirm != nil && !r.over.Load() && n > 0; n-- {
		r.recent = append(r.recent, now)
	}
}

// confirm calls Confirm repeatedly until ended is closed.
func (r *faultRun) confirm(f Fault, ended <-chan struct{}) {
	for suite.GoesOn(ended, 20*time.Millisecond) {
		start := time.Now()
		if f.Confirm() != nil {
			continue
		}
		r.mu.Lock()
		if !r.effect.Load() { // later ones may be about another server
			r.recent = slices.DeleteFunc(r.recent, start.After)
		}
		r.mu.Unlock()
	}
}

// account compares the tokens that callers were granted with the tokens that the store counts.
func (r *faultRun) account(t *testing.T, f Fault) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range r.callers {
		req := weir.Request{Key: c.key, Op: weir.Peek}
		_, err := c.limiter.Decide(ctx, req, c.each)
		// A client's time limits may be too tight for a slow machine.
		for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
			_, err = c.limiter.Decide(ctx, req, c.each)
		}
		if err != nil {
			r.errorf("caller %d, after the fault: %v", c.number, err)
			continue
		}
		charged := c.limit - c.each[0].Remaining
		if excess := c.granted - charged; excess > 0 {
			r.out.Excess += excess
			if !f.Loses {
				r.errorf("caller %d was granted %d tokens, and %d were consumed", c.number, c.granted, charged)
			}
		}
		// A call that the client repeated may have been answered at last.
		if most := (c.granted + c.unknown) * int64(f.Repeats+1); charged > most {
			r.errorf("caller %d consumed %d tokens, for %d that were granted and %d of calls without an answer: want at most %d", c.number, charged, c.granted, c.unknown, most)
		}
	}
	if f.Confirm == nil {
		return
	}
	r.out.Unconfirmed = int64(len(r.recent))
	if r.out.Excess > r.out.Unconfirmed {
		r.errorf("%d tokens were consumed and lost, and only %d were unconfirmed", r.out.Excess, r.out.Unconfirmed)
	}
}

// leaked waits until no goroutine has the label of the run id. It returns the goroutines
// that still have the label after leakTime.
func leaked(id string) string {
	for deadline := time.Now().Add(leakTime); ; time.Sleep(20 * time.Millisecond) {
		var all strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		var left []string
		for group := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(group, `"faults":"`+id+`"`) {
				left = append(left, group)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
	}
}
