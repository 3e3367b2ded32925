package weir

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-go/weir/algorithm"
)

var (
	// ErrInvalidLimit means that a field of an algorithm is out of range.
	ErrInvalidLimit = algorithm.ErrInvalidLimit

	// ErrInvalidCost means that a cost is negative, or larger than what an
	// algorithm can consume at once.
	ErrInvalidCost = algorithm.ErrInvalidCost

	// ErrInvalidRule means that a [Policy] or a [Rule] is not valid, or that a
	// limiter has no such rule.
	ErrInvalidRule = errors.New("weir: invalid rule")

	// ErrInvalidKey means that a key has the wrong number of segments, or an empty
	// segment, or that the ID of a refund is empty.
	ErrInvalidKey = errors.New("weir: invalid key")

	// ErrInvalidMetadata means that a request's metadata is too long.
	ErrInvalidMetadata = algorithm.ErrInvalidMetadata

	// ErrInvalidLease means that a request under a concurrency limit does not name
	// its lease, or that the name is too long.
	ErrInvalidLease = algorithm.ErrInvalidLease

	// ErrUnsupported means that an algorithm of a rule cannot do what was asked.
	// It is also an [errors.ErrUnsupported].
	ErrUnsupported = fmt.Errorf("weir: %w", errors.ErrUnsupported)

	// ErrDenied means that a request was denied, by a method that returns a denial
	// as an error. The error is a [DeniedError].
	ErrDenied = errors.New("weir: denied")

	// ErrLeaseLost means that a lease was released or has expired.
	ErrLeaseLost = errors.New("weir: lease lost")
)

// A DeniedError is the error of a denied request, of a method that returns a denial
// as an error. It is an [ErrDenied].
type DeniedError struct {
	Result Result // the denial
}

// Error names the rule that denied the request.
func (e *DeniedError) Error() string { return prefix + e.text() }

// Is reports whether target is [ErrDenied].
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }

func (e *DeniedError) text() string {
	r := &e.Result
	if r.RetryAfter == Never {
		return fmt.Sprintf("denied by rule %q: its limit is %d, and the request can never pass", r.Rule, r.Limit)
	}
	return fmt.Sprintf("denied by rule %q: %d of %d tokens remain: retry after %v", r.Rule, r.Remaining, r.Limit, r.RetryAfter)
}

// prefix begins the text of every error of this package.
const prefix = "weir: "

// A failure is an error with a text of its own, which does not repeat that of the error
// that it wraps.
type failure struct {
	text string
	is   error
}

func (e *failure) Error() string { return prefix + e.text }

func (e *failure) Unwrap() error { return e.is }

// fail returns an error that wraps the error is, with the text of fmt.Sprintf.
func fail(is error, format string, args ...any) error {
	return &failure{text: fmt.Sprintf(format, args...), is: is}
}

// plain returns the text of err without the prefix.
func plain(err error) string { return strings.TrimPrefix(err.Error(), prefix) }

var (
	errNoLimiter     = errors.New("weir: the Limiter is nil or a zero value: make one with New or NewPolicy")
	errNoReservation = errors.New("weir: the Reservation is nil or a zero value: Limiter.Reserve returns one")
	errNoLease       = errors.New("weir: the Lease is nil or a zero value: Limiter.Acquire and TryAcquire return one")
	errNoWrapper     = errors.New("weir: a function given to Limiter.Wrap is nil or returned nil: it must return a Decider")
)
