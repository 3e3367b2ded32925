package outage

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/prose"
	"github.com/weir-go/weir/store"
)

// This file answers requests that the store did not decide.

// A degradation is the Degraded of a Result. It is a Decider too, which does not ask the
// store.
type degradation struct {
	cause  *prose.Error
	d      *decider
	denied bool // the share of the process denied the request
}

// Error says why the store did not decide.
func (g *degradation) Error() string { return g.cause.Error() }

// Unwrap returns [store.ErrUnavailable].
func (g *degradation) Unwrap() error { return g.cause.Unwrap() }

// Is reports whether target is [weir.ErrDenied], and a limit denied the request: the
// share of the process.
func (g *degradation) Is(target error) bool { return g.denied && target == weir.ErrDenied }

// Decide implements [weir.Decider].
func (g *degradation) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	switch r.Op {
	case weir.Consume, weir.Peek, weir.TakeUpTo:
		if err := g.d.lim.Check(r, each); err != nil {
			return weir.Result{}, err
		}
		return g.d.answer(ctx, &r, each, g.cause)
	case weir.Refund, weir.Settle, weir.Finish, weir.Release:
		return g.d.decideLocally(ctx, &r, each)
	}
	return weir.Result{}, g.cause
}

// degradations has two for one cause: denied if the share of the process denied the
// request, and other.
type degradations struct{ denied, other degradation }

// degraded returns the degradations of cause. Answers with one cause share them, so that
// they allocate nothing.
func (d *decider) degraded(cause *prose.Error) *degradations {
	if g := d.last.Load(); g != nil && g.other.cause == cause {
		return g
	}
	g := &degradations{degradation{cause, d, true}, degradation{cause, d, false}}
	d.last.Store(g)
	return g
}

// answer answers r, which is valid, and consumes or peeks. cause says why the store did
// not decide.
func (d *decider) answer(ctx context.Context, r *weir.Request, each []weir.Result, cause *prose.Error) (weir.Result, error) {
	d.circuit.answers.Add(1)
	own := d.ownShare()
	if own == nil || d.never(r) {
		return d.fixed(r, each, cause), nil
	}
	d.used.Store(true)
	res, err := own.Decide(ctx, *r, each)
	if errors.Is(err, store.ErrUnavailable) { // the process's store is full
		return d.fixed(r, each, cause), nil
	}
	if err != nil {
		return weir.Result{}, err
	}
	why, wait := d.degraded(cause), d.circuit.wait()
	degrade(&res, why, wait)
	if len(each) > 0 {
		for i := range d.rules {
			degrade(&each[i], why, wait)
		}
	}
	return res, nil
}

// degrade marks a result of Local. After wait, the store may decide again, and allow the
// request.
func degrade(res *weir.Result, why *degradations, wait time.Duration) {
	res.Degraded = &why.other
	if !res.Allowed {
		res.Degraded, res.RetryAfter = &why.denied, min(res.RetryAfter, wait)
	}
}

// cost returns what r consumes from rule i, at least.
func (d *decider) cost(r *weir.Request, i int) int64 {
	switch rule := &d.rules[i]; {
	case rule.CostBy == weir.CostUnit:
		n, _ := r.Costs.Amount(rule.Unit)
		return n
	case rule.CostBy != weir.CostRequest:
		return rule.Cost
	case r.Op == weir.TakeUpTo:
		return 1
	}
	return max(r.Cost, 1)
}

// never reports whether r can never be allowed, whatever the store holds.
func (d *decider) never(r *weir.Request) bool {
	for i := range d.rules {
		if d.cost(r, i) > d.rules[i].Limit {
			return true
		}
	}
	return false
}

