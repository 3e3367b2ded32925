package weir

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/prose"
	"github.com/weir-go/weir/internal/script"
)

// A query is a valid request: the verb and the call of a script, which decides rules.
type query struct {
	op    Op
	group *group // the rules
	compose.Query
}

// check checks r, and sets q, which is zero. each is the length of the caller's slice.
func (b *ruleSet) check(q *query, r *Request, each int) error {
	if each > 0 && each < len(b.rules) {
		return fmt.Errorf("weir: each has %d elements: it must have one for each of the %d rules, or none", each, len(b.rules))
	}
	if err := b.space.check(&r.Key); err != nil {
		return err
	}
	if r.Cost < 0 && r.Op != Finish {
		return fail(ErrInvalidCost, "Request.Cost is %d: it must be 0 or more; 0 means 1", r.Cost)
	}
	if b.clock != nil {
		var err error
		if q.Call.Now, err = b.now(); err != nil {
			return err
		}
	}
	q.op, q.group, q.Program = r.Op, b.all, b.all.program
	if b.can.plain() && r.plain() {
		q.Call.Cost = cutCost(r.Cost)
		return nil
	}
	return b.checkOp(q, r)
}

// cutCost returns the number of tokens of Request.Cost. A cost above every possible
// capacity is denied, so it may be cut to a smaller one.
func cutCost(cost int64) int64 { return min(max(cost, 1), contract.MaxTokens+1) }

// checkOp checks what depends on the op of r, and on its options.
func (b *ruleSet) checkOp(q *query, r *Request) (err error) {
	q.Call.Cost = 1
	switch r.Op {
	case Consume, Peek, TakeUpTo, Force:
		err = b.checkDecision(q, r)
	case Refund:
		q.Verb, q.Call.Cost, err = script.Refund, r.Cost, b.checkRefund(r)
		if err == nil {
			_, err = b.setAmounts(q, "Request.Costs", &r.Costs, script.Unnamed)
		}
	case Settle:
		q.Verb = script.Settle
		q.Call.Cost, err = b.checkSettle(q, r)
	case Finish:
		err = b.checkFinish(q, r)
	case Renew:
		q.Verb, q.group, q.Call.Text, err = script.Renew, b.leases, r.ID, b.checkLease(r)
	case Release:
		q.Verb, q.group, q.Call.Text, err = script.Release, b.leases, r.ID, b.checkLease(r)
	case Pause:
		q.Verb, q.group, q.Call.Text = script.Pause, b.pauses, r.ID
		q.Call.Wait, err = b.checkPause(r)
	case Resume:
		q.Verb, q.group, q.Call.Text, err = script.Resume, b.pauses, r.ID, b.checkResume(r)
	case Reset:
		q.Verb, q.group, q.Call.Amounts = script.Reset, b.resets, nil // buffers have those of an earlier request
		if q.group == nil {
			err = fail(ErrInvalidRule, "Reset: no rule is identified by the full key: select a rule with Limiter.Only")
		}
	default:
		err = fail(ErrUnsupported, "Request.Op is %v: it must be one of the constants, for example Consume", r.Op)
	}
	if q.group != nil {
		q.Program = q.group.program
	}
	return err
}

