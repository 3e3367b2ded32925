// Package contract says what an algorithm provides. It is for authors of
// algorithms; users need package algorithm alone.
//
// An algorithm is arithmetic over a few integers, its [Cell]. Everything else is
// done for it: reading and parsing the cell, finding foreign values, writing, TTLs,
// refunds' markers, and composing several rules into one atomic script, in Lua for
// servers and in Go for stores that run scripts themselves.
//
// An algorithm is a struct with a NewLimit method, which checks the struct's fields
// and returns a [Limit]. A Limit names its [Kind] and the limit's constants. The
// kind holds the arithmetic twice: as a few lines of Lua and as a [Meter] in Go.
// Package conformance proves that both mean the same (RunAlgorithm).
//
// # A complete algorithm
//
// A fixed window: at most Limit tokens in each Window.
//
//	type FixedWindow struct {
//		Limit  int64
//		Window time.Duration
//	}
//
//	func (f FixedWindow) NewLimit() (*contract.Limit, error) {
//		if f.Limit < 1 || f.Limit > contract.MaxTokens {
//			return nil, contract.Invalid("FixedWindow.Limit is %d: it must be at least 1", f.Limit)
//		}
//		window, err := contract.WholeMicros("FixedWindow.Window", f.Window)
//		if err != nil {
//			return nil, err
//		}
//		args := []store.Arg{store.ConstArg(f.Limit), store.ConstArg(window)}
//		return &contract.Limit{Kind: kind, Args: args, Capacity: f.Limit, Window: f.Window}, nil
//	}
//
//	var kind = &contract.Kind{
//		Name: "fixedwindow",
//		Tag:  store.Tag{'f', '1'},
//		Cell: "edge count", // when the window ends; tokens consumed in it
//		Args: "limit window",
//		Lua: `
//	-- settle
//	if now >= $edge then $edge, $count = now + $window, 0 end
//	-- room
//	$room = $limit - $count
//	-- take
//	$count = $count + n
//	-- ends
//	$ends = $edge
//	-- refund
//	if $edge == $was_edge then $count = math.max($count - n, 0) end
//	`,
//		Meter: func(args []store.Arg) contract.Meter {
//			return meter{limit: args[0].Int(), window: args[1].Int()}
//		},
//	}
//
//	type meter struct{ limit, window int64 }
//
//	func (m meter) Settle(now int64, c contract.Cell) contract.Cell {
//		if now >= c.A {
//			c.A, c.B = now+m.window, 0
//		}
//		return c
//	}
//	func (m meter) Room(now, at int64, c contract.Cell) int64             { return m.limit - c.B }
//	func (m meter) Take(c contract.Cell, n int64) contract.Cell           { c.B += n; return c }
//	func (m meter) Ends(c contract.Cell) int64                            { return c.A }
//	func (m meter) Ready(now int64, c contract.Cell, n, wait int64) int64 { return c.A }
//	func (m meter) Refund(now int64, c contract.Cell, ch contract.Charge, note contract.Cell) (contract.Cell, contract.Cell) {
//		if c.A == ch.Was.A {
//			c.B = max(c.B-ch.N, 0)
//		}
//		return c, note
//	}
//
// # The Lua
//
// Each section stands behind a line that names it: "-- settle", "-- room",
// "-- take", "-- ends" and, if tokens can be refunded, "-- refund". What stands
// before the first is a comment. A section is a list of statements.
//
//   - $name is an integer of the cell (a local that the section may set), or a
//     constant of the limit (a number; do not set it).
//   - now is the time in microseconds; at is now, or later for a caller who waits; n
//     is the number of tokens. In settle and ends only now may be used.
//   - room sets $room, and ends sets $ends.
//   - refund may read $was_name, the cell just after the refunded decision; n, what
//     that consumed; $was_moved, see [Charge]; and the integers of [Kind].Note. It
//     sets the cell's and the note's integers. A cell of zeros is deleted.
//   - Every other name is local to the section. Lua's numbers are floats of 53 bits:
//     keep sums and products below 2^53, and divide as (a - a % b) / b.
//
// # State that is no cell
//
// A sorted set, a list or a ring of keys needs a raw [Step] in place of the Meter.
// Of the built-in algorithms, SlidingLog, Concurrency, MetadataWindow and
// SlidingBuckets have one.
package contract

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-go/weir/store"
)

