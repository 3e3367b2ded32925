// Package adapter holds what the stores over Redis clients do alike, whatever the
// client: the errors that they return, the order in which keys are read slot by
// slot, and how often they ask for a new topology.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/errreply"
)

// Errors makes the errors of one store. They name the call, once.
type Errors struct {
	// Name is the store's package.
	Name string

	// Replied returns the text of the error reply that err is, or wraps, and
	// false when no server sent it.
	Replied func(err error) (text string, ok bool)

	// Follow is called when a node cannot be reached, or says that it no
	// longer serves: the client's picture of its servers may be out of date.
	Follow func()
}

// NoScript reports whether err says that the server does not know a script.
func (e *Errors) NoScript(err error) bool {
	if err == nil {
		return false
	}
	text, ok := e.Replied(err)
	return ok && errreply.NoScript(text)
}

// ReadOnly reports whether err says that the server is no master.
func (e *Errors) ReadOnly(err error) bool {
	if err == nil {
		return false
	}
	text, ok := e.Replied(err)
	return ok && errreply.ReadOnly(text)
}

// Call wraps err, which is not the client's, as an error of the call.
func (e *Errors) Call(call string, err error) error {
	return fmt.Errorf("%s: %s: %w", e.Name, call, err)
}

// Eval returns what the caller of script gets for err, of the client.
func (e *Errors) Eval(ctx context.Context, script *store.Script, keys []string, err error) error {
	call := "eval " + script.Name()
	text, ok := e.Replied(err)
	if !ok {
		return e.unanswered(ctx, call, err)
	}
	return e.refused(call, err, text, errreply.Eval(text, keys))
}

// Read returns what the caller of MGet or Time gets for err, of the client.
func (e *Errors) Read(ctx context.Context, call string, err error) error {
	text, ok := e.Replied(err)
	if !ok {
		return e.unanswered(ctx, call, err)
	}
	return e.refused(call, err, text, errreply.Read(text))
}

// refused wraps err, a server's error reply, as what it means.
func (e *Errors) refused(call string, err error, text string, meaning error) error {
	if errreply.Stale(text) {
		e.Follow()
	}
	if errors.Is(meaning, store.ErrForeign) {
		return e.Call(call, meaning) // it names the key, err does not
	}
	return fmt.Errorf("%s: %s: %w: %w", e.Name, call, meaning, err)
}

// unanswered wraps err, which came from the client, or from the network.
func (e *Errors) unanswered(ctx context.Context, call string, err error) error {
	done := ended(ctx)
	if !errors.Is(done, context.Canceled) {
		e.Follow() // a deadline too may have passed because of a dead node
	}
	switch {
	case done != nil && errors.Is(err, done):
		return e.Call(call, err)
	case done != nil:
		return fmt.Errorf("%s: %s: %w: %w", e.Name, call, done, err)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		// The client's own time limit, of a dial say: not the caller's.
		return fmt.Errorf("%s: %s: %w: %v", e.Name, call, store.ErrUnavailable, err) //nolint:errorlint // on purpose
	}
	return fmt.Errorf("%s: %s: %w: %w", e.Name, call, store.ErrUnavailable, err)
}

// ended returns the error of ctx, also when its deadline has passed but its
// timer, unlike the client's, has not fired yet.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
