// Package store defines what a backend must do to keep the state of rate limiters.
//
// Users of limiters need no more of this package than its errors:
//
//	res, err := limiter.Allow(ctx, "user:42")
//	if errors.Is(err, store.ErrUnavailable) {
//		// No decision was made: fail open or fail closed.
//	}
//
// Authors of backends implement [Store], which has three methods: run a [Script]
// atomically, read many keys, and tell the time. A script comes in two forms with
// one meaning: Lua, for stores that run it on a server, and Go, for stores that
// run it themselves over a [Tx]. [NewLoaded] returns a ready Tx.
//
// A key holds [Nums] or a sorted set of [Member]. A backend can store Nums as the
// text that a Redis server would hold, or as a row of integers.
//
// Everything beyond the three methods is an optional interface: [Batcher],
// [Borrower] and [Checker]. Package conformance tests a backend.
//
// All methods of a store are safe for concurrent use.
package store

import (
	"context"
	"time"
)

// A Store keeps limiter state and changes it one script at a time.
//
// Its errors can be told apart with [errors.Is]:
//   - [ErrUnavailable]: the store could not serve the call.
//   - [ErrScript]: the script failed.
//   - [ErrForeign]: a key holds a value that no limiter wrote.
//   - [ErrCrossSlot]: the keys do not share a cluster slot.
//   - [ErrNoGoForm]: the store runs no Lua and the script has no Go form.
//   - the error of ctx, unchanged, if ctx is done.
type Store interface {
	// Eval runs script atomically over keys, and appends its reply, a flat list,
	// to reply. It takes one round trip, or two if the server does not know the
	// script yet.
	//
	// There is at least one key, and no key is named twice. The keys must share
	// a cluster slot, also on a store without a cluster: otherwise nothing is
	// sent and the error is ErrCrossSlot.
	//
	// After an error, the returned slice holds what reply held. If the error is
	// ErrUnavailable or an error of ctx, the step may have run. Eval never
	// repeats such a step.
	//
	// The store may keep the strings in keys and args, but not the slices.
	Eval(ctx context.Context, script *Script, keys []string, args []Arg, reply []Value) ([]Value, error)

	// MGet appends one value for each key to values, in the order of keys. The
	// value is a Bulk, or Nil if the key is missing or does not hold a string.
	// A key may be named twice.
	//
	// Keys may span slots. The reads of one slot are atomic; the reads of
	// different slots are not.
	MGet(ctx context.Context, keys []string, values []Value) ([]Value, error)

	// Time returns the store's clock, in microseconds or finer. It is the clock
	// that scripts read. If there are several servers, it is the clock of any of
	// them: their clocks must agree.
	Time(ctx context.Context) (time.Time, error)
}

// An Eval is one call of [Store.Eval] in a batch.
type Eval struct {
	Script *Script
	Keys   []string
	Args   []Arg

	Reply []Value // the reply is appended to it
	Err   error   // the error of this call alone
}

// A Batcher is a [Store] that sends many calls together, in one flush for each
// server.
type Batcher interface {
	// EvalBatch runs every call and sets its Reply and Err. Each call is atomic.
	// The calls are independent: they may run in any order, a failed call does
	// not stop the others, and they need not share a slot.
	EvalBatch(ctx context.Context, calls []Eval)
}

// A Borrower is a [Store] that keeps no key and no argument after a call returns.
// A caller may then pass strings over a buffer and use the buffer again.
//
// A store whose client sends asynchronously must not be a Borrower: the caller
// could return and reuse the buffer before the client has sent it.
type Borrower interface {
	// BorrowsStrings reports whether st, the store that is going to be called,
	// keeps no strings. A store answers only for itself: st may be a wrapper
	// that embeds it.
	BorrowsStrings(st Store) bool
}

// A Checker is a [Store] that can report, without network, that it can never
// work, for example because its client is nil.
type Checker interface {
	// Check returns an error that says what is wrong and what would be right,
	// or nil.
	Check() error
}
