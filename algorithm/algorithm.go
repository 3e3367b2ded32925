// Package algorithm holds the rate-limiting algorithms:
//
//	algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}
//	algorithm.FixedWindow{Limit: 1000, Window: time.Hour}
//	algorithm.SlidingLog{Limit: 5, Window: 15 * time.Minute}
//
// [GCRA], [TokenBucket] and [LeakyBucket] limit a rate. [FixedWindow],
// [SlidingCounter], [SlidingLog] and [SlidingBuckets] limit a count in a window.
// [MetadataWindow] is a fixed window that also keeps who used it. [Concurrency]
// limits how many requests run at once. docs/algorithms.md helps to choose.
//
// All times are exact to the microsecond, and all quantities are integers below 2^53.
// There is no floating point and no drift: 3 per second is 259,200 per day.
//
// To write an algorithm, see package contract. examples/dailyquota is a complete one.
package algorithm

import (
	"errors"
	"math/bits"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

var (
	// ErrInvalidLimit is the error of a limit that is zero, negative,
	// contradictory, or beyond what can be counted exactly. Its text names the field
	// and says what would be right.
	ErrInvalidLimit = contract.ErrInvalidLimit

	// ErrInvalidCost is the error of a cost that is negative, or larger than what an
	// algorithm can consume at once.
	ErrInvalidCost = contract.ErrInvalidCost

	// ErrInvalidLease is the error of a request to a [Concurrency] whose ID, the
	// name of the lease, is empty or longer than [MaxLease] bytes.
	ErrInvalidLease = errors.New("weir: invalid lease")

	// ErrInvalidMetadata is the error of metadata longer than [MaxMetadata] bytes.
	ErrInvalidMetadata = errors.New("weir: invalid metadata")
)

const (
	// Never is the wait for something that cannot happen: a request for more than
	// the capacity, or the renewal of a lease that is not held.
	Never = contract.Never

	// MaxSpan is the longest time, in microseconds, that a limit can look ahead or
	// back: a window, or the time in which a bucket fills. It is about 142 years.
	MaxSpan = contract.MaxSpan

	// MaxTokens is the largest capacity, 2^53-1.
	MaxTokens = contract.MaxTokens
)

// An Algorithm is a limit as a user writes it.
type Algorithm interface {
	// NewLimit checks the algorithm's fields and works out its constants. The error
	// is ErrInvalidLimit.
	NewLimit() (*contract.Limit, error)
}

// An Entry is one request that a [MetadataWindow] allowed.
type Entry = contract.Entry

// consts returns constants as arguments.
func consts(numbers ...int64) []store.Arg {
	args := make([]store.Arg, len(numbers))
	for i, n := range numbers {
		args[i] = store.ConstArg(n)
	}
	return args
}

// years is MaxSpan in years, for errors.
const years = int64(MaxSpan) / (365 * 24 * 3600 * 1e6)

// floorDiv is a/b rounded down; b is positive.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// ceilDiv is a/b rounded up; b is positive.
func ceilDiv(a, b int64) int64 { return -floorDiv(-a, b) }

// window is the time in which capacity tokens come back at rate.
func window(capacity int64, r Rate) time.Duration {
	hi, lo := bits.Mul64(uint64(capacity), uint64(r.Period.Nanoseconds()))
	if hi >= uint64(r.Count) {
		return Never
	}
	whole, _ := bits.Div64(hi, lo, uint64(r.Count))
	return time.Duration(min(whole, uint64(Never)))
}
