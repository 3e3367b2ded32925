package contract

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
	// can be negative: Take(Take(c, n), -n) equals c.
	Take(c Cell, n int64) Cell

	// Ends returns when the cell ends: the limit is then fully reset. Afterwards the
	// cell is treated like the zero Cell.
	Ends(c Cell) int64

	// Ready returns the earliest time at which a request for n tokens is allowed, if
	// the caller can wait for wait microseconds. n is at most the capacity.
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
	// note that was read. Refund is not called if the key was deleted, or if the cell
	// ended, after the decision.
	Refund(now int64, c Cell, ch Charge, note Cell) (Cell, Cell)
}

// A Charge is one decision that consumed tokens.
type Charge struct {
	Was   Cell  // the cell just after the decision
	N     int64 // the tokens that the decision consumed
	Moved int64 // the first integer of the note just after the decision; 0 if there is no Note
}
