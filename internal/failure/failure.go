// Package failure makes errors that wrap another error without repeating its text.
package failure

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
)

// An Error has a text of its own, and wraps another error.
type Error struct {
	Text string
	Is   error
}

// New returns an error that wraps the error is. Its text is the result of fmt.Sprintf.
func New(is error, format string, args ...any) *Error {
	return &Error{fmt.Sprintf(format, args...), is}
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.Is }

// NoDebt returns the part of a text that says why a limit of capacity tokens in window cannot be
// in debt, and what would be right.
func NoDebt(capacity int64, window time.Duration) string {
	if capacity > contract.MaxTokens/100 || window > 365*24*time.Hour { // its debt may have no room beside it
		return fmt.Sprintf("which cannot be in debt with the limit %d in %v: lower the limit, shorten its time, or use another algorithm", capacity, window)
	}
	return "which cannot be in debt: use another algorithm"
}
