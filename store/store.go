// Package store says what a backend must do to keep the state of rate limiters.
//
// A [Store] runs a [Script] atomically, reads many keys, and tells the time;
// nothing else is asked of it. A script comes in two forms with one meaning:
// Lua, for stores that run it on a server, and Go, for stores that run it
// themselves over a [Tx]. State is kept as [Nums], which a backend can store as
// the text that a Redis server would hold or as a row of integers.
//
// More than the three methods is an optional interface: [Batcher], [Borrower]
// and [Checker]. A backend proves itself with package conformance.
//
// All methods are safe for concurrent use.
package store

import (
	"context"
	"time"
)

// A Store keeps limiter state and changes it one script at a time.
//
// Errors can be told apart with [errors.Is]: [ErrUnavailable], [ErrScript],
// [ErrForeign], [ErrCrossSlot] and [ErrNoGoForm], or the error of ctx, unchanged.
type Store interface {
	// Eval runs script atomically over keys and appends its reply, a flat list,
	// to reply. It takes one round trip, or two when the server did not know
	// the script.
	//
	// All keys, at least one and each once, must share a cluster slot, on every
	// store: otherwise nothing is sent and the error is ErrCrossSlot. After an
	// error, the returned slice holds what reply held. A step that ended in
	// ErrUnavailable or in an error of ctx may have run; Eval never repeats it
	// by itself.
	//
	// The store may keep the strings in keys and args, but not the slices.
	Eval(ctx context.Context, script *Script, keys []string, args []Arg, reply []Value) ([]Value, error)

	// MGet appends one value per key, in the order of keys, to values: a Bulk,
	// or Nil for a key that is missing or holds no string. A key may be named
	// twice. Keys may span slots; the reads are then atomic for each slot, not
	// for all.
	MGet(ctx context.Context, keys []string, values []Value) ([]Value, error)

	// Time returns the store's clock, in microseconds or better: the clock that
	// a script reads. Of several servers it is the clock of any one; they are
	// taken to agree.
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

// A Batcher is a [Store] that sends many calls in one flush, one for each shard.
type Batcher interface {
	// EvalBatch runs every call, each atomic by itself, and sets its Reply
	// and Err. The calls are independent: they may run in any order, and one
	// that fails does not stop the others. Calls need not share a slot.
	EvalBatch(ctx context.Context, calls []Eval)
}

// A Borrower is a [Store] that keeps no key and no argument beyond a call, so
// that a caller may hand it strings over a buffer that it will use again. A
// store whose client sends asynchronously must not promise this: the caller may
// return, and reuse the buffer, before the client has sent it.
type Borrower interface {
	// BorrowsStrings reports whether st, the store that is going to be called,
	// keeps the promise. A store answers for itself alone: st may be a wrapper
	// that embeds it.
	BorrowsStrings(st Store) bool
}

// A Checker is a [Store] that can tell, without network, that it can never
// work: it was given a nil client, say, or one that it cannot use.
type Checker interface {
	// Check returns what is wrong and what would be right, or nil.
	Check() error
}
