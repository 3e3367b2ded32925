// Package adapter has the code that the stores over Redis clients share: it checks their
// calls, makes their errors, converts replies, groups keys by slot, and limits how often
// they read a cluster's topology.
package adapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/errreply"
)

// A Base is what the stores over Redis clients have in common. Each error that it returns
// names the call once.
type Base struct {
	// Name is the store's package.
	Name string

	// Replied returns the text of the error reply that err is or wraps. It returns
	// false if err is not from a server.
	Replied func(err error) (text string, ok bool)

	// Client says which servers the client finds by itself.
	Client errreply.Client

	// Follow is called if a node cannot be reached, or reports that it no longer
	// serves. The topology that the client knows can then be out of date.
	Follow func()
}

// Replied returns the text of the error reply that err is or wraps, if E is the client's
// type of error replies. It returns false if err is not from a server.
func Replied[E error](err error) (text string, ok bool) {
	var reply E
	if !errors.As(err, &reply) {
		return "", false
	}
	return reply.Error(), true
}

// noScript reports whether err says that the server does not know a script.
func (b *Base) noScript(err error) bool { return b.says(err, errreply.NoScript) }

// ReadOnly reports whether err says that the server is not a master.
func (b *Base) ReadOnly(err error) bool { return b.says(err, errreply.ReadOnly) }

func (b *Base) says(err error, what func(text string) bool) bool {
	if err == nil {
		return false
	}
	text, ok := b.Replied(err)
	return ok && what(text)
}

// callError wraps err, which does not come from the client, and names the call.
func (b *Base) callError(call string, err error) error {
	return fmt.Errorf("%s: %s: %w", b.Name, call, err)
}

// evalError returns the error of Eval for err, which comes from the client, or from
// Append or its like if a value of the reply has another type. It returns nil if err is
// nil.
func (b *Base) evalError(ctx context.Context, script *store.Script, keys []string, err error) error {
	if err == nil {
		return nil
	}
	call := "eval " + script.Name()
	if errors.Is(err, store.ErrScript) {
		return b.callError(call, err)
	}
	return b.clientError(ctx, call, err, func(text string) error { return errreply.Eval(text, keys, b.Client) })
}

// readError returns the error of MGet or Time for err, which comes from the client.
func (b *Base) readError(ctx context.Context, call string, err error) error {
	return b.clientError(ctx, call, err, func(text string) error { return errreply.Read(text, b.Client) })
}

// clientError wraps err, which comes from the client. If it is an error reply, meaning
// returns what its text means.
func (b *Base) clientError(ctx context.Context, call string, err error, meaning func(text string) error) error {
	text, ok := b.Replied(err)
	if !ok {
		return b.unanswered(ctx, call, err)
	}
	if errreply.Stale(text) {
		b.Follow()
	}
	means := meaning(text)
	if errors.Is(means, store.ErrForeign) {
		return b.callError(call, means) // means names the key, and err does not
	}
	return fmt.Errorf("%s: %s: %w: %w", b.Name, call, means, err)
}

// unanswered wraps err, which comes from the client or the network and is no reply.
func (b *Base) unanswered(ctx context.Context, call string, err error) error {
	if !errors.Is(errreply.Ended(ctx), context.Canceled) {
		b.Follow() // a dead node can be the reason why the deadline passed
	}
	return errreply.Failed(ctx, b.Name+": "+call, err, errreply.Connection)
}
