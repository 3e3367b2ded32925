// Package failure makes errors that wrap another error without repeating its text.
package failure

import "fmt"

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
