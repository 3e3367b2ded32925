package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnavailable means that the store could not serve the call. For example,
	// there is no connection, the call timed out, or the server is loading, out of
	// memory or not a master. The script may or may not have run.
	ErrUnavailable = errors.New("store unavailable")

	// ErrMisconfigured means that calls fail until somebody acts, for example corrects a
	// password, a certificate or the rights of the user, passes another kind of client,
	// or makes room on a full server. The error of a store is an ErrUnavailable too,
	// because the decision is not known.
	ErrMisconfigured = errors.New("store misconfigured")

	// ErrScript means that the script failed, or that its reply holds something
	// other than integers, strings and nils.
	ErrScript = errors.New("script failed")

	// ErrForeign means that a key holds a foreign value: no limiter wrote it, or
	// another algorithm did. The error names the key. Nothing was written.
	ErrForeign = errors.New("key holds a value that is not a limiter's")

	// ErrCrossSlot means that the keys of one Eval do not have the same cluster
	// slot. Nothing was sent.
	ErrCrossSlot = errors.New("keys of one script must share a cluster slot")

	// ErrNoGoForm means that the store runs no Lua, and the script has no Go form.
	ErrNoGoForm = errors.New("script has no Go form")
)

// errNoKeys is the error of an Eval without keys.
var errNoKeys = errors.New("eval has no keys: it needs at least one, which decides where the script runs")

// Foreign returns an [ErrForeign] that names key. It is for stores. A Go form uses
// [ForeignAt].
func Foreign(key string) error {
	return fmt.Errorf("%w: %q", ErrForeign, strings.Clone(key))
}

// ForeignAt returns an [ErrForeign] for key i of a script. A Go form returns it if the
// key holds a value of another algorithm. A [Tx] returns it if the key holds a value of
// another kind. [Script.Run] adds the name of the key.
func ForeignAt(i int) error { return foreignAt(i) }

type foreignAt int

func (f foreignAt) Error() string { return fmt.Sprintf("%v: key %d of the script", ErrForeign, int(f)) }

func (f foreignAt) Unwrap() error { return ErrForeign }

// formError returns the error of a script over keys, for the error err of its Go form.
func formError(err error, keys []string) error {
	if at := foreignAt(0); errors.As(err, &at) {
		if at < 0 || int(at) >= len(keys) {
			return fmt.Errorf("%w: the Go form returned ForeignAt(%d): the script has %d keys, counted from 0", ErrScript, int(at), len(keys))
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
