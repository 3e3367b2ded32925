package weir

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
)

// Never is the longest duration. As Result.RetryAfter it means that the request can never
// be allowed. As Result.Delay it means that the caller must not go ahead. As
// Request.MaxWait it means that any wait is acceptable.
const Never = contract.Never

// An Op is what a [Request] asks for.
type Op uint8

const (
	// Consume consumes Cost tokens from every rule, if all rules allow the request.
	Consume Op = iota

	// Peek reports whether Consume would be allowed, and changes nothing. See
	// Limiter.Peek.
	Peek

	// TakeUpTo consumes as many tokens as all rules allow, up to Cost. If no token can be
	// consumed, the request is denied. See Limiter.TakeUpTo.
	TakeUpTo

	// Force consumes Cost tokens from every rule, even if a rule would deny the request.
	// See Limiter.Force.
	Force

	// Refund refunds the tokens of the decision with the same Key and ID. See
	// Limiter.Refund.
	Refund

	// Settle makes Request.Actual the cost of the decision with the same Key and ID. See
	// Limiter.Settle.
	Settle

	// Renew renews the lease named ID: its full lease time starts again. If the lease is
	// not held, the request is denied.
	Renew

	// Release releases the lease named ID.
	Release

	// Pause closes the key for the time Request.For, in an algorithm.Pause. ID is the
	// name of the pause. See Limiter.Pause.
	Pause

	// Resume ends the pause named ID. See Limiter.Resume.
	Resume

	// Reset clears the rules identified by the full key. See Limiter.Reset.
	Reset
)

// String returns the name of op.
func (op Op) String() string {
	names := [...]string{"Consume", "Peek", "TakeUpTo", "Force", "Refund", "Settle", "Renew", "Release", "Pause", "Resume", "Reset"}
	if int(op) < len(names) {
		return names[op]
	}
	return fmt.Sprintf("Op(%d)", uint8(op))
}

// A Request asks a [Decider] for one decision. Requests are comparable. Only Key is
// always needed. The zero values of the other fields are the defaults.
type Request struct {
	// Key identifies the caller being limited.
	Key Key

	// Op is what to do. The zero Op is Consume.
	Op Op

	// Cost is the number of tokens. 0 means 1. It must not be negative. The ops Consume,
	// Peek, TakeUpTo and Force use it. If the Cost of a Consume or a Peek is above the
	// capacity of a rule, the request is denied with RetryAfter Never. For the op Refund,
	// see Limiter.Refund. The other ops ignore Cost.
	Cost int64

	// MaxWait is how far ahead tokens may be reserved by a Consume or a Peek. If MaxWait
	// is 0, no tokens are reserved: the caller can go ahead now, or the request is
	// denied. If MaxWait is above 0 and the request is allowed, Result.Delay is the time
	// to wait. A fraction of a microsecond is ignored.
	//
	// If MaxWait is above 0, the algorithm of every rule must support it. algorithm.GCRA,
	// TokenBucket, LeakyBucket and Pause do. TakeUpTo and Force do not support MaxWait.
	MaxWait time.Duration

	// For is how long a Pause lasts, from 1 ns to algorithm.MaxSpan. It is rounded up to
	// a microsecond. Other ops ignore it.
	For time.Duration

	// ID names the decision, so that it can be repeated and refunded. It can contain any
	// bytes. Use another ID for each decision.
	//
	// A request with an ID is idempotent. If it consumed tokens, and is sent again with
	// the same Key, ID and Cost, it consumes nothing from any rule: it is allowed, and
	// Result.Replayed is true. So it can be retried if its reply was lost, even by a process
	// with other limits. This lasts until the slowest rule has refilled all tokens of the
	// decision, under the limits that made it, or until a Refund. A denied request is
	// decided again.
	//
	// If the decision reserved tokens that are not available within MaxWait, and was not
	// settled to another cost, the repeated request is denied, and RetryAfter says for
	// how long. So is a repeated request whose decision is in the future, because the
	// clock has stepped back, and one whose key is paused. After a Settle, only a rule
	// with a Cost still has a turn. If the rate or the capacity has changed, Delay is an
	// estimate, and the repeat is allowed.
	//
	// If the ID is used for a request with another Cost, the error is ErrInvalidCost. For
	// a TakeUpTo, the Cost must be at least what it consumed.
	//
	// Do not take the ID from the caller who is limited: repeated requests are free. If
	// callers send idempotency keys, make the ID of the key and a hash of the request. The ID
	// does not make the work run once: keep a record of it, and claim it before you start.
	//
	// If a request has an ID, the store keeps one more key for each rule, until no token
	// of the decision can be refunded. If the algorithm of a rule cannot refund, for
	// example algorithm.MetadataWindow, ID must be empty. A Peek ignores the ID, unless
	// it names a lease.
	//
	// If a rule is an algorithm.Concurrency, ID only names the lease: a repeated request
	// consumes tokens from the other rules again, and cannot be refunded. Every op except
	// Peek and Reset then needs an ID. It has at most algorithm.MaxLease bytes.
	//
	// For a Pause and a Resume, ID is the name of the pause. It has 1 to
	// algorithm.MaxLease bytes.
	ID string

	// Actual is the cost that a Settle gives to the decision. Other ops ignore it.
	Actual Actual

	// Metadata is text that an algorithm.MetadataWindow stores with an allowed request.
	// Limiter.Entries lists it. It has at most algorithm.MaxMetadata bytes. If no rule is
	// an algorithm.MetadataWindow, Metadata must be empty.
	Metadata string
}

// plain reports whether r is a Consume without options.
func (r *Request) plain() bool {
	return r.Op == Consume && r.Cost >= 0 && r.MaxWait == 0 && r.ID == "" && r.Metadata == ""
}

