package weir

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/prose"
)

var (
	// ErrInvalidLimit means that a field of an algorithm is out of range.
	ErrInvalidLimit = algorithm.ErrInvalidLimit

	// ErrInvalidCost means that a cost is negative or too high, or that the decision with
	// the same ID has another cost.
	ErrInvalidCost = algorithm.ErrInvalidCost

	// ErrInvalidRule means that a [Policy] or a [Rule] is not valid, or does not exist.
	ErrInvalidRule = errors.New("weir: invalid rule")

	// ErrInvalidKey means that a key has the wrong number of segments or an empty one, or
	// that a refund or a pause has no valid ID.
	ErrInvalidKey = errors.New("weir: invalid key")

	// ErrInvalidMetadata means that metadata has more than algorithm.MaxMetadata bytes.
	ErrInvalidMetadata = algorithm.ErrInvalidMetadata

	// ErrInvalidLease means that a lease needs an ID of 1 to algorithm.MaxLease bytes.
	ErrInvalidLease = algorithm.ErrInvalidLease

	// ErrUnsupported means that a rule does not support what a request asks: see
	// [RuleInfo]. It wraps [errors.ErrUnsupported].
	ErrUnsupported = fmt.Errorf("weir: %w", errors.ErrUnsupported)

	// ErrDenied means that a request was denied. The error is a *[DeniedError], or wraps
	// one.
	ErrDenied = errors.New("weir: denied")

	// ErrLeaseLost means that a lease was released or has expired.
	ErrLeaseLost = errors.New("weir: lease lost")
)

// prefix is the beginning of the text of every error of this package.
const prefix = "weir: "

// fail returns an error that wraps the error is, without repeating its text.
func fail(is error, format string, args ...any) error {
	return prose.Errorf(is, prefix+format, args...)
}

// plain returns the text of err without the prefix.
func plain(err error) string { return strings.TrimPrefix(err.Error(), prefix) }

func errCost(method string, cost int64) error {
	return fail(ErrInvalidCost, "%s: the cost is %d: it must be at least 1", method, cost)
}
