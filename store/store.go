// Package store defines the interface between limiters and the backends that keep their
// state. Users of limiters need only its errors:
//
//	res, err := limiter.Allow(ctx, "user:42")
//	if errors.Is(err, store.ErrUnavailable) {
//		// The decision is not known: fail open or fail closed.
//	}
//
// Authors of backends implement [Store]. It has three methods: Eval runs a [Script]
// atomically, MGet reads many keys, and Time returns the time. A script has two forms
// that do the same. The Lua form is for stores that run it on a server. The Go form is
// for stores that run no Lua: it works on a [Tx]. [NewLoaded] returns a Tx for such a
// store.
//
// A key holds a [Nums] or a sorted set of [Member] values. A backend can store a Nums
// as text, as Redis servers do, or as a tag and integers, for example in a row of a
// table.
//
// A store can also implement the optional interfaces [Batcher], [Borrower],
// [Checker], [DeadlineChecker] and [Lister]. Package conformance tests a backend.
//
// All methods of a store must be safe for concurrent use.
package store

import (
	"context"
	"time"
)

// A Store keeps the state of limiters. Scripts change it atomically.
//
// The errors of a store can be told apart with [errors.Is]:
//   - [ErrUnavailable]: the store could not serve the call. It is an [ErrMisconfigured]
//     too if this does not end before somebody corrects a setting.
//   - [ErrScript]: the script failed.
//   - [ErrForeign]: a key holds a value that no limiter wrote.
//   - [ErrCrossSlot]: the keys do not have the same cluster slot.
//   - [ErrNoGoForm]: the store runs no Lua, and the script has no Go form.
//   - the error of ctx, if ctx is done.
//
// Misuse is another error, for example if the client is nil or if there are no keys.
type Store interface {
	// Eval runs script atomically on keys, and appends its reply, a flat list, to
	// reply. It takes one round trip, or two if the server does not know the script
	// yet.
	//
	// There must be at least one key, and no key twice. All keys must have the same
	// cluster slot, even if the store is not a cluster. Otherwise the error is
	// ErrCrossSlot, and nothing is sent.
	//
	// A store can read the keys without locks, and compare versions when it writes. A Go
	// form can then see a torn snapshot: values that the keys never held together. So the
	// store must compare the versions even if the form returned an error or changed
	// nothing, and run the form again if they differ. A read-only script sees the state
	// between two calls that write, although its clock may show another time.
	//
	// If Eval returns an error, it returns the unchanged reply. If the error is
	// ErrUnavailable or an error of ctx, the script may have run. Eval itself does not
	// run it again, but the client of the store may.
	//
	// The store may keep the strings in keys and args, but not the slices.
	Eval(ctx context.Context, script *Script, keys []string, args []Arg, reply []Value) ([]Value, error)

	// MGet appends one value for each key to values, in the order of keys. The value
	// is a Bulk. If the key is missing, or does not hold a string, the value is Nil.
	// keys can have the same key twice.
	//
	// The keys can have different slots. MGet reads the keys of one slot atomically,
	// but not the keys of different slots. If it returns an error, it returns the
	// unchanged values.
	MGet(ctx context.Context, keys []string, values []Value) ([]Value, error)

	// Time returns the time of the store's clock, which scripts use, with a precision
	// of at least one microsecond. If the store has several servers, Time uses any of
	// them, so their clocks must agree.
	Time(ctx context.Context) (time.Time, error)
}

// An Eval is one call of [Store.Eval] in a batch.
type Eval struct {
	Script *Script
	Keys   []string
	Args   []Arg

	Reply []Value // EvalBatch appends the reply to it
	Err   error   // EvalBatch sets it to the error of this call, or to nil
}

// A Batcher is a [Store] that can send many calls together.
type Batcher interface {
	// EvalBatch runs every call, and sets its Reply and Err. Each call is atomic. The
	// calls are independent: they can run in any order and have different slots, and
	// a failed call does not stop the others. EvalBatch sends the calls for one
	// server together, not one by one.
	EvalBatch(ctx context.Context, calls []Eval)
}

// A Borrower is a [Store] that can promise to keep no string after a call returns. A
// limiter can then pass keys and arguments that point into a buffer, and reuse the
// buffer.
//
// If the client of a store sends asynchronously, the store must not be a Borrower. The
// limiter could reuse the buffer before the client has sent it.
type Borrower interface {
	// BorrowsStrings reports whether st keeps no string after a call. The limiter passes
	// the store that it calls as st. If st is another store, for example a wrapper that
	// embeds the Borrower, BorrowsStrings must return false.
	BorrowsStrings(st Store) bool
}

// A Checker is a [Store] that can detect, without a network call, that it can never work.
// For example, its client is nil.
type Checker interface {
	// Check returns nil, or an error that says what is wrong and what would be right.
	Check() error
}

// A DeadlineChecker is a [Store] that can tell whether the settings of its client let a
// call outlast its deadline.
type DeadlineChecker interface {
	// CheckDeadline returns nil if a call ends soon after the deadline of its context,
	// and at once if the server refuses the connection. Otherwise it returns an error
	// that names the setting of the client to change. It makes no network call.
	CheckDeadline() error
}

// A Lister is a [Store] that can list its keys, for tools that show who has consumed
// what. No decision needs it. A listing takes several calls, each of which does a bounded
// amount of work:
//
//	for cursor, more := "", true; more; more = cursor != "" {
//		if keys, cursor, err = lister.List(ctx, "weir:api:", cursor, keys); err != nil {
//			return err
//		}
//	}
type Lister interface {
	// List appends keys that begin with prefix to keys, and returns the cursor for the
	// next call. In the first call of a listing, cursor is empty. If next is empty, the
	// listing has ended. A call may append no keys without being the last.
	//
	// A listing has every key that exists from its first call to its last one. Keys that
	// are added or end meanwhile may be among them or not. A key can come more than once.
	// There is no order. If the servers of a store change, for example because a slot
	// moves or a replica is promoted, keys can be missing.
	//
	// A cursor is only for the store that returned it, and for the same prefix. List
	// returns an error for any other text. An error comes with the unchanged keys and an
	// empty cursor.
	List(ctx context.Context, prefix, cursor string, keys []string) (list []string, next string, err error)
}
