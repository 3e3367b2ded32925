package contract

import (
	"time"

	"github.com/weir-go/weir/store"
)

// An Ask is the part of a request that a [Step] needs.
type Ask struct {
	Cost  int64  // tokens; 0 is allowed unless the limit is in debt, and consumes nothing
	Wait  int64  // how far ahead tokens may be reserved, in microseconds, 0 or more
	Text  string // the name of a lease or of a pause, or metadata; it can be empty
	Renew bool   // allow the request only if the lease is held
}

// An Answer holds the numbers of a result for one limit. It does not say whether the
// request was allowed.
type Answer struct {
	Limit      int64         // the capacity
	Window     time.Duration // the limit's window
	Remaining  int64         // whole tokens left after the request
	RetryAfter time.Duration // if denied, the time until the same request would be allowed
	ResetAfter time.Duration // the time until the limit is fully reset
}

// A State holds the integers that [Step].Read returned. The integers that [Head].Cell
// names come first, and are part of the reply. Read can return more integers after
// them, which only Write and Mark use.
type State [MaxState]int64

// A Step reads and writes the state of one limit, if that state is not a cell. The Lua
// of its kind has the sections "-- read" and "-- write". It can also have "-- entries",
// and "-- mark" with "-- refund". The sections can use these names:
//
//   - $key1, $key2 and so on are the keys.
//   - "return $foreign1" ends the script because key 1 holds a foreign value.
//   - $text is Ask.Text.
//   - slack is added to every TTL. It is a number of milliseconds.
//
// The sections do the following:
//
//   - read sets $room and the integers that Head.Cell names. All of them are 0 at
//     first. It can use now, n (the cost), at (now plus Ask.Wait) and $renew (Ask.Renew).
//     It writes nothing.
//   - write consumes n tokens, and gives each key a TTL. It can use $gen. Its commands
//     must not fail. For a Force, n can be above $room, by at most [Limit].MaxDebt.
//   - entries sets $entries, a table of strings.
//   - mark runs after write, and can use $gen. It sets $mark, a string of three integers
//     separated by spaces, for refund. It also sets $ends: when the marker can expire.
//   - refund can use $was1 to $was3 (the integers of $mark), $gen, n and $keep. It
//     refunds n tokens of the decision, and leaves the first $keep tokens consumed. If it
//     refunds anything, it sets $gave to 1.
type Step interface {
	// Read reads the keys of the rule. Their indices in tx start at key.
	Read(tx store.Tx, key int, now int64, a Ask) (State, error)

	// Room returns the number of tokens that can be consumed. It is below 0 if the
	// limit is in debt.
	Room(now int64, s State, a Ask) int64

	// Write consumes n tokens. n is at most Room, or Room plus [Limit].MaxDebt for a
	// Force. Write adds slack to every TTL. gen is a number from 1 to
	// 2^53-1 that differs for each decision with an ID. It is 0 for a decision
	// without an ID. The Lua name of gen is $gen.
	Write(tx store.Tx, key int, now int64, s State, n int64, a Ask, gen int64, slack time.Duration) error

	// Answer returns the answer to a request that consumed n tokens. n is 0 if the
	// request was denied or is a peek.
	Answer(now int64, s State, n int64, a Ask) Answer
}

// A StepRefunder is a [Step] whose tokens can be refunded, or whose leases can be
// released.
type StepRefunder interface {
	// Mark returns the three integers of the marker, A, B and C, which tell Refund what
	// Write consumed. ends is when the decision ends: no token can be refunded any more.
	Mark(now int64, s State, n, gen int64) (mark Cell, ends int64)

	// Refund refunds n tokens of a decision, or releases a lease. It does not refund
	// tokens that have been refilled since, or that have expired. keep is the number
	// of tokens of the decision that stay consumed: the decision consumed keep+n
	// tokens, and the last n are refunded. mark and gen are from the marker of the
	// decision. Refund reports whether anything was refunded or released.
	//
	// A decision is refunded only if the constants that the section refund names have not
	// changed. Other constants can differ.
	Refund(tx store.Tx, key int, now int64, s State, a Ask, mark Cell, n, keep, gen int64) (bool, error)
}

// A Lister is a [Step] that keeps metadata.
type Lister interface {
	// Entries returns the stored texts, the oldest first.
	Entries(tx store.Tx, key int, s State) ([]string, error)

	// Parse returns the entries in texts. The method Entries or the Lua section
	// entries returned these texts. If a text is not an entry, the error is a
	// store.ForeignAt. It does not quote the text, which can be private.
	Parse(texts []string) ([]Entry, error)
}

// An Entry is an allowed request.
type Entry struct {
	Cost     int64  // tokens consumed, 1 or more
	Metadata string // the request's metadata, any bytes
}
