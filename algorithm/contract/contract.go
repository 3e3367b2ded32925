// Package contract defines the types with which you write an algorithm. Users of
// limiters do not need it: see package algorithm. This is a complete algorithm, a fixed
// window:
//
//	type FixedWindow struct {
//		Limit  int64
//		Window time.Duration
//	}
//
//	func (f FixedWindow) NewLimit() (*contract.Limit, error) {
//		if f.Limit < 1 || f.Limit > contract.MaxTokens {
//			return nil, contract.Invalid("FixedWindow.Limit is %d: it must be from 1 to 2^53-1", f.Limit)
//		}
//		window, err := contract.WholeMicros("FixedWindow.Window", f.Window)
//		if err != nil {
//			return nil, err
//		}
//		args := []store.Arg{store.ConstArg(f.Limit), store.ConstArg(window)}
//		return &contract.Limit{Kind: kind, Args: args, Capacity: f.Limit, Window: f.Window}, nil
//	}
//
//	var kind = &contract.MeterKind{
//		Head: contract.Head{
//			Name: "fixedwindow",
//			Tag:  store.Tag{'f', '1'},
//			Cell: "edge count", // when the window ends, and the tokens consumed in it
//			Args: "limit window",
//			Lua: `
//	-- advance
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
//		},
//		Meter: func(args []store.Arg) contract.Meter {
//			return meter{limit: args[0].Int(), window: args[1].Int()}
//		},
//	}
//
//	type meter struct{ limit, window int64 }
//
//	func (m meter) Advance(now int64, c contract.Cell) contract.Cell {
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
// An algorithm is arithmetic over up to four integers, its [Cell]. It consists of three
// parts:
//
//   - a struct with a NewLimit method, which checks the fields and returns a [Limit] with
//     the constants of the limit;
//   - a [MeterKind], which all limits of the algorithm share. It names the integers of
//     the cell and the constants, and holds the arithmetic in Lua, for servers;
//   - a [Meter], which holds the same arithmetic in Go, for stores that run no Lua.
//
// The module does the rest. It reads and parses the cell, and detects foreign values,
// which no limiter wrote. It writes the cell with a TTL. For each decision that can be
// refunded, it keeps a marker: a key that holds what Refund needs. It composes several
// rules into one atomic script. The function RunAlgorithm of package conformance tests
// that the Lua and the Go give the same results.
//
// # The Lua
//
// Each section follows a line that names it: "-- advance", "-- room", "-- take", "--
// ends" and, if tokens can be refunded, "-- refund". The sections do what the methods of
// [Meter] and [Refunder] do. Lines before the first section are ignored, and so are all
// lines that begin with "--". A section is a list of statements, which can use these
// names:
//
//   - $name is an integer of the cell, or a constant of the limit. A section can set the
//     integers of the cell, but not the constants.
//   - now is the time in microseconds.
//   - at is the time at which the caller goes ahead: now, or later if the caller waits.
//   - n is the number of tokens. The sections advance and ends cannot use at and n.
//   - $room and $ends are the results of the sections room and ends, which must set them.
//   - The section refund sets the integers of the cell and of [MeterKind].Note. If all
//     integers of the cell are then 0, the key is deleted. In refund, n is the number of
//     tokens to refund. $was_name is an integer of the cell just after the decision, and
//     $was_moved and $was_held are those fields of [Charge].
//
// A decision is refunded only if the constants that its refund depends on have not
// changed. These are all constants that the section ends names, and those that the
// section refund and also advance or take name. For a [Step], they are all constants that
// its section refund names. So name only the constants that these sections need. If they
// need none, a decision can be refunded after any change of the limit.
//
// Declare every other variable local. A local must not have a name that the generated
// script uses after the section, such as now or take: that is an error of construction.
// Lua's numbers are floats, which are exact only below 2^53: keep sums and products below
// 2^53, and divide with (a - a % b) / b.
//
// # State that is not a cell
//
// If the state is a sorted set, a list or several keys, write a [StepKind] with a [Step]
// instead of a MeterKind with a Meter. Of the built-in algorithms, SlidingLog,
// Concurrency, MetadataWindow, SlidingBuckets and Pause have a Step.
package contract

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-go/weir/store"
)

const (
	// MaxTokens is the largest number of tokens: 2^53-1, which Lua represents exactly.
	MaxTokens int64 = 1<<53 - 1

	// MaxSpan is the longest window, and the longest time in which a bucket can be
	// filled, in microseconds: 2^52 µs, about 142 years.
	MaxSpan int64 = 1 << 52

	// Never is the longest duration. As RetryAfter it means that the request can never
	// be allowed.
	Never = time.Duration(math.MaxInt64)

	// MaxArgs is the largest number of constants of a limit.
	MaxArgs = 16

	// MaxKeys is the largest number of keys of a [Step].
	MaxKeys = 128

	// MaxState is the largest number of integers in a [State].
	MaxState = 7
)