// checkDecision checks a request that consumes or peeks.
func (b *ruleSet) checkDecision(q *query, r *Request) error {
	leases, bills := b.leases != nil, b.all.program.Bills()
	noDebt, noWait, noRefund, noPart := b.can.without(debts), b.can.without(reserves), b.can.without(refunds), b.can.without(divides)
	switch {
	case r.MaxWait < 0:
		return fmt.Errorf("weir: Request.MaxWait is %v: it must be 0 or more", r.MaxWait)
	case r.MaxWait > 0 && (r.Op == TakeUpTo || r.Op == Force):
		return fail(ErrUnsupported, "%v: Request.MaxWait is %v: it must be 0, because %v cannot reserve tokens", r.Op, r.MaxWait, r.Op)
	case r.Op == Force && noDebt != nil:
		return errNoDebt("Force", noDebt)
	case r.MaxWait > 0 && noWait != nil:
		return unsupported("MaxWait, Wait and Reserve", noWait, "whose tokens cannot be reserved: use algorithm.GCRA, TokenBucket or LeakyBucket")
	case r.Op == TakeUpTo && !b.can.follows:
		return fail(ErrUnsupported, "TakeUpTo: every rule has a Cost or a Unit: at least one rule must have neither")
	case r.Op == TakeUpTo && noPart != nil:
		return unsupported("TakeUpTo", noPart, "which holds one lease for each request: set the Cost of the rule to 1")
	case r.Metadata != "" && !b.can.any(entries):
		return fail(ErrUnsupported, "Request.Metadata has %d bytes: it must be empty, because no rule is an algorithm.MetadataWindow", len(r.Metadata))
	case len(r.Metadata) > algorithm.MaxMetadata:
		return fail(ErrInvalidMetadata, "Request.Metadata has %d bytes: it must have at most %d", len(r.Metadata), algorithm.MaxMetadata)
	case leases && r.ID == "" && r.Op != Peek && r.Op != Force:
		return fail(ErrInvalidLease, "Request.ID is empty: it must name the lease: call TryAcquire or Acquire, or set an ID")
	case leases && len(r.ID) > algorithm.MaxLease:
		return errLongLease(r)
	case !leases && r.ID != "" && noRefund != nil && r.Op != Peek:
		return errNoRefund(r.Op, noRefund)
	}
	cost := cutCost(r.Cost)
	if !b.can.follows {
		cost = min(cost, contract.MaxTokens) // only the markers hold it
	}
	if b.can.any(bounded) || r.Op == Force {
		var err error
		if cost, err = b.capCost(r.Op, cost); err != nil {
			return err
		}
	}
	if b.can.any(counts) || r.Costs.named() {
		if err := b.checkCosts(q, r); err != nil {
			return err
		}
	}
	q.Call.Cost, q.Call.Wait, q.Call.Text = cost, int64(r.MaxWait/time.Microsecond), r.Metadata
	if leases {
		q.Call.Text = r.ID
	}
	switch marks := r.ID != "" && (!leases || bills); {
	case r.Op == Peek:
		q.Verb = script.Peek
	case r.Op == TakeUpTo && marks:
		q.Verb = script.UpToMark
	case r.Op == TakeUpTo:
		q.Verb = script.UpTo
	case r.Op == Force && marks:
		q.Verb = script.ForceMark
	case r.Op == Force:
		q.Verb = script.Force
	case marks:
		q.Verb = script.ConsumeMark
	default:
		q.Verb = script.Consume
	}
	return nil
}

// capCost returns the cost of a request. It is an error if the cost is above the MaxCost
// of a rule. For TakeUpTo, the cost is instead cut to the lowest MaxCost. For Force and
// Settle, the capacity plus the largest debt is another bound.
func (b *ruleSet) capCost(op Op, cost int64) (_ int64, err error) {
	debt := b.all.program.MaxDebt()
	for i := range b.rules {
		if r := &b.rules[i]; r.costBy != CostOwn && r.costBy != CostUnit {
			if cost, err = r.capCost(op, cost, debt); err != nil {
				return 0, err
			}
		}
	}
	return cost, nil
}

// capCost is ruleSet.capCost for one rule, with the largest debt.
func (r *rule) capCost(op Op, cost, debt int64) (int64, error) {
	most, forces := r.limit.MaxCost, op == Force || op == Settle
	if forces && (most == 0 || most > r.limit.Capacity+debt) {
		most = min(r.limit.Capacity+debt, contract.MaxTokens)
	}
	switch {
	case most == 0 || cost <= most:
	case op == TakeUpTo && r.unit == 0:
		cost = most
	case cost <= r.limit.Capacity || forces:
		return 0, fail(ErrInvalidCost, "the cost is %d: rule %q is a %s, which can consume at most %d at once", cost, r.name, r.kind().Name, most)
	}
	return cost, nil
}

