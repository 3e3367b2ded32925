package weir

import (
	"context"
	"fmt"
	"time"
	"unique"

	"github.com/weir-go/weir/algorithm/contract"
)

// Never is the longest duration: a RetryAfter if the request can never be allowed, the
// Delay of a denied request, and a MaxWait if any wait is acceptable.
const Never = contract.Never

// An Op is what a [Request] asks for. The [Limiter] method of that name has the details.
type Op uint8

const (
	Consume  Op = iota // consume Cost tokens from every rule, if all rules allow it
	Peek               // report whether Consume would be allowed, and change nothing
	TakeUpTo           // consume as many tokens as all rules allow, up to Cost
	Force              // consume Cost tokens from every rule, even past the limit
	Refund             // refund the decision named ID
	Settle             // make Actual the cost of the decision named ID
	Renew              // renew the lease named ID; denied if it is not held
	Release            // release the lease named ID
	Finish             // settle or refund the decision named ID by Actual, and release its lease
	Pause              // close the key for the time For, under the name ID
	Resume             // end the pause named ID
	Reset              // clear the rules identified by the full key
)

// String returns the name of op.
func (op Op) String() string {
	names := [...]string{"Consume", "Peek", "TakeUpTo", "Force", "Refund", "Settle", "Renew", "Release", "Finish", "Pause", "Resume", "Reset"}
	if int(op) < len(names) {
		return names[op]
	}
	return fmt.Sprintf("Op(%d)", uint8(op))
}

// A Request asks a [Decider] for one decision. Only Key is always needed. Requests are
// comparable.
type Request struct {
	// Key identifies the caller being limited.
	Key Key

	Op Op

	// Cost is the number of tokens. 0 means 1. A Consume above the capacity of a rule is
	// denied with RetryAfter [Never].
	Cost int64

	// Costs are the amounts by unit, for rules that count a unit. Each unit that a rule
	// counts must be named. An amount of 0 consumes nothing, and is denied only while the
	// rule is in debt, or others have reserved its tokens ahead. A Settle has its amounts in
	// Actual.
	Costs Costs

	// MaxWait lets a Consume or a Peek reserve tokens that will be available within that
	// time. An allowed caller then waits for [Result].Delay. 0 means now. algorithm.GCRA,
	// TokenBucket and LeakyBucket support it.
	MaxWait time.Duration

	// For is how long a Pause lasts, up to algorithm.MaxSpan.
	For time.Duration

	// ID names the decision, so that it can be repeated, settled and refunded. Use a new
	// one for each decision. Never let the limited caller choose it, because repeats are
	// free.
	//
	// If the request has consumed tokens, sending it again with the same Key, ID and Cost
	// consumes nothing. The repeat is allowed, with [Result].Replayed, until the slowest
	// rule has refilled all tokens of the decision. An ID does not make the work run
	// once: docs/guide/idempotency.md shows what does.
	//
	// A repeat is denied while its key is paused, or if its reserved tokens are not
	// available within MaxWait. A denied request is decided again.
	//
	// The store keeps one more key for each rule. ID must be empty if a rule cannot
	// refund.
	//
	// With an algorithm.Concurrency, ID names the lease, and every op except Peek and Reset
	// needs one. With [Options].Settles, it names a piece of work, with its lease and its
	// bill: see [Limiter.Acquire]. A repeat then also takes a lease, or is denied. Without
	// the option, a repeat consumes tokens from the other rules again. In a Pause or a
	// Resume, ID names the pause.
	ID string

	// Actual is the cost that a Settle or a Finish gives to the decision.
	Actual Actual

	// Metadata is text that an algorithm.MetadataWindow stores: see [Limiter.Entries].
	// Without such a rule, it must be empty.
	Metadata string
}

// plain reports whether r is a Consume without options.
func (r *Request) plain() bool {
	return r.Op == Consume && r.Cost >= 0 && r.MaxWait == 0 && r.ID == "" && r.Metadata == "" && !r.Costs.named()
}

// An Actual is what a decision costs, which is known after the work. Make one with
// [ActualCost], even for 0, with [ActualCosts] or with [ActualRefund]. The zero Actual is
// an error in a Settle. In a Finish, it means that the decision costs what it did.
type Actual struct {
	cost   int64
	given  bool
	refund bool
	costs  unique.Handle[Costs] // so that a Request stays small
}

// ActualCost returns an [Actual] of n tokens, for rules without a Cost or a Unit.
func ActualCost(n int64) Actual { return Actual{cost: n, given: true} }

// ActualCosts returns an [Actual] of amounts by unit, for rules with a Unit. A unit that
// costs does not name keeps its amount.
func ActualCosts(costs Costs) Actual { return Actual{}.With(costs) }

// ActualRefund returns an [Actual] for a [Finish] that refunds the decision, as if the work
// had never been asked for: see [Limiter.Refund].
func ActualRefund() Actual { return Actual{refund: true} }

// With returns a with the amounts of costs, in place of those that it has.
func (a Actual) With(costs Costs) Actual {
	if !costs.named() {
		a.costs = unique.Handle[Costs]{}
		return a
	}
	a.costs = unique.Make(costs)
	return a
}

