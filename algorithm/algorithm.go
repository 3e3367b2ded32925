// Package algorithm implements the rate-limiting algorithms. Each algorithm is a
// struct. Pass one to weir.New, or use it in a weir.Rule:
//
//	algorithm.TokenBucket{Capacity: 20, Refill: algorithm.PerSecond(10)}
//	algorithm.FixedWindow{Limit: 1000, Window: time.Hour}
//	algorithm.SlidingLog{Limit: 5, Window: 15 * time.Minute}
//
// [GCRA], [TokenBucket] and [LeakyBucket] limit a rate. [FixedWindow], [SlidingCounter],
// [SlidingLog] and [SlidingBuckets] limit the number of tokens in a window, and
// [Calendar] in a day, a week, a month, a quarter or a year of a time zone.
// [MetadataWindow] is a fixed window that also keeps the metadata of each allowed
// request. [Concurrency] limits the number of requests that run at once. [Pause] closes a
// key for some time. docs/reference/algorithms.md compares them.
//
// If a limit changes, the new limit applies to the stored state from then on: in any span
// of time, no caller gets more than the new limit allows. Tokens that were consumed under
// the old limit count until that limit would have refilled them. With [GCRA] and
// [LeakyBucket], a caller that has used all tokens waits that long even if the limit was
// raised: see [contract.Limit].Carry.
//
// Times are exact to the microsecond, and quantities are integers below 2^53. Rates do
// not drift: 3 per second is exactly 259,200 per day.
//
// To write another algorithm, see package contract. The package examples/dailyquota is
// a complete example.
package algorithm

import (
	"errors"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

var (
	// ErrInvalidLimit means that a field of an algorithm is out of range, or that a
	// limit cannot be counted exactly. The text of the error names the field and says
	// what would be right.
	ErrInvalidLimit = contract.ErrInvalidLimit

	// ErrInvalidCost means that a cost is out of range, for example negative, or
	// above 1 for a [Concurrency]. A cost above the capacity is not an
	// error: the request is denied.
	ErrInvalidCost = contract.ErrInvalidCost

	// ErrInvalidLease means that the name of a lease, Request.ID, is empty or longer
	// than [MaxLease] bytes.
	ErrInvalidLease = errors.New("weir: invalid lease")

	// ErrInvalidMetadata means that metadata is longer than [MaxMetadata] bytes.
	ErrInvalidMetadata = errors.New("weir: invalid metadata")
)

const (
	// Never is the RetryAfter of a request that can never be allowed, for example
	// because its cost is above the capacity.
	Never = contract.Never

	// MaxSpan is the longest window, and the longest time in which a bucket can be
	// filled: 2^52 µs, about 142 years.
	MaxSpan = time.Duration(maxSpan) * time.Microsecond

	// MaxTokens is the largest capacity, 2^53-1.
	MaxTokens = contract.MaxTokens
)

// An Algorithm is a rate-limiting algorithm with its parameters, for example a [GCRA].
// The structs of this package implement Algorithm.
type Algorithm interface {
	// NewLimit checks the fields of the algorithm, and returns the limit. If a field
	// is not valid, the error is an ErrInvalidLimit.
	NewLimit() (*contract.Limit, error)
}

// A Divider is an [Algorithm] whose limit can be divided by changing its fields. If
// several processes share a limit without a common store, each enforces one of n equal
// shares. Without Divide, each token of a share stands for n tokens of the limit. If the
// state of an algorithm has an element for each request or lease, implement Divide
// instead.
type Divider interface {
	// Divide returns the algorithm with its limit divided by n, which is at least 1. The
	// shares of n processes together must not allow more than the limit does.
	Divide(n int64) Algorithm
}

var (
	_ Divider = Concurrency{}
	_ Divider = MetadataWindow{}
	_ Divider = SlidingLog{}
)

// An Entry is one request that a [MetadataWindow] allowed.
type Entry = contract.Entry

// consts returns the numbers as arguments of a script.
func consts(numbers ...int64) []store.Arg {
	args := make([]store.Arg, len(numbers))
	for i, n := range numbers {
		args[i] = store.ConstArg(n)
	}
	return args
}

// maxSpan is MaxSpan in microseconds. years is MaxSpan in years, for the texts of errors.
const maxSpan, years = contract.MaxSpan, contract.MaxSpan / (365 * 24 * 3600 * 1e6)

// floorDiv returns a/b, rounded down. b is positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// ceilDiv returns a/b, rounded up. b is positive.
func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }

// window returns the time in which capacity tokens are refilled at rate r. It is at least
// a nanosecond, because 0 means that there is no such time.
func window(capacity int64, r Rate) time.Duration {
	return time.Duration(max(mulDiv(capacity, r.Period.Nanoseconds(), r.Count, int64(Never)), 1))
}

// counted returns the Carry of a limit of tokens, all of which are free again after the
// time rest at the latest.
func counted(limit int64, rest time.Duration, text string) func(to *contract.Limit) contract.Carried {
	return func(to *contract.Limit) contract.Carried {
		c := contract.Carried{Exact: true, Text: text}
		if to.Capacity <= limit {
			c.Wait = rest
		}
		return c
	}
}

// refilled returns the Carry of a limit with a Meter. The caller that waits longest has
// consumed all tokens at the time 0, or has the cell last at the time at. If one token
// changes the cell in another way than before, the result is not exact, and Text is loose.
func refilled(from *contract.Limit, at int64, last contract.Cell, exact, loose string) func(to *contract.Limit) contract.Carried {
	return func(to *contract.Limit) contract.Carried {
		kind, ok := to.Kind.(*contract.MeterKind)
		if !ok {
			return contract.Carried{}
		}
		old, now := from.Kind.(*contract.MeterKind).Meter(from.Args), kind.Meter(to.Args)
		fresh := old.Advance(0, contract.Cell{})
		c := contract.Carried{Exact: true, Text: exact}
		if old.Take(fresh, 1) != now.Take(now.Advance(0, contract.Cell{}), 1) {
			c.Exact, c.Text = false, loose
		}
		for i, cell := range []contract.Cell{old.Take(fresh, from.Capacity), last} {
			at := at * int64(i)
			if cell = now.Advance(at, cell); now.Room(at, at, cell) < 1 {
				c.Wait = max(c.Wait, contract.Micros(now.Ready(at, cell, 1, 0)-at))
			}
		}
		return c
	}
}

// checkWindow checks the fields Limit and Window of the algorithm with this name, and
// returns the window in microseconds.
func checkWindow(name string, limit, most int64, window time.Duration) (int64, error) {
	if limit < 1 || limit > most {
		return 0, contract.Invalid("%s.Limit is %d: it must be from 1 to %d", name, limit, most)
	}
	return contract.WholeMicros(name+".Window", window)
}
