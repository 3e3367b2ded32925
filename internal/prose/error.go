package prose

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

// Errorf returns an error that wraps the error is. Its text is the result of fmt.Sprintf.
func Errorf(is error, format string, args ...any) *Error {
	return &Error{fmt.Sprintf(format, args...), is}
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.Is }

// NoDebt returns the part of a text that says why a limit of capacity tokens in window cannot be
// in debt, and what would be right.
func NoDebt(capacity int64, window time.Duration) string {
	if capacity > contract.MaxTokens/100 || window > 365*24*time.Hour { // there may be no room for its debt
		limit, advice := Limit(capacity, window)
		return "which cannot be in debt with the " + limit + ": " + advice
	}
	return "which cannot be in debt: use another algorithm"
}

// Limit returns a limit of capacity tokens in window for a text, and what to do if it is too high.
func Limit(capacity int64, window time.Duration) (limit, advice string) {
	if window == 0 {
		return fmt.Sprintf("limit %d", capacity), "lower the limit, or use another algorithm"
	}
	return fmt.Sprintf("limit %d in %v", capacity, window), "lower the limit, shorten its time, or use another algorithm"
}