var (
	// ErrInvalidLimit means that a field of an algorithm is out of range, or that a
	// limit cannot be counted exactly.
	ErrInvalidLimit = errors.New("weir: invalid limit")

	// ErrInvalidCost means that a cost is negative, or above [Limit].MaxCost and not
	// above [Limit].Capacity.
	ErrInvalidCost = errors.New("weir: invalid cost")
)

// Invalid returns an [ErrInvalidLimit] with a text made by fmt.Sprintf. The text says
// what was given, and what would be right: "GCRA.Burst is 0: it must be at least 1".
func Invalid(format string, args ...any) error {
	return &invalid{fmt.Sprintf(format, args...)}
}

type invalid struct{ text string }

func (e *invalid) Error() string { return e.text }

func (e *invalid) Unwrap() error { return ErrInvalidLimit }

// A Cell is the state of one key: up to four integers from 0 to 2^53-1. If the key is
// missing, all integers are 0. In the store, a cell is text: the tag of its kind, and
// then the integers.
type Cell struct{ A, B, C, D int64 }

// A Limit is the result of NewLimit: an algorithm with valid constants. Do not change a
// Limit after NewLimit has returned it.
type Limit struct {
	// Kind holds the arithmetic of the algorithm. Use the same pointer for all limits
	// with the same Lua.
	Kind Kind

	// Args are the constants of the limit, in the order of Head.Args: at most MaxArgs.
	// Numbers are from -(2^53-1) to 2^53-1. Make them with store.ConstArg.
	Args []store.Arg

	// Capacity is the most tokens that one request can consume, from 1 to MaxTokens.
	// If the cost of a request is above Capacity, the request is denied with RetryAfter
	// Never.
	Capacity int64

	// MaxCost is the most tokens that the algorithm can consume at once. A cost from
	// MaxCost+1 to Capacity is an ErrInvalidCost, and so is a Force above MaxCost. 0
	// means that there is no such bound.
	MaxCost int64

	// MaxDebt is the most tokens that a Force can consume beyond Capacity, from 0 to
	// MaxTokens-Capacity. The limit is then in debt: the room is below 0, and requests
	// are denied until the debt is refilled. Choose MaxDebt so that no number in the
	// arithmetic reaches 2^53. A room from -MaxDebt must be exact, or rounded in the same
	// way in Lua and in Go. 0 means that the algorithm does not support Force.
	MaxDebt int64

	// Window is the time in which Capacity tokens are refilled. It becomes
	// Result.Window. 0 means that the algorithm has no such time.
	Window time.Duration

	// MaxWait is how far ahead tokens can be reserved, in microseconds, from 0 to
	// MaxSpan. Choose it so that no number in the arithmetic reaches 2^53. A longer wait
	// is cut to MaxWait. MaxWait is used only if MeterKind.Reserves is true.
	MaxWait int64

	// Lease is the time until a lease expires. It is used only if StepKind.Leases is
	// true.
	Lease time.Duration

	// Carry, which is optional, says what carries over if the limit becomes to, a limit of
	// the same algorithm. weirfile.Diff and the command weir check show it.
	Carry func(to *Limit) Carried
}

// Carried says what callers keep if a limit changes. See [Limit].Carry.
type Carried struct {
	Exact bool   // consumed tokens stay consumed; otherwise the state means another number
	Text  string // what stays, for people: "the count and the end of the window stay"

	// Wait is the longest RetryAfter of a request for one token just after the change.
	// The caller has consumed all tokens of the earlier limit, and none beyond them by a
	// reservation or a Force. 0 means that the request is allowed.
	Wait time.Duration
}

// Micros returns n microseconds as a duration. If n is too large, it returns [Never].
func Micros(n int64) time.Duration {
	if n > int64(Never)/1000 {
		return Never
	}
	return time.Duration(n) * time.Microsecond
}

// WholeMicros returns d in microseconds. If d is not a whole number of microseconds from
// 1 to [MaxSpan], the error is an [ErrInvalidLimit] that names the field.
func WholeMicros(field string, d time.Duration) (int64, error) {
	us := d.Microseconds()
	if us < 1 || us > MaxSpan || d%time.Microsecond != 0 {
		return 0, Invalid("%s is %v: it must be a whole number of microseconds, from 1µs to %v", field, d, Micros(MaxSpan))
	}
	return us, nil
}

// TTL returns the TTL of a key whose state ends at ends: the time from now to ends,
// rounded up to the millisecond, plus slack. It is at most 2*[MaxSpan] plus slack.
func TTL(now, ends int64, slack time.Duration) time.Duration {
	return Micros((min(max(ends-now, 1), 2*MaxSpan)+999)/1000*1000) + slack
}