// An Actual is a number of tokens that is known after the work: see [Request]. It can be
// 0. The zero Actual is no number, so a forgotten one is an error. Make one with
// [ActualCost].
type Actual struct {
	cost  int64
	given bool
}

// ActualCost returns an [Actual] of n tokens.
func ActualCost(n int64) Actual { return Actual{n, true} }

// Cost returns the number of tokens. It returns false for the zero Actual.
func (a Actual) Cost() (n int64, ok bool) { return a.cost, a.given }

// A Result is the answer to a [Request]. Limit, Window, Remaining, RetryAfter and
// ResetAfter describe one rule, whose name is Rule. If the request is denied, it is the
// rule with the longest RetryAfter. If the request is allowed, it is the rule with the
// fewest tokens remaining. If there are several such rules, it is the first of them.
//
// The ops Refund, Settle, Release, Pause, Resume and Reset set other fields. For Refund,
// Release and Resume, Allowed reports whether anything was refunded, released or resumed,
// and for Settle, whether the decision was found. After a Pause and a Reset, it is true.
// For Refund and Settle, Granted and Rule are Cost and Kept of the [Settlement]. All
// other fields are zero.
type Result struct {
	Allowed bool // the caller may go ahead, after Delay

	// Replayed is true if the request repeats an earlier decision: see Request.ID. The
	// request consumed nothing. If it is allowed, Granted is the number of tokens that
	// the decision consumed. Delay is the time that is left to wait, or 0 after a Settle
	// to another cost, unless a rule has a Cost. All other fields describe the current state.
	Replayed bool

	// Granted is the number of tokens consumed from each rule without a Cost. If all
	// rules have a Cost, it is the number consumed from the rule named Rule. It is 0 if
	// the request was denied, or if the op is Peek or Renew.
	Granted int64

	// Delay is the time to wait before going ahead: the longest wait of all rules. If the
	// request was denied, it is Never. Otherwise it is 0 if Request.MaxWait was 0.
	Delay time.Duration

	Rule       string        // the rule's name; the algorithm's name if the rule has none
	Limit      int64         // the capacity of the rule, in tokens
	Window     time.Duration // the time in which Limit tokens are refilled; 0 for algorithm.Concurrency and Pause
	Remaining  int64         // whole tokens left after the request; for algorithm.Concurrency, free leases
	RetryAfter time.Duration // if denied, the time until the same request would be allowed; Never if it cannot be
	ResetAfter time.Duration // the time until the rule is fully reset

	// Degraded is nil if the store decided. Otherwise it says why not: see package
	// outage. It is then a store.ErrUnavailable. It is an ErrDenied too if the share of
	// the process denied the request, so that the caller is over a limit. If Degraded is
	// also a Decider, it decides further requests without the store, for a wrapper that
	// asked for another decision than its caller.
	Degraded error

	// Shadow is nil if every shadow rule allows the request: see Rule.Shadow. If one
	// would have denied it, Shadow is a *DeniedError, an ErrDenied, with the result of
	// that rule: the one with the longest RetryAfter. If a shadow rule could not decide
	// the request, Shadow is its error.
	Shadow error
}

// Age changes r to what it is after the time d: it subtracts d from RetryAfter and
// ResetAfter, unless they are Never, down to 0. It is for wrappers that answer with an
// earlier Result.
func (r *Result) Age(d time.Duration) {
	if r.RetryAfter != Never {
		r.RetryAfter = max(r.RetryAfter-d, 0)
	}
	if r.ResetAfter != Never {
		r.ResetAfter = max(r.ResetAfter-d, 0)
	}
}

// A DeniedError is the error for one denied request. It is an [ErrDenied], and holds the
// Result of the request.
type DeniedError struct {
	Result Result // Allowed is false
}

// Error returns a text that names the rule that denied the request.
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
	if compose.Pauses(r.Limit, r.Window) {
		return fmt.Sprintf("denied by rule %q, which pauses the key: retry after %v", r.Rule, r.RetryAfter)
	}
	return fmt.Sprintf("denied by rule %q: %d of %d tokens remain: retry after %v", r.Rule, r.Remaining, r.Limit, r.RetryAfter)
}

// A Decider is a [Limiter], or stands around another Decider: see [Limiter.Wrap]. It then
// passes on every request that it does not answer itself.
type Decider interface {
	// Decide makes the decision that r asks for. The slice each can be empty. Otherwise
	// it must have at least one element for each rule, and Decide stores the result of
	// each rule in it, in the order of Policy.Rules. Shadow rules have no element. Decide
	// does not use the slice after it returns.
	Decide(ctx context.Context, r Request, each []Result) (Result, error)
}

// An Answer is the answer to one request of [Limiter.DoMany].
type Answer struct {
	Result Result
	Err    error // the error of this request; if it is not nil, Result is zero
}

// A ManyDecider is a [Decider] that decides many requests together. A Decider around
// another one is a ManyDecider if [Limiter.DoMany] is to keep its batches.
type ManyDecider interface {
	// DecideMany decides each of requests as Decide does, and sets the element of answers
	// with the same index. answers are zero at first.
	DecideMany(ctx context.Context, requests []Request, answers []Answer)
}

// DecideMany decides requests with d: together if d is a [ManyDecider], and otherwise one
// by one. answers has one element for each request.
func DecideMany(ctx context.Context, d Decider, requests []Request, answers []Answer) {
	if many, ok := d.(ManyDecider); ok {
		many.DecideMany(ctx, requests, answers)
		return
	}
	for i, r := range requests {
		answers[i].Result, answers[i].Err = d.Decide(ctx, r, nil)
	}
}