const (
	// MaxTokens is the largest quantity: 2^53-1, which Lua holds exactly.
	MaxTokens = 1<<53 - 1

	// MaxSpan is the longest time, in microseconds, that a limit can look ahead or
	// back: 2^52 µs, about 142 years.
	MaxSpan = 1 << 52

	// Never is the wait for something that cannot happen.
	Never = time.Duration(math.MaxInt64)

	// MaxArgs is the most constants of a limit.
	MaxArgs = 16

	// MaxKeys is the most keys that a [Step] can have.
	MaxKeys = 128

	// MaxState is how many integers a [Step] can read.
	MaxState = 6
)

var (
	// ErrInvalidLimit is the error of a limit that is zero, negative,
	// contradictory, or beyond what can be counted exactly.
	ErrInvalidLimit = errors.New("weir: invalid limit")

	// ErrInvalidCost is the error of a cost that is negative, or larger than what an
	// algorithm can consume at once.
	ErrInvalidCost = errors.New("weir: invalid cost")
)

// Invalid returns an [ErrInvalidLimit] whose text is that of fmt.Sprintf. The text
// says what was given, what is wrong, and what would be right:
// "GCRA.Burst is 0: it must be at least 1".
func Invalid(format string, args ...any) error {
	return &invalid{fmt.Sprintf(format, args...)}
}

type invalid struct{ text string }

func (e *invalid) Error() string { return e.text }

func (e *invalid) Unwrap() error { return ErrInvalidLimit }

// A Cell is the state of one key: up to four integers from 0 to 2^53-1. All are 0 if
// the key is missing. In the store it is text: the kind's tag, then the integers.
type Cell struct{ A, B, C, D int64 }

// A Limit is a valid limit, as NewLimit returns it. It does not change.
type Limit struct {
	// Kind is the algorithm's arithmetic, always the same pointer for limits that
	// share their state and their Lua.
	Kind *Kind

	// Args are the limit's constants, in the order of Kind.Args.
	Args []store.Arg

	// Capacity is the most tokens that one request can consume: from 1 to MaxTokens.
	// A larger cost is denied with Never.
	Capacity int64

	// MaxCost, if not 0, is less than Capacity: a cost within the capacity, and
	// above MaxCost, is an ErrInvalidCost.
	MaxCost int64

	// Window is the time in which Capacity tokens come back, 0 if that is not
	// defined. Results carry it.
	Window time.Duration

	// MaxWait is how far ahead, in microseconds, tokens can be reserved without a
	// number passing 2^53, if Kind.Reserves. A longer wait is cut to it.
	MaxWait int64

	// Lease is how long a lease is held, if Kind.Leases.
	Lease time.Duration
}

// A Kind is what all limits of an algorithm share.
type Kind struct {
	// Name is a short word of lower-case letters and digits. Scripts are named by it.
	Name string

	// Tag begins every value. It is part of the key too, so a change of the layout
	// needs another tag, and starts afresh.
	Tag store.Tag

	// Cell names the integers of the cell, with spaces between: "edge count". Names
	// in brackets come last, "tat [rem den]": they are not written while all are 0.
	// Of a Step, it names the integers that Read returns.
	Cell string

	// Note names up to three integers that refunds keep beside the cell, 0 at first.
	// They live as long as the cell is in use. The first must be the sum of what
	// refunds have moved, if [Charge].Moved is used.
	Note string

	// Args names the constants of a limit: "limit window". A name that ends in
	// ":text" is a string, and $name is then a Lua string.
	Args string

	// Lua is the arithmetic in Lua: see the package's documentation.
	Lua string

	// Reserves says that tokens can be reserved ahead of time: Room heeds at.
	Reserves bool

	// Absolute says that Ends depends on the cell alone, not on the limit's
	// constants. The script can then often keep the key's TTL, which is cheaper.
	Absolute bool

	// Meter returns the arithmetic for a limit with these constants.
	Meter func(args []store.Arg) Meter

	// Step, of an algorithm whose state is no cell, returns the raw step for a limit
	// with these constants. Meter is then nil.
	Step func(args []store.Arg) Step

	// The following are of a Step alone.

	// Keys is the number of keys, 0 meaning 1.
	Keys int

	// Locals names further locals of the Lua that its sections share: "log at".
	Locals string

	// Sets says that a key holds a sorted set or a list, which MGet cannot read.
	Sets bool

	// Leases says that a request holds a lease named by Ask.Text until it is released.
	Leases bool

	// Entries says that the kind keeps Ask.Text of every request, as metadata, and
	// that its Step is a [Lister].
	Entries bool
}

