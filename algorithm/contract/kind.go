package contract

import "github.com/weir-go/weir/store"

// A Kind is the part of an algorithm that all its limits share: a [*MeterKind] or a
// [*StepKind].
type Kind interface {
	// Common returns the Head of the kind, or nil if the kind is a nil pointer.
	Common() *Head

	// Type says what a rule of this kind does. The kind must not be a nil pointer.
	Type() RuleType
}

// A RuleType says what a rule does, which its numbers do not tell.
type RuleType uint8

const (
	LimitRule RuleType = iota // limits how many tokens are consumed
	LeaseRule                 // limits how many leases are held at once
	PauseRule                 // closes keys, and has no limit
)

// A Head holds the fields that a [MeterKind] and a [StepKind] have in common.
type Head struct {
	// Name is a short name of lower-case letters and digits. Scripts and errors use
	// it.
	Name string

	// Tag is a lower-case letter and a digit. It cannot be i2, i3 or i4, the tags of
	// markers. The tag is part of every key and of every value. If you change the
	// layout of the value, choose another tag. Rules then use other keys, so their
	// earlier state has no effect.
	Tag store.Tag

	// Cell names the integers of the cell, separated by spaces: "edge count". Names
	// consist of lower-case letters and underscores. Names in brackets, such as
	// "tat [rem den]", come last: their integers are written only if one of them is
	// not 0. For a Step, Cell names the integers of its State in a reply.
	Cell string

	// Args names the constants of a limit: "limit window". If a name ends in ":text",
	// the constant is a string.
	Args string

	// Lua is the arithmetic in Lua: see the documentation of the package.
	Lua string
}

// A MeterKind is the [Kind] of an algorithm whose state is a [Cell].
type MeterKind struct {
	Head

	// Note names up to three integers that refunds keep in the value, after the cell. If
	// Note is not empty, Cell names at most three integers. The integers of the note
	// are 0 at first, and 0 again when the cell ends. If Refund uses
	// [Charge].Moved, the first integer of the note must be a sum, to which each
	// refund adds how far it moved the cell.
	Note string

	// Reserves is true if tokens can be reserved ahead of time. Room must then use
	// its argument at.
	Reserves bool

	// Absolute is true if Ends depends only on the cell, not on the constants of the
	// limit. The script then keeps a key's TTL where possible, which costs a server less.
	Absolute bool

	// Carries is true if tokens left of a window carry over to the next one. Cells of two
	// windows can then end at the same time, so the first integer of the cell must tell the
	// windows apart: a Settle adds to a decision only in its own window. Carries has no
	// effect if there is a Note.
	Carries bool

	// Queues is true if requests leave one at a time, as with algorithm.LeakyBucket.
	// Package prefetch rejects such a rule.
	Queues bool

	// Meter returns the arithmetic in Go for a limit with these constants.
	Meter func(args []store.Arg) Meter
}

// Common implements [Kind].
func (k *MeterKind) Common() *Head {
	if k == nil {
		return nil
	}
	return &k.Head
}

// Type implements [Kind].
func (*MeterKind) Type() RuleType { return LimitRule }

// A StepKind is the [Kind] of an algorithm whose state is not a [Cell].
type StepKind struct {
	Head

	// Keys is the number of keys. 0 means 1.
	Keys int

	// Locals names further Lua variables that the sections share: "log at".
	Locals string

	// Sets is true if a key holds a sorted set or a list, which MGet cannot read.
	Sets bool

	// Leases is true if the Step gives out leases: an allowed request holds a lease,
	// whose name is Ask.Text, until the lease is released.
	Leases bool

	// Entries is true if the Step keeps Ask.Text of every allowed request as
	// metadata. The Step must then be a [Lister].
	Entries bool

	// Pauses is true if the kind limits nothing, but closes a key for some time, as
	// algorithm.Pause does. A decision only reads it. Force, Refund and Settle ignore it.
	// Its Limit has the Capacity [MaxTokens], and no Window. While the key is open, room
	// is 2^53. While it is closed, room is 0, whatever Ask.Wait is. [Answer].RetryAfter
	// and ResetAfter are the time until the key is open. The section write and the method
	// Write begin the pause named Ask.Text, which ends after Ask.Wait, or at the time at
	// in Lua. The section refund and the method Refund end it. There is no section mark.
	Pauses bool

	// Step returns the Step of a limit with these constants.
	Step func(args []store.Arg) Step
}

// Common implements [Kind].
func (k *StepKind) Common() *Head {
	if k == nil {
		return nil
	}
	return &k.Head
}

// Type implements [Kind].
func (k *StepKind) Type() RuleType {
	switch {
	case k.Leases:
		return LeaseRule
	case k.Pauses:
		return PauseRule
	}
	return LimitRule
}

// A Meter is the arithmetic of one limit. Its methods are pure functions of their
// arguments. Times are microseconds since the Unix epoch.
type Meter interface {
	// Advance returns the cell at now: expired windows are removed, and refilled tokens
	// are added. If the key is missing, or the cell has ended, c is the zero Cell.
	Advance(now int64, c Cell) Cell

	// Room returns the number of tokens that can be consumed if the caller goes ahead at
	// the time at, which is now or later. c is the result of Advance. The result can be
	// negative.
	Room(now, at int64, c Cell) int64

	// Take returns the cell after n tokens were consumed. n is at most the result of
	// Room, or Room plus [Limit].MaxDebt for a Force. If MeterKind.Reserves is true, n
	// can be negative: Take(Take(c, n), -n) equals c. If the limit has changed since, c
	// can be the cell of the earlier limit, and the result is an estimate.
	Take(c Cell, n int64) Cell

	// Ends returns when the cell ends: the limit is then fully reset. Afterwards the
	// cell is treated like the zero Cell.
	Ends(c Cell) int64

	// Ready returns the earliest time at which a request for n tokens is allowed, if
	// the caller can wait for wait microseconds. n is at most the capacity. It can be 0:
	// the request is then allowed when the limit is not in debt.
	Ready(now int64, c Cell, n, wait int64) int64
}

// A Refunder is a [Meter] whose tokens can be refunded. The Lua of its kind has a refund
// section.
type Refunder interface {
	// Refund refunds the decision ch, and returns the new cell and the new note. It
	// does not refund tokens that have been refilled since, or that belong to an
	// expired window. If the returned cell equals c, nothing was refunded. If it is the
	// zero Cell, the key is deleted.
	//
	// c is the cell that was read. It is not advanced, and has not ended. note is the
	// note that was read. Refund is not called if the key was deleted or the cell ended
	// after the decision, or if a constant that the refund depends on has changed: see
	// the documentation of the package. Other constants can differ from those of the
	// decision.
	Refund(now int64, c Cell, ch Charge, note Cell) (Cell, Cell)
}

// A Charge is one decision that consumed tokens, perhaps under another limit: see
// [Refunder].
type Charge struct {
	Was   Cell  // the cell just after the decision
	N     int64 // the tokens to refund: the last of the decision
	Held  int64 // the tokens that the decision still holds, at least N
	Moved int64 // the first integer of the note just after the decision; 0 if there is no Note
}
