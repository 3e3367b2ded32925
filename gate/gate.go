// Package gate is for authors of middlewares and wrappers. Package weirhttp, package weirgrpc and
// the wrappers of this repository are made with it.
//
// A middleware makes a [Request] for each request that it gets. It either calls the handler, or
// gives up and undoes the decision:
//
//	req := gate.Request{Request: weir.Request{Key: weir.KeyOf(caller)}}
//	if err := req.Prepare(ctx, "mine", &rules, nil); err != nil { // rules are those of gate.RulesOf(lim)
//		return err
//	}
//	s := gate.NewScratch()
//	defer s.Free()
//	res, err := req.Decide(ctx, timeout, s)
//	if err != nil || !res.Allowed {
//		req.GiveUp(ctx, &res, err, ctx.Err() != nil, report)
//		return reject(&res, err)
//	}
//	if req.ID == "" { // there is nothing to settle or to release after the handler
//		handle(ctx)
//		return nil
//	}
//	req.Run(ctx, "mine", false, nil, report, handle)
//
// It does not import net/http, because the wrappers must not.
package gate

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
)

// Check checks the arguments of the constructor with that name. hint is LeaseRetryAfter.
func Check(name string, d weir.Decider, timeout, hint time.Duration) error {
	if lim, ok := d.(interface{ Valid() error }); ok {
		if err := lim.Valid(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	switch {
	case d == nil:
		return fmt.Errorf("%s: the decider is nil: pass a limiter, for example of weir.New", name)
	case timeout < 0:
		return fmt.Errorf("%s: Options.Timeout is %v: it must be above 0, or 0 for none", name, timeout)
	case hint < 0 || hint > time.Hour:
		return fmt.Errorf("%s: Options.LeaseRetryAfter is %v: it must be above 0, and at most %v, or 0 for the default", name, hint, time.Hour)
	}
	return nil
}

// Rules are a Decider, and what is known about its rules.
type Rules struct {
	Decider weir.Decider
	Lease   time.Duration // the shortest lease time; weir.Never if no rule holds leases, and 0 if that is not known
}

// RulesOf returns the rules of d.
func RulesOf(d weir.Decider) Rules {
	if lim, ok := weir.Find[*weir.Limiter](d); ok {
		return Rules{d, lim.LeaseTime()}
	}
	return Rules{d, 0}
}

// leases reports whether it is known that a rule holds leases.
func (r *Rules) leases() bool { return r.Lease > 0 && r.Lease < weir.Never }

// A Request is a request of a caller, and who decides it.
type Request struct {
	weir.Request
	Rules

	Leased bool // set by Decide: the decision may hold a lease

	own  bool // this package made the ID, so nobody else can use it
	lost bool // the reply is lost, if there is something to undo
}

// Prepare checks r, and completes it for a caller whose context is ctx. plan decides it or, if plan
// is nil, rules. pkg is the name of the calling package.
func (r *Request) Prepare(ctx context.Context, pkg string, rules *Rules, plan weir.Decider) error {
	if r.Rules = *rules; plan != nil {
		r.Rules = RulesOf(plan)
	}
	if r.Op != weir.Consume {
		return fmt.Errorf("%s: Request.Op is %v: it must be Consume", pkg, r.Op)
	}
	if r.MaxWait > 0 {
		if deadline, ok := ctx.Deadline(); ok {
			// Not 0, which has another meaning.
			r.MaxWait = max(min(r.MaxWait, time.Until(deadline)), time.Microsecond)
		}
	}
	if r.ID == "" && (r.MaxWait > 0 || r.leases()) {
		r.own, r.ID = true, rand.Text() // for the refund, or for the lease
	}
	return nil
}

// Decide decides r, and notes what r may hold then. If timeout is not 0, it is the longest time of
// the decision. s gets the results of the rules.
func (r *Request) Decide(ctx context.Context, timeout time.Duration, s *Scratch) (res weir.Result, err error) {
	if err := ctx.Err(); err != nil {
		r.own, r.ID = false, "" // nothing is sent, so there is nothing to undo
		return weir.Result{}, err
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	res, err = r.Decider.Decide(ctx, r.Request, s.Each[:])
	if err != nil && r.ID == "" && errors.Is(err, weir.ErrInvalidLease) { // the Decider does not say that a rule holds leases
		r.own, r.ID = true, rand.Text()
		res, err = r.Decider.Decide(ctx, r.Request, s.Each[:])
	}
	r.lost = guard.Unknown(err) || err == nil && !res.Allowed
	r.Leased = r.ID != "" && (r.leases() || r.Lease == 0 && (err != nil || leased(s.Rules(&res))))
	return res, err
}

// GiveUp undoes the decision of r, whose answer was res and err, if the request is not passed on
// and the store may hold something. gone reports whether the caller has gone, if there was an
// error. report gets an error of the undo, in the background if the caller still waits.
func (r *Request) GiveUp(ctx context.Context, res *weir.Result, err error, gone bool, report func(error)) {
	undo := func() {
		if err := r.Undo(ctx); err != nil {
			report(err)
		}
	}
	switch {
	case !r.own: // another request may use the ID
	case err != nil && gone:
		undo()
	case guard.Contextual(err): // the reply is lost
		go undo()
	case err == nil && guard.Lost(nil, res.Degraded, false): // denied, but the store may have allowed it
		go r.Undo(ctx) // whatever comes of it: an outage is not reported for each request
	}
}

// Unsure reports whether res denies a request that may be within its limits, because
// neither the store nor the process's share has counted it: see package outage.
func Unsure(res *weir.Result) bool {
	return res.Degraded != nil && res.RetryAfter != weir.Never && !errors.Is(res.Degraded, weir.ErrDenied)
}

// RetryAfter returns when to tell the caller of a denied request to retry. each has the results of
// the rules. A lease can be released at any time, so only the other rules count. If none of them
// denies the request, the time is hint, or until a lease expires if that is sooner.
func RetryAfter(res *weir.Result, each []weir.Result, hint time.Duration) time.Duration {
	after, busy := time.Duration(0), false
	for i := range each {
		switch one := &each[i]; {
		case one.Allowed:
		case one.Type == weir.LeaseRule:
			busy = true
		default:
			after = max(after, one.RetryAfter)
		}
	}
	if !busy || res.RetryAfter == weir.Never || Unsure(res) {
		return res.RetryAfter
	}
	return min(cmp.Or(after, hint), res.RetryAfter)
}

// leased reports whether a rule holds leases.
func leased(each []weir.Result) bool {
	return slices.ContainsFunc(each, func(res weir.Result) bool { return res.Type == weir.LeaseRule })
}

// A Scratch holds the buffers of one decision, which are reused.
type Scratch struct {
	Each [weir.MaxRules]weir.Result
	Text []byte
}

var scratches = sync.Pool{New: func() any { return new(Scratch) }}

// NewScratch returns a Scratch whose results are zero values.
func NewScratch() *Scratch { return scratches.Get().(*Scratch) }

// Free ends the use of s.
func (s *Scratch) Free() {
	clear(s.Each[:])
	scratches.Put(s)
}

// Rules returns the results of the rules. A wrapper may leave them empty: the only result is then
// res.
func (s *Scratch) Rules(res *weir.Result) []weir.Result {
	n := 0
	for n < len(s.Each) && s.Each[n].Rule != "" {
		n++
	}
	if n == 0 && res.Rule != "" {
		s.Each[0], n = *res, 1
	}
	return s.Each[:n]
}
