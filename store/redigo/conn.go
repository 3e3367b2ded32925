package redigo

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

// errNoContext and errNoTimeout are errors of a pool's connection: the connection in it
// has no DoContext or no DoWithTimeout, and nothing was sent. redigo does not export
// them.
var errNoContext, errNoTimeout = func() (ctx, timeout error) {
	var plain struct{ redis.Conn }
	_, ctx = redis.ReceiveContext(plain, context.Background())
	_, timeout = redis.ReceiveWithTimeout(plain, 0)
	return ctx, timeout
}()

// exchange sends all queued commands and cmd on conn, and returns the reply to cmd. It
// ends with ctx, as far as conn supports that.
func exchange(ctx context.Context, conn redis.Conn, cmd *command) (any, error) {
	return within(ctx, conn,
		func(c redis.ConnWithContext) (any, error) { return c.DoContext(ctx, cmd.name, cmd.args...) },
		func(c redis.ConnWithTimeout, left time.Duration) (any, error) {
			return c.DoWithTimeout(left, cmd.name, cmd.args...)
		},
		func() (any, error) { return conn.Do(cmd.name, cmd.args...) })
}

// receive returns the next reply on conn. It ends with ctx, as far as conn supports that.
func receive(ctx context.Context, conn redis.Conn) (any, error) {
	return within(ctx, conn,
		func(c redis.ConnWithContext) (any, error) { return c.ReceiveContext(ctx) },
		func(c redis.ConnWithTimeout, left time.Duration) (any, error) { return c.ReceiveWithTimeout(left) },
		conn.Receive)
}

// within calls one of three functions: byContext if conn supports contexts, otherwise
// byTimeout if ctx has a deadline and conn supports timeouts, and otherwise plain.
func within(ctx context.Context, conn redis.Conn,
	byContext func(redis.ConnWithContext) (any, error),
	byTimeout func(redis.ConnWithTimeout, time.Duration) (any, error),
	plain func() (any, error),
) (any, error) {
	if ctx.Done() == nil {
		return plain()
	}
	if c, ok := conn.(redis.ConnWithContext); ok {
		if val, err := byContext(c); !errors.Is(err, errNoContext) {
			return val, err
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		if c, ok := conn.(redis.ConnWithTimeout); ok {
			left := max(time.Until(deadline), time.Nanosecond) // if no time is left, conn must fail
			if val, err := byTimeout(c, left); !errors.Is(err, errNoTimeout) {
				return val, err
			}
		}
	}
	return plain()
}

// drop makes the pool of conn close conn. conn must await no reply. drop waits for a
// reply, and the timeout of that wait breaks conn. redigo has no other way to do this.
func drop(conn redis.Conn) {
	_, _ = redis.ReceiveWithTimeout(conn, time.Nanosecond)
}
