package goredis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/errreply"
)

// replied returns the text of the error reply that err is, or wraps, and false
// when no server sent it.
func replied(err error) (text string, ok bool) {
	if err == nil {
		return "", false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	return reply.Error(), true
}

// evalError returns what the caller of script gets for err.
func (s *Store) evalError(ctx context.Context, script *store.Script, keys []string, err error) error {
	call := "eval " + script.Name()
	text, ok := replied(err)
	if !ok {
		return s.unanswered(ctx, call, err)
	}
	return s.refused(call, err, text, errreply.Eval(text, keys))
}

// readError returns what the caller of MGet or Time gets for err.
func (s *Store) readError(ctx context.Context, call string, err error) error {
	text, ok := replied(err)
	if !ok {
		return s.unanswered(ctx, call, err)
	}
	return s.refused(call, err, text, errreply.Read(text))
}

// refused wraps err, a server's error reply, as what it means.
func (s *Store) refused(call string, err error, text string, meaning error) error {
	if errreply.Stale(text) {
		s.follow()
	}
	if errors.Is(meaning, store.ErrForeign) {
		return fmt.Errorf("goredis: %s: %w", call, meaning) // it names the key, err does not
	}
	return fmt.Errorf("goredis: %s: %w: %w", call, meaning, err)
}

// unanswered wraps err, which came from the client, or from the network.
func (s *Store) unanswered(ctx context.Context, call string, err error) error {
	done := ended(ctx)
	if !errors.Is(done, context.Canceled) {
		s.follow() // a deadline too may have passed because of a dead node
	}
	switch {
	case done != nil && errors.Is(err, done):
		return fmt.Errorf("goredis: %s: %w", call, err)
	case done != nil:
		return fmt.Errorf("goredis: %s: %w: %w", call, done, err)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		// The client's own time limit, of a dial say: not the caller's.
		return fmt.Errorf("goredis: %s: %w: %v", call, store.ErrUnavailable, err) //nolint:errorlint // on purpose
	}
	return fmt.Errorf("goredis: %s: %w: %w", call, store.ErrUnavailable, err)
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