// Cost returns the number of tokens, or false if a has none.
func (a Actual) Cost() (n int64, ok bool) { return a.cost, a.given }

// Costs returns the amounts by unit.
func (a Actual) Costs() Costs {
	if a.costs == (unique.Handle[Costs]{}) {
		return Costs{}
	}
	return a.costs.Value()
}

// named reports whether a has amounts.
func (a *Actual) named() bool {
	costs := a.Costs()
	return costs.named()
}

// A Result is the answer to a [Request]. Type and the numbers from Limit on describe the
// rule named Rule. If the request is denied, it is the rule with the longest RetryAfter,
// and otherwise the one with the fewest tokens remaining.
//
// A Refund, Settle, Release, Reset, Pause or Resume sets only Allowed, which is false if
// there was nothing to do. A Refund, Settle or Finish also sets Granted and Rule, to Cost
// and Kept of the [Settlement]. In a Finish, Allowed is Held, and Replayed is Found.
type Result struct {
	Allowed bool // the caller may go ahead, after Delay

	// Replayed is true if the request repeats a decision: see [Request].ID. Granted is
	// then what the decision consumed, and Delay is the time left to wait. All other
	// fields describe the current state.
	Replayed bool

	// Type says what the rule does. A [Decider] that makes its own Results sets it.
	Type RuleType

	// Granted is what each rule without a Cost consumed. If every rule has one, or a rule
	// has a Unit, it is what the rule named Rule consumed. It is 0 after a denial, a Peek or
	// a Renew.
	Granted int64

	// Delay is the time to wait before going ahead, or [Never] after a denial. It is 0
	// for an allowed request without MaxWait.
	Delay time.Duration

	Rule       string        // its name, or that of its algorithm
	Limit      int64         // the capacity of the rule, in tokens
	Window     time.Duration // the time in which Limit tokens are refilled; 0 if there is none
	Remaining  int64         // whole tokens or free leases left after the request
	RetryAfter time.Duration // if denied, the time until the same request would be allowed, or Never
	ResetAfter time.Duration // the time until the rule is fully reset

	// Degraded is nil if the store decided. Otherwise it is a [store.ErrUnavailable] that
	// says why not: see package outage. It is also an [ErrDenied] if the share of this
	// process is used up.
	Degraded error

	// Shadow is nil if every shadow rule allows the request. Otherwise it is a
	// *[DeniedError], or the error of a rule that could not decide.
	Shadow error
}

// Age subtracts d from RetryAfter and ResetAfter, down to 0, unless they are Never. It is
// for wrappers that answer with an earlier Result.
func (r *Result) Age(d time.Duration) {
	if r.RetryAfter != Never {
		r.RetryAfter = max(r.RetryAfter-d, 0)
	}
	if r.ResetAfter != Never {
		r.ResetAfter = max(r.ResetAfter-d, 0)
	}
}

// A DeniedError is the [ErrDenied] for one request. It holds the Result.
type DeniedError struct {
	Result Result // Allowed is false
}

// Error names the rule that denied the request.
func (e *DeniedError) Error() string { return prefix + e.text() }

// Is reports whether target is [ErrDenied].
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

func (e *DeniedError) text() string {
	r := &e.Result
	if r.Degraded != nil && r.RetryAfter != Never {
		return fmt.Sprintf("denied by rule %q: %s: retry after %v", r.Rule, plain(r.Degraded), r.RetryAfter)
	}
	if r.RetryAfter == Never {
		return fmt.Sprintf("denied by rule %q: its limit is %d: the request can never be allowed", r.Rule, r.Limit)
	}
	if r.Type == PauseRule {
		return fmt.Sprintf("denied by rule %q, which pauses the key: retry after %v", r.Rule, r.RetryAfter)
	}
	return fmt.Sprintf("denied by rule %q: %d of %d tokens remain: retry after %v", r.Rule, r.Remaining, r.Limit, r.RetryAfter)
}

// A Decider makes decisions. It is a [Limiter], or what a [Wrapper] makes.
type Decider interface {
	// Decide makes the decision that r asks for, as [Limiter.Decide] does. It does not
	// use each after it returns.
	Decide(ctx context.Context, r Request, each []Result) (Result, error)
}

// An Answer is the answer to one request of [Limiter.DoMany].
type Answer struct {
	Result Result
	Err    error // if it is not nil, Result is zero
}

// A ManyDecider is a [Decider] that decides many requests together. Any other wrapper
// splits the batches of [Limiter.DoMany].
type ManyDecider interface {
	// DecideMany sets each of answers to what Decide returns for the request with its
	// index.
	DecideMany(ctx context.Context, requests []Request, answers []Answer)
}

// DecideMany decides requests with d, together if d is a [ManyDecider], and otherwise one
// by one. answers has a zero element for each request.
func DecideMany(ctx context.Context, d Decider, requests []Request, answers []Answer) {
	if many, ok := d.(ManyDecider); ok {
		many.DecideMany(ctx, requests, answers)
		return
	}
	for i, r := range requests {
		answers[i].Result, answers[i].Err = d.Decide(ctx, r, nil)
	}
}