// A Meter is the arithmetic of one limit. Its methods are pure functions of their
// arguments. Times are microseconds since the Unix epoch.
type Meter interface {
	// Settle returns the cell with everything that has expired or come back by now
	// taken into account. The zero Cell is that of a missing key. A cell whose Ends
	// has passed is never given: it is replaced by the zero Cell.
	Settle(now int64, c Cell) Cell

	// Room returns how many tokens fit if the caller goes at the time at, which is
	// now or later. c is settled. The result may be negative.
	Room(now, at int64, c Cell) int64

	// Take returns the cell after n tokens were consumed, which fit.
	Take(c Cell, n int64) Cell

	// Ends returns when the cell will be as if never used.
	Ends(c Cell) int64

	// Ready returns the earliest time at which a request for n tokens, at most the
	// capacity, passes that may wait for wait microseconds.
	Ready(now int64, c Cell, n, wait int64) int64
}

// A Refunder is a [Meter] whose tokens can be refunded. Its kind's Lua has a refund
// section.
type Refunder interface {
	// Refund returns the cell and the note after what is left of ch was refunded. c
	// is the cell as it was read, not settled, and in use. The key is the one that
	// ch was consumed from: a key that was deleted since is never refunded to. Two
	// equal cells mean that nothing was left to refund.
	Refund(now int64, c Cell, ch Charge, note Cell) (Cell, Cell)
}

// A Charge is one decision that consumed tokens.
type Charge struct {
	Was   Cell  // the cell just after the decision
	N     int64 // the tokens
	Moved int64 // the note's first integer, just after the decision; 0 without Note
}

// An Ask is what a request asks of one limit.
type Ask struct {
	Cost  int64  // tokens, 1 or more
	Wait  int64  // microseconds, 0 or more
	Text  string // the name of a lease, or metadata; "" for none
	Renew bool   // pass only if the lease is held
}

// An Answer is what a limit answers beyond allowed or denied.
type Answer struct {
	Limit      int64         // the capacity
	Window     time.Duration // the limit's window
	Remaining  int64         // whole tokens left after the request
	RetryAfter time.Duration // if denied, until the same request would pass
	ResetAfter time.Duration // until the state is as if never used
}

// A State is what a [Step] read, in the order of [Kind].Cell. A reply carries these
// integers. Read can return further ones behind them for Write and Mark, which no reply
// carries.
type State [MaxState]int64

// A Step is the raw form of an algorithm whose state is no cell. Its kind's Lua has
// the sections "-- read" and "-- write", and may have "-- entries" and "-- mark" with
// "-- refund". In these, $key1 to $keyN are the keys, "return $foreign1" ends the
// script because key 1 holds somebody else's value, $text is Ask.Text, and slack is
// the number of milliseconds by which to lengthen every TTL. What follows a comment
// sign is not replaced.
//
//   - read sets the locals of Kind.Cell, which are 0 at first, and $room. It may use
//     now, n (the cost) and $renew (true or false). It writes nothing.
//   - write consumes n tokens. Its commands cannot fail, and it gives each key a TTL.
//   - entries sets $entries, a table of strings.
//   - mark stands behind write. It may use $gen, and sets $mark, a string of four
//     integers with spaces between, which tell refund what was consumed; and $ends.
//   - refund may use $was1 to $was4 (those of mark), $gen, and n. It sets $gave to 1
//     if it refunded anything.
type Step interface {
	// Read reads the keys of tx from number key on.
	Read(tx store.Tx, key int, now int64, a Ask) (State, error)

	// Room returns how many tokens fit.
	Room(now int64, s State, a Ask) int64

	// Write consumes n tokens. slack lengthens every TTL.
	Write(tx store.Tx, key int, now int64, s State, n int64, a Ask, gen int64, slack time.Duration) error

	// Answer answers a request that consumed n tokens, or 0.
	Answer(now int64, s State, n int64, a Ask) Answer
}

// A StepRefunder is a [Step] whose tokens can be refunded, or whose leases can be
// released.
type StepRefunder interface {
	// Mark returns four integers that tell Refund what Write consumed, and
	// when the marker may expire.
	Mark(now int64, s State, n, gen int64) (mark Cell, ends int64)

	// Refund refunds what is left, and reports whether that was anything.
	Refund(tx store.Tx, key int, now int64, s State, a Ask, mark Cell, n, gen int64) (bool, error)
}

// A Lister is a [Step] that keeps metadata.
type Lister interface {
	// Entries returns the texts that the key keeps, the oldest first.
	Entries(tx store.Tx, key int, s State) ([]string, error)

	// Parse returns what texts, read by Entries or by the Lua, list.
	Parse(texts []string) ([]Entry, error)
}

// An Entry is one request that was allowed.
type Entry struct {
	Cost     int64  // tokens consumed, 1 or more
	Metadata string // the request's metadata, any bytes
}
