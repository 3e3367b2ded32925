// Package algorithm holds the rate-limiting algorithms and what they are made of.
//
// An algorithm is a plain struct, [GCRA], [TokenBucket], [LeakyBucket],
// [FixedWindow], [MetadataWindow], [SlidingBuckets], [SlidingCounter],
// [SlidingLog] or [Concurrency], whose NewLimit method checks it and works out
// its constants. It knows nothing of clients, key names or networks. Its atomic
// step is a [Fragment], in Lua and in Go: a check, which reads, and a commit,
// which writes. [Compose] makes one script of any list of fragments: all checks,
// then all commits if every check passed, or none. The script replies with the
// state before the commit, and the limit's Verdict turns that into numbers, for
// every store alike. What else a fragment can do, take as much as fits or give
// back, are further parts of it, which scripts have that need them:
// [Program.Variant] and [Program.Refund].
//
// An algorithm of one's own implements [Algorithm] and [Limit] in the same way.
// Package conformance proves it, by RunAlgorithm; examples/dailyquota is one.
//
// Time is in microseconds since the Unix epoch. Quantities are integers from 0
// to 2^53-1, which Lua holds exactly; what could pass that is refused by
// NewLimit. There is no floating point and no drift.
package algorithm

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-go/weir/store"
)

// ErrInvalidLimit says that a limit is zero, negative, contradictory or beyond
// what can be counted exactly. The error names the field and what would do.
var ErrInvalidLimit = errors.New("invalid limit")

// ErrInvalidCost says that a request's cost is negative, or larger than what an
// algorithm can take at once.
var ErrInvalidCost = errors.New("invalid cost")

// ErrInvalidLease says that a request to a limit on what goes on at once, a
// [Concurrency], names no lease, or one in more than [MaxLease] bytes.
var ErrInvalidLease = errors.New("invalid lease")

// Never is the wait for something that cannot happen: a request for more than
// the capacity, or the renewal of a lease that is not held.
const Never = time.Duration(math.MaxInt64)

// MaxSpan is the longest time, in microseconds, that a limit can look ahead or
// back: a window, or the time in which a bucket fills. It is about 142 years.
const MaxSpan = 1 << 52

// MaxTokens is the largest capacity.
const MaxTokens = 1<<53 - 1

// An Algorithm is a limit as a user writes it down.
type Algorithm interface {
	// NewLimit checks the algorithm's fields and works out its constants.
	// The error is ErrInvalidLimit.
	NewLimit() (Limit, error)
}

// A Limit is an [Algorithm] that was found valid. It is safe for concurrent use.
type Limit interface {
	// Fragment returns the algorithm's atomic step, always the same pointer.
	Fragment() *Fragment

	// AppendArgs appends the arguments of the fragment for r to args. The
	// cost is 0 or more, and can exceed the capacity: then the check must fail.
	AppendArgs(args []store.Arg, r Request) []store.Arg

	// Verdict says what the state that the check saw at now means for r. If
	// committed, the commit ran after it.
	Verdict(now int64, committed bool, s State, r Request) Verdict
}

// A RequestChecker is a [Limit] that cannot take every request.
type RequestChecker interface {
	// CheckRequest returns what is wrong with r: ErrInvalidCost for a cost that
	// is within the capacity, and more than can be taken at once, or that the
	// limit has no meaning for; ErrInvalidMetadata; or ErrInvalidLease.
	CheckRequest(r Request) error
}

// A Lister is a [Limit] that keeps the metadata of the requests it admitted. Its
// fragment has Entries.
type Lister interface {
	// Entries returns what texts, the reply of [Program].Entries, list. The error
	// is [store.ErrScript] for what no script of this module replies.
	Entries(texts []string) ([]Entry, error)
}

// An Entry is one request that was admitted.
type Entry struct {
	Cost     int64  // tokens taken, 1 or more
	Metadata string // what the request brought along, any bytes
}

// A Request is what a caller asks of one limit.
type Request struct {
	Cost     int64  // tokens, 0 or more
	Metadata string // for a limit that keeps it

	// MaxWait is how long the caller would wait, 0 or more, for a limit whose
	// fragment Reserves: tokens that are there only so much later can be taken now.
	MaxWait time.Duration

	// Lease names what the request holds, for a limit whose fragment Leases: up to
	// MaxLease bytes. RenewOnly lets it pass only if that is held already.
	Lease     string
	RenewOnly bool
}

// MaxState is how many integers a fragment's check can report.
const MaxState = 6

// A State is what a fragment's check read, in the order of [Fragment].State.
type State [MaxState]int64

// A Verdict is one limit's answer to a [Request].
type Verdict struct {
	Allowed    bool          // the limit has room for the request
	Limit      int64         // the capacity, in tokens
	Remaining  int64         // whole tokens left after the request, or now if nothing was taken
	RetryAfter time.Duration // until the same request would pass: 0 if it passes now, Never if it cannot
	ResetAfter time.Duration // until the state is as new
	Delay      time.Duration // if allowed, until it is the request's turn: at most its MaxWait, if the fragment Reserves

	// Span is, of an algorithm that limits over several spans at once, the
	// window of the one that Limit and Remaining are of; of others it is 0.
	Span time.Duration
}

// invalid returns an ErrInvalidLimit: what is wrong, and what would be right.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidLimit}, args...)...)
}

// micros is n microseconds as a duration, Never when that is out of range.
func micros(n int64) time.Duration {
	if n > int64(Never)/1000 {
		return Never
	}
	return time.Duration(n) * time.Microsecond
}

// constArgs returns args as constants, which are sent many times.
func constArgs(args []store.Arg) []store.Arg {
	for i, a := range args {
		args[i] = store.ConstArg(a.Int())
	}
	return args
}

// wholeMicros is d in microseconds. The field is named in the error.
func wholeMicros(field string, d time.Duration) (int64, error) {
	us := d.Microseconds()
	if us < 1 || us > MaxSpan || d%time.Microsecond != 0 {
		return 0, invalid("%s is %v: it must be a whole number of microseconds, from 1µs to %v", field, d, micros(MaxSpan))
	}
	return us, nil
}

// ttl is how long a key is kept whose state matters for span more microseconds:
// rounded up to the millisecond, plus slack. A span that no clock can bring
// about, only a hand that edits keys, is cut to what a duration holds.
func ttl(span int64, slack time.Duration) time.Duration {
	return micros((min(span, 2*MaxSpan)+999)/1000*1000) + slack
}