// checkRefund checks a Refund or a Settle.
func (b *ruleSet) checkRefund(r *Request) error {
	noRefund := b.can.without(refunds)
	switch {
	case b.leases != nil && !b.all.program.Bills():
		why := "set Options.Settles, so that a decision with a lease can be settled and refunded"
		if b.settles {
			why = "no other rule can be settled or refunded: add one, or leave Options.Settles out"
		}
		return fail(ErrUnsupported, "%v: a rule holds leases: %s", r.Op, why)
	case noRefund != nil:
		return errNoRefund(r.Op, noRefund)
	case r.ID == "":
		return fail(ErrInvalidKey, "%v: Request.ID is empty: it must be the ID of the decision", r.Op)
	}
	return nil
}

// checkSettle checks a Settle, sets the amounts of q, and returns the actual cost.
func (b *ruleSet) checkSettle(q *query, r *Request) (int64, error) {
	actual, ok := r.Actual.Cost()
	if err := b.canSettle(r); err != nil {
		return 0, err
	}
	switch {
	case r.Actual.refund && r.Op == Finish:
		return 0, fail(ErrInvalidCost, "Finish: Request.Actual has a refund and amounts: set it to ActualRefund(), or to the amounts alone")
	case r.Actual.refund:
		return 0, fail(ErrInvalidCost, "Settle: Request.Actual is ActualRefund(), which is for a Finish: call Refund")
	case !ok && !r.Actual.named():
		return 0, fail(ErrInvalidCost, "%v: Request.Actual is not set: set it to ActualCost(n), where n is the actual cost, or to ActualCosts if a rule has a Unit", r.Op)
	case actual < 0:
		return 0, fail(ErrInvalidCost, "%v: the actual cost is %d: it must be 0 or more", r.Op, actual)
	case ok && !b.can.follows && len(b.space.units) > 0:
		return 0, fail(ErrUnsupported, "%v: every rule has a Cost or a Unit: use SettleCosts or ActualCosts, with the amount of each unit", r.Op)
	}
	if b.can.any(counts) || r.Actual.named() {
		if err := b.checkActual(q, r); err != nil {
			return 0, err
		}
	}
	if !ok {
		return script.Unnamed, nil
	}
	return b.capCost(Settle, actual)
}

// checkFinish checks a Finish, and sets the verb of q and what it calls for. Cost and Costs
// do not count.
func (b *ruleSet) checkFinish(q *query, r *Request) (err error) {
	refunds, none := r.Actual == ActualRefund(), r.Actual == Actual{}
	q.Verb = script.Finish
	switch {
	case none && b.leases != nil && !b.all.program.Bills():
		q.Verb, q.group = script.Release, b.leases
	case none:
		q.Call.Cost, err = script.Unnamed, b.checkRefund(r)
	case refunds:
		q.Verb, q.Call.Cost, err = script.FinishRefund, 0, b.checkRefund(r)
	default:
		q.Call.Cost, err = b.checkSettle(q, r)
	}
	if b.leases != nil {
		if q.Call.Text = r.ID; err == nil {
			err = b.checkLease(r)
		}
	}
	if err == nil && (refunds || none) {
		_, err = b.setAmounts(q, "Request.Actual", &Costs{}, script.Unnamed)
	}
	return err
}

// canSettle checks whether the rules can be settled.
func (b *ruleSet) canSettle(r *Request) error {
	if err := b.checkRefund(r); err != nil {
		return err
	}
	if !b.can.follows && len(b.space.units) == 0 {
		return fail(ErrUnsupported, "%v: every rule has a Cost: at least one rule must have none", r.Op)
	}
	if noDebt := b.can.without(debts); noDebt != nil {
		return errNoDebt(r.Op.String(), noDebt)
	}
	return nil
}

