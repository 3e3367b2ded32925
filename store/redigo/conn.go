package redigo

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The errors of a pool's connection if the connection in it has no DoContext or
// DoWithTimeout. Nothing was sent then. redigo does not export these errors.
var errNoContext, errNoTimeout = func() (ctx, timeout error) {
	var plain struct{ redis.Conn }
	_, ctx = redis.ReceiveContext(plain, context.Background())
	_, timeout = redis.ReceiveWithTimeout(plain, 0)
	return ctx, timeout
}()

// exchange sends cmd over conn, with all queued commands, and returns its reply. It
// honours ctx as far as conn can.
func exchange(ctx context.Context, conn redis.Conn, cmd *command) (any, error) {
	return within(ctx, conn,
		func(c redis.ConnWithContext) (any, error) { return c.DoContext(ctx, cmd.name, cmd.args...) },
		func(c redis.ConnWithTimeout, left time.Duration) (any, error) {
			return c.DoWithTimeout(left, cmd.name, cmd.args...)
		},
		func() (any, error) { return conn.Do(cmd.name, cmd.args...) })
}

// receive returns the next reply over conn. It honours ctx as far as conn can.
func receive(ctx context.Context, conn redis.Conn) (any, error) {
	return within(ctx, conn,
		func(c redis.ConnWithContext) (any, error) { return c.ReceiveContext(ctx) },
		func(c redis.ConnWithTimeout, left time.Duration) (any, error) { return c.ReceiveWithTimeout(left) },
		conn.Receive)
}

// within calls the function of three that honours ctx best and that conn supports.
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
			left := max(time.Until(deadline), time.Nanosecond) // without time left, conn fails, as it should
			if val, err := byTimeout(c, left); !errors.Is(err, errNoTimeout) {
				return val, err
			}
		}
	}
	return plain()
}

// drop makes conn's pool close conn, on which no reply is due: a wait for a reply that
// does not come breaks conn. redigo has no other way.
func drop(conn redis.Conn) {
	_, _ = redis.ReceiveWithTimeout(conn, time.Nanosecond)
}
