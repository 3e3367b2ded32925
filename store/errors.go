package store

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrUnavailable says that the store could not be asked: no connection, a
	// timeout, a server that is loading, out of memory or not the master.
	// Whether the step ran may be unknown.
	ErrUnavailable = errors.New("store unavailable")

	// ErrScript says that the script failed on the server, or replied with what
	// a script must not.
	ErrScript = errors.New("script failed")

	// ErrForeign says that a key holds a value of someone else's. The error
	// names the key. Nothing was written.
	ErrForeign = errors.New("key holds a value that is not a limiter's")

	// ErrCrossSlot says that the keys of one Eval do not share a cluster slot.
	// Nothing was sent.
	ErrCrossSlot = errors.New("keys of one script must share a cluster slot")

	// ErrNoGoForm says that a store that runs no Lua was given a script with no
	// Go form.
	ErrNoGoForm = errors.New("script has no Go form")
)

// errNoKeys is for a call of Eval without keys, which no shard could be found for.
var errNoKeys = errors.New("eval needs at least one key: it decides where the script runs")

// Foreign returns an [ErrForeign] that names key.
func Foreign(key string) error {
	return fmt.Errorf("%w: %q", ErrForeign, strings.Clone(key))
}