// settled reports whether a Settle r can change what a decision costs in a rule of b.
func (b *ruleSet) settled(r *Request) bool {
	if b.can.any(counts) {
		return r.Actual.named()
	}
	return b.can.follows && r.Actual.given
}

// checkSettles returns an error if Options.Settles is true, and the rules cannot be
// settled.
func (b *ruleSet) checkSettles() error {
	if !b.settles || b.only {
		return nil
	}
	for _, r := range b.every() {
		if r.has(leases) && r.costBy != CostOwn {
			return fail(ErrInvalidRule, "rule %q holds leases: with Options.Settles, set its Cost to 1, so that other rules can count the cost of the request", r.name)
		}
	}
	if err := b.canSettle(&Request{Op: Settle, ID: "id"}); err != nil {
		return err
	}
	for i := range b.rules {
		if r := &b.rules[i]; (r.costBy == CostRequest || r.costBy == CostUnit) && r.limit.MaxDebt/100 < r.limit.Capacity {
			limit, advice := prose.Limit(r.limit.Capacity, r.limit.Window)
			return unsupported("Settle", r, fmt.Sprintf("which has the %s and can be in debt by %d: Options.Settles needs 100 times the limit: %s", limit, r.limit.MaxDebt, advice))
		}
	}
	return nil
}

func (b *ruleSet) checkLease(r *Request) error {
	switch {
	case b.leases == nil:
		return fail(ErrUnsupported, "%v: no rule holds leases: a rule must be an algorithm.Concurrency", r.Op)
	case r.ID == "":
		return fail(ErrInvalidLease, "%v: Request.ID is empty: it must name the lease", r.Op)
	case len(r.ID) > algorithm.MaxLease:
		return errLongLease(r)
	}
	return nil
}

func errLongLease(r *Request) error {
	return fail(ErrInvalidLease, "Request.ID has %d bytes: the name of a lease must have at most %d", len(r.ID), algorithm.MaxLease)
}

func errNoRefund(op Op, r *rule) error {
	if op == Refund || op == Settle || op == Finish {
		return unsupported(op.String(), r, "whose tokens cannot be refunded: use another algorithm")
	}
	return unsupported("Request.ID", r, "whose tokens cannot be refunded: leave the ID empty")
}

func errNoDebt(what string, r *rule) error {
	return unsupported(what, r, prose.NoDebt(r.limit.Capacity, r.limit.Window))
}

// checkPause checks a Pause, and returns how long it lasts, in microseconds.
func (b *ruleSet) checkPause(r *Request) (int64, error) {
	if err := b.checkResume(r); err != nil {
		return 0, err
	}
	us := r.For.Microseconds()
	if r.For%time.Microsecond > 0 {
		us++
	}
	if us < 1 || r.For > algorithm.MaxSpan {
		return 0, fmt.Errorf("weir: Pause: the time is %v: it must be positive, and at most %v", r.For, algorithm.MaxSpan)
	}
	return us, nil
}

// checkResume checks what a Pause and a Resume have in common.
func (b *ruleSet) checkResume(r *Request) error {
	switch {
	case !b.can.any(pauses):
		return fail(ErrUnsupported, "%v: no rule pauses keys: add a rule with the Algorithm algorithm.Pause{}", r.Op)
	case b.pauses == nil:
		return fail(ErrInvalidRule, "%v: %d rules pause keys: select one with Limiter.Only", r.Op, b.can.count(pauses))
	case r.ID == "":
		return fail(ErrInvalidKey, "%v: Request.ID is empty: it must name the pause", r.Op)
	case len(r.ID) > algorithm.MaxLease:
		return fail(ErrInvalidKey, "%v: Request.ID has %d bytes: the name of a pause must have at most %d", r.Op, len(r.ID), algorithm.MaxLease)
	}
	return nil
}
