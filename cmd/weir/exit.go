package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/weir-go/weir/store"
)

// The exit codes.
const (
	exitOK          = 0 // yes: done, allowed, valid, equal, passed
	exitNo          = 1 // no: denied, not valid, different, a failed check, nothing to do
	exitUsage       = 2 // the command cannot be run as it was given
	exitUnavailable = 3 // the store does not answer, or cannot be used

	exitInterrupted = 130 // Ctrl-C, as shells have it
)

// errNo ends a command with exitNo. What the command found is printed already.
var errNo = errors.New("no")

// A usageError says what is wrong with a command line, a URL or a file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// finish prints err, and returns its exit code.
func (t *tool) finish(command string, err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errNo):
		return exitNo
	case errors.Is(err, context.Canceled):
		t.print(t.err, "weir: interrupted\n")
		return exitInterrupted
	}
	t.print(t.err, fmt.Sprintf("%s: %s\n", strings.TrimSpace("weir "+command), t.secrets.remove(err.Error())))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitUnavailable
}

// unavailable reports whether err says that the store did not answer.
func unavailable(err error) bool {
	var network net.Error
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network)
}
