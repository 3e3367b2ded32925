package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnavailable means that the store could not serve the call: there is no
	// connection, the call timed out, or the server is loading, out of memory or
	// not a master. It may be unknown whether the step ran.
	ErrUnavailable = errors.New("store unavailable")

	// ErrScript means that the script failed, or that its reply holds something
	// other than integers, strings and nils.
	ErrScript = errors.New("script failed")

	// ErrForeign means that a key holds a value that no limiter wrote, or that
	// another algorithm wrote. The error names the key. Nothing was written.
	ErrForeign = errors.New("key holds a value that is not a limiter's")

	// ErrCrossSlot means that the keys of one Eval do not share a cluster slot.
	// Nothing was sent.
	ErrCrossSlot = errors.New("keys of one script must share a cluster slot")

	// ErrNoGoForm means that the store runs no Lua and the script has no Go
	// form.
	ErrNoGoForm = errors.New("script has no Go form")
)

// errNoKeys is the error of an Eval without keys.
var errNoKeys = errors.New("eval needs at least one key: it decides where the script runs")

// Foreign returns an [ErrForeign] that names key. A store uses it; a Go form
// uses [ForeignAt].
func Foreign(key string) error {
	return fmt.Errorf("%w: %q", ErrForeign, strings.Clone(key))
}

// ForeignAt returns an [ErrForeign] for key i of a step. A Go form returns it if
// the key holds a value of another algorithm, and a [Tx] returns it if the key
// holds a value of another kind. [Script.Run] adds the name of the key.
func ForeignAt(i int) error { return foreignAt(i) }

type foreignAt int

func (f foreignAt) Error() string { return fmt.Sprintf("%v: key %d of the step", ErrForeign, int(f)) }

func (f foreignAt) Unwrap() error { return ErrForeign }

// formError returns the error of a step over keys whose Go form returned err.
func formError(err error, keys []string) error {
	if at := foreignAt(0); errors.As(err, &at) {
		if at < 0 || int(at) >= len(keys) {
			return fmt.Errorf("%w: the Go form returned ForeignAt(%d): the step has %d keys", ErrScript, int(at), len(keys))
		}
		return Foreign(keys[at])
	}
	for _, known := range []error{ErrScript, ErrForeign, ErrUnavailable, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: the Go form: %w", ErrScript, err)
}
