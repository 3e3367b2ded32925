package contract

import "github.com/weir-go/weir/store"

// A Kind is the part of an algorithm that all its limits share: a [*MeterKind] or a
// [*StepKind].
type Kind interface {
	// Common returns the Head of the kind, or nil if the kind is a nil pointer.
	Common() *Head
}

// A Head holds the fields that a [MeterKind] and a [StepKind] have in common.
type Head struct {
	// Name is a short name of lower-case letters and digits. Scripts and errors use
	// it.
	Name string

	// Tag is a lower-case letter and a digit. It cannot be i2 or i3, the tags of markers.
	// The tag is part of every key and of every value. If you change the layout of
	// the value, choose another tag. Rules then use other keys, so their earlier
	// state has no effect.
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
	// limit. The script then keeps a key's TTL where possible, which costs a server
	// less.
	Absolute bool

	// Queues is true if requests queue up one by one and leave one by one, as those of
	// algorithm.LeakyBucket do. No tokens are then consumed ahead of their requests.
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
