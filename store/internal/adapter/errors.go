// Package adapter has the code that the stores over Redis clients share: it checks their
// calls, makes their errors, converts replies, groups keys by slot, and limits how often they
// read a cluster's topology.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/errreply"
)

// Errors makes the errors of one store. Each error names the call once.
type Errors struct {
	// Name is the store's package.
	Name string

	// Replied returns the text of the error reply that err is or wraps. It returns
	// false if err is not from a server.
	Replied func(err error) (text string, ok bool)

	// Follow is called if a node cannot be reached, or reports that it no longer
	// serves. The topology that the client knows can then be out of date.
	Follow func()
}

// Replied returns the text of the error reply that err is or wraps, if E is the client's type of
// error replies. It returns false if err is not from a server.
func Replied[E error](err error) (text string, ok bool) {
	var reply E
	if !errors.As(err, &reply) {
		return "", false
	}
	return reply.Error(), true
}

// NoScript reports whether err says that the server does not know a script.
func (e *Errors) NoScript(err error) bool {
	if err == nil {
		return false
	}
	text, ok := e.Replied(err)
	return ok && errreply.NoScript(text)
}

// ReadOnly reports whether err says that the server is not a master.
func (e *Errors) ReadOnly(err error) bool {
	if err == nil {
		return false
	}
	text, ok := e.Replied(err)
	return ok && errreply.ReadOnly(text)
}

// Call wraps err, which does not come from the client, and names the call.
func (e *Errors) Call(call string, err error) error {
	return fmt.Errorf("%s: %s: %w", e.Name, call, err)
}

// CheckEval returns the error of a call that must not be sent, because of its keys or because
// ctx is done.
func (e *Errors) CheckEval(ctx context.Context, script *store.Script, keys []string) error {
	err := store.CheckKeys(keys)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return e.Call("eval "+script.Name(), err)
	}
	return nil
}

// Eval returns the error of Eval for err, which comes from the client.
func (e *Errors) Eval(ctx context.Context, script *store.Script, keys []string, err error) error {
	call := "eval " + script.Name()
	text, ok := e.Replied(err)
	if !ok {
		return e.unanswered(ctx, call, err)
	}
	return e.refused(call, err, text, errreply.Eval(text, keys))
}

// Read returns the error of MGet or Time for err, which comes from the client.
func (e *Errors) Read(ctx context.Context, call string, err error) error {
	text, ok := e.Replied(err)
	if !ok {
		return e.unanswered(ctx, call, err)
	}
	return e.refused(call, err, text, errreply.Read(text))
}

// refused wraps err, which is an error reply with this text and meaning.
func (e *Errors) refused(call string, err error, text string, meaning error) error {
	if errreply.Stale(text) {
		e.Follow()
	}
	if errors.Is(meaning, store.ErrForeign) {
		return e.Call(call, meaning) // meaning names the key, and err does not
	}
	return fmt.Errorf("%s: %s: %w: %w", e.Name, call, meaning, err)
}

// unanswered wraps err, which comes from the client or the network and is no reply.
func (e *Errors) unanswered(ctx context.Context, call string, err error) error {
	done := ended(ctx)
	if !errors.Is(done, context.Canceled) {
		e.Follow() // a dead node can be the reason why the deadline passed
	}
	switch {
	case done != nil && errors.Is(err, done):
		return e.Call(call, err)
	case done != nil:
		return fmt.Errorf("%s: %s: %w: %w", e.Name, call, done, err)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		// The client's timeout has passed, for example of a dial, not the caller's deadline.
		return fmt.Errorf("%s: %s: %w: %v", e.Name, call, store.ErrUnavailable, err) //nolint:errorlint // on purpose
	}
	return fmt.Errorf("%s: %s: %w: %w", e.Name, call, store.ErrUnavailable, err)
}

// ended returns the error of ctx. If the deadline has passed, it returns DeadlineExceeded,
// even if ctx has no error yet: the timer of the client can fire before the timer of ctx.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
