package weir

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
)

// An Op is what a [Request] asks for.
type Op uint8

const (
	// Consume consumes the cost from every rule, if all rules allow it.
	Consume Op = iota

	// Peek answers what Consume would answer, and changes nothing.
	Peek

	// TakeUpTo consumes as many tokens as every rule allows, up to the cost. The
	// request is denied if that is none.
	TakeUpTo

	// Refund undoes the decision with the same key and ID: see Limiter.Refund.
	Refund

	// Renew makes the lease ID last for its full time from now. The request is
	// denied if the lease is not held.
	Renew

	// Release ends the lease ID.
	Release

	// Reset clears the rules that the full key identifies: see Limiter.Reset.
	Reset
)

// String returns the name of op.
func (op Op) String() string {
	names := [...]string{"Consume", "Peek", "TakeUpTo", "Refund", "Renew", "Release", "Reset"}
	if int(op) < len(names) {
		return names[op]
	}
	return fmt.Sprintf("Op(%d)", uint8(op))
}

// A Request is one question to a [Decider]. Requests are comparable. The zero value
// of each field is safe.
type Request struct {
	// Key identifies the caller being limited.
	Key Key

	// Op is what to do. The zero Op is Consume.
	Op Op

	// Cost is the number of tokens, of the ops Consume, Peek and TakeUpTo. 0 means
	// 1. A Cost above the capacity of a rule is denied, with RetryAfter Never.
	Cost int64

	// MaxWait is how far ahead tokens may be reserved, of the ops Consume and Peek.
	// 0 means that the request passes now or is denied. Result.Delay tells how long
	// to wait. The algorithm of every rule must be algorithm.GCRA, TokenBucket or
	// LeakyBucket. Whole microseconds count.
	MaxWait time.Duration

	// ID names the decision, so that it can be refunded: any bytes, another ID for
	// each decision. It costs one more key for each rule, which lives until nothing
	// is left to refund. Without an ID there is no refund.
	//
	// If a rule is an algorithm.Concurrency, ID names the lease instead, in at most
	// algorithm.MaxLease bytes, and is required by every op but Peek and Reset.
	ID string

	// Metadata is kept by an algorithm.MetadataWindow if the request is allowed, for
	// Limiter.Entries to list: at most algorithm.MaxMetadata bytes.
	Metadata string
}

// A Result is the answer to a [Request]. Limit, Window, Remaining, RetryAfter and
// ResetAfter describe Rule. If the request is denied, that is the rule with the
// longest RetryAfter; otherwise it is the rule with the fewest tokens remaining. Of
// equals it is the first.
//
// Of the ops Refund, Release and Reset, only Allowed is set. It reports whether
// anything was refunded or released.
type Result struct {
	Allowed bool // go ahead, after Delay

	// Granted is the number of tokens consumed from the rules that have no Cost of
	// their own. If every rule has one, it is that of Rule. It is 0 if the request
	// was denied, and of the ops Peek and Renew.
	Granted int64

	// Delay is the time until the tokens are there: the longest of all rules. It is
	// 0 unless Request.MaxWait was given. It is Never if the request was denied.
	Delay time.Duration

	Rule       string        // the rule's name, or its algorithm's if it has none
	Limit      int64         // the capacity of Rule, in tokens
	Window     time.Duration // the time in which Limit tokens come back; 0 for algorithm.Concurrency
	Remaining  int64         // whole tokens left now, or the leases that are free
	RetryAfter time.Duration // if denied, the time until the same request would pass; Never if it cannot
	ResetAfter time.Duration // the time until Rule is fully reset
}

// A Decider is a [Limiter] or a wrapper around a Decider: see [Limiter.Wrap]. A
// wrapper passes on every request that it does not answer itself.
type Decider interface {
	// Decide decides r. If each has at least one element for each rule, it receives
	// the result of each rule, in the order of Policy.Rules. Decide does not keep it.
	Decide(ctx context.Context, r Request, each []Result) (Result, error)
}

var _ Decider = (*Limiter)(nil)

// Allow consumes one token from every rule, if all rules allow the request. The
// errors are those of [Limiter.Decide].
func (l *Limiter) Allow(ctx context.Context, key ...string) (Result, error) {
	var r Request
	r.Key.set(key)
	return l.decide(ctx, &r, nil)
}