// fixed answers r without counting: Open allows it, and the others deny it.
func (d *decider) fixed(r *weir.Request, each []weir.Result, cause *prose.Error) (res weir.Result) {
	open := d.opts.Fallback == Open
	why, wait := &d.degraded(cause).other, d.circuit.wait()
	allowed := open && !d.never(r)
	most := max(r.Cost, 1)
	for i := range d.rules {
		if rule := &d.rules[i]; rule.CostBy == weir.CostRequest && r.Op == weir.TakeUpTo {
			most = min(most, rule.Limit, cmp.Or(rule.MaxCost, rule.Limit))
		}
	}
	shown := compose.Shown{Allowed: allowed}
	for i := range d.rules {
		rule := &d.rules[i]
		one := weir.Result{Allowed: open, Type: rule.Type, Rule: rule.Name, Limit: rule.Limit, Window: rule.Window, Degraded: why}
		if !open {
			one.RetryAfter = wait
		}
		if d.cost(r, i) > rule.Limit {
			one.Allowed, one.RetryAfter = false, weir.Never
		}
		if !one.Allowed {
			one.Delay = weir.Never
		}
		if allowed && r.Op != weir.Peek {
			if one.Granted = d.cost(r, i); rule.CostBy == weir.CostRequest || rule.CostBy == weir.CostNothing {
				one.Granted = most
			}
			shown.Grant(rule.CostBy == weir.CostRequest && !d.units, one.Granted)
		}
		if len(each) > 0 {
			each[i] = one
		}
		left, retry := int64(0), one.RetryAfter
		if rule.Type == weir.PauseRule { // any other rule is shown instead
			left, retry = math.MaxInt64, -1
		}
		if shown.Add(i, left, retry, one.Delay); shown.Rule == i {
			res = one
		}
	}
	if n, ok := shown.Granted(); ok {
		res.Granted = n
	}
	return res
}

// decideLocally lets the process's share decide r, if it has decided anything before.
func (d *decider) decideLocally(ctx context.Context, r *weir.Request, each []weir.Result) (res weir.Result, err error) {
	if d.used.Load() {
		if own := d.ownShare(); own != nil {
			return own.Decide(ctx, *r, each)
		}
	}
	return res, nil
}

// renew renews a lease where it is held. A lease that the process's share gave stays
// there, even after the outage.
func (d *decider) renew(ctx context.Context, r *weir.Request, each []weir.Result) (weir.Result, error) {
	if res, err := d.decideLocally(ctx, r, each); err == nil && res.Allowed {
		res.Degraded = errLocalLease
		for i := range each[:min(len(each), len(d.rules))] {
			each[i].Degraded = errLocalLease
		}
		return res, nil
	}
	res, cause, err := d.ask(ctx, r, each)
	if cause != nil {
		return weir.Result{}, cause
	}
	return res, err
}

// errLocalLease is the Degraded of a lease that the store does not hold.
var errLocalLease = prose.Errorf(store.ErrUnavailable, "outage: the lease was acquired during an outage: the process holds it, and the store does not know it")

// undo refunds, settles, finishes or releases r wherever it was decided. If the store's
// answer was lost, that can be in the store and in the process.
func (d *decider) undo(ctx context.Context, r *weir.Request, each []weir.Result) (weir.Result, error) {
	local := make([]weir.Result, len(each))
	here, err := d.decideLocally(ctx, r, local)
	switch invalid := errors.Is(err, weir.ErrInvalidCost); {
	case invalid && r.Op == weir.Finish && d.lim.Check(*r, each) == nil: // a share has a lower bound, but its lease must end
		none := *r
		none.Actual = weir.Actual{}
		here, _ = d.decideLocally(ctx, &none, local)
	case invalid && r.Op != weir.Settle && r.Op != weir.Finish:
		return weir.Result{}, err
	}
	res, cause, err := d.ask(ctx, r, each)
	switch {
	case cause != nil && (here.Allowed || here.Replayed || here.Rule != ""):
		why := &d.degraded(cause).other
		for i := range local[:min(len(local), len(d.rules))] {
			if each[i] = local[i]; each[i].Rule != "" { // a rule counts a unit
				each[i].Degraded = why
			}
		}
		return weir.Result{Allowed: here.Allowed, Replayed: here.Replayed, Rule: here.Rule, Granted: here.Granted, Degraded: why}, nil
	case cause != nil:
		return weir.Result{}, cause
	}
	found := res.Allowed
	if r.Op == weir.Finish {
		found = res.Replayed
	}
	if err == nil {
		res.Allowed, res.Replayed = res.Allowed || here.Allowed, res.Replayed || here.Replayed
	}
	if err == nil && !found {
		if res.Rule == "" { // otherwise a rule of the store keeps its tokens
			res.Rule, res.Granted = here.Rule, here.Granted
		}
		for i := range local {
			if local[i].Allowed && !each[i].Allowed {
				each[i] = local[i]
			}
		}
	}
	return res, err
}