// AllowN consumes cost tokens from every rule, if all rules allow the request. A
// cost below 1 is [ErrInvalidCost]. The other errors are those of [Limiter.Decide].
func (l *Limiter) AllowN(ctx context.Context, cost int64, key ...string) (Result, error) {
	if cost < 1 {
		return Result{}, errCost("AllowN", cost)
	}
	r := Request{Cost: cost}
	r.Key.set(key)
	return l.decide(ctx, &r, nil)
}

// Peek answers what [Limiter.Allow] would answer, and changes nothing. Remaining is
// what is left now. The errors are those of [Limiter.Decide].
func (l *Limiter) Peek(ctx context.Context, key ...string) (Result, error) {
	r := Request{Op: Peek}
	r.Key.set(key)
	return l.decide(ctx, &r, nil)
}

// TakeUpTo consumes as many tokens as every rule allows, up to most. Result.Granted
// is how many. If that is none, the request is denied, and RetryAfter is that of one
// token. A rule with a Cost of its own consumes its Cost once, if any token is granted.
//
// A most below 1 is [ErrInvalidCost]. The error is [ErrUnsupported] if every rule has
// a Cost of its own, or if a rule without one is an algorithm.Concurrency. The other
// errors are those of [Limiter.Decide].
func (l *Limiter) TakeUpTo(ctx context.Context, most int64, key ...string) (Result, error) {
	if most < 1 {
		return Result{}, errCost("TakeUpTo", most)
	}
	r := Request{Op: TakeUpTo, Cost: most}
	r.Key.set(key)
	return l.decide(ctx, &r, nil)
}

func errCost(method string, cost int64) error {
	return fail(ErrInvalidCost, "%s: the cost is %d: it must be at least 1", method, cost)
}

// Decide decides r, in one atomic step and one round trip. All methods of a Limiter
// that decide call it. If each is not empty, it must have at least one element for
// each rule. It receives the result of each rule, in the order of Policy.Rules, whose
// Allowed reports whether that rule alone allows the request.
//
// The errors of misuse are:
//   - [ErrInvalidKey] if the key does not have the segments of the policy, or one is
//     empty.
//   - [ErrInvalidCost] if the cost is negative, or more than an algorithm can consume
//     at once.
//   - [ErrInvalidLease] if a rule is an algorithm.Concurrency, and r has no ID, or one
//     that is too long.
//   - [ErrInvalidMetadata] if the metadata is too long.
//   - [ErrUnsupported] if an algorithm cannot do what r asks. The error names the rule.
//   - an error without a name for a negative MaxWait, or if each is too short.
//
// The errors of the store are passed on:
//   - [store.ErrUnavailable], or the context's error, during an outage. No decision
//     was made that is known; tokens may have been consumed.
//   - [store.ErrForeign] if a key holds a value that is not a limiter's.
//   - [store.ErrScript] if the script failed.
func (l *Limiter) Decide(ctx context.Context, r Request, each []Result) (Result, error) {
	return l.decide(ctx, &r, each)
}

// decide is Decide. A Request is large, so it is copied for wrappers alone.
func (l *Limiter) decide(ctx context.Context, r *Request, each []Result) (Result, error) {
	switch {
	case l == nil || l.outer == nil:
		return Result{}, errNoLimiter
	case len(l.wrappers) == 0:
		return l.bound.decide(ctx, r, each)
	}
	return l.outer.Decide(ctx, *r, each)
}

// Decide implements [Decider], inside all wrappers.
func (b *bound) Decide(ctx context.Context, r Request, each []Result) (Result, error) {
	return b.decide(ctx, &r, each)
}

// decide is the one way of every request: it is checked and bound, goes to the store, and
// the reply becomes its result.
func (b *bound) decide(ctx context.Context, r *Request, each []Result) (Result, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	err := b.prepare(s, r, len(each), b.borrow)
	if err != nil {
		return Result{}, err
	}
	s.reply, err = b.store.Eval(ctx, s.part.program.Script(s.verb), s.keys, s.args, s.reply[:0])
	if err != nil {
		return Result{}, err
	}
	return b.result(s, s.reply, each)
}

// A scratch is the room for one request on its way to the store and back.
type scratch struct {
	op   Op
	part *part
	verb compose.Verb
	call compose.Call

	text  []byte // of the marker's name
	buf   []byte // of the keys, one behind the other
	ends  []int  // of the keys in buf
	keys  []string
	args  []store.Arg
	reply []store.Value
	flat  []store.Value
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// A broken is a Decider that decides nothing.
type broken struct{ err error }

func (b broken) Decide(context.Context, Request, []Result) (Result, error) { return Result{}, b.err }
