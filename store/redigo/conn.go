package redigo

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

// What a pool's connection returns, before it sends anything, when the one that
// it manages has no DoContext or DoWithTimeout: redigo does not export it.
var errNoContext, errNoTimeout = func() (ctx, timeout error) {
	var plain struct{ redis.Conn }
	_, ctx = redis.ReceiveContext(plain, context.Background())
	_, timeout = redis.ReceiveWithTimeout(plain, 0)
	return ctx, timeout
}()

// exchange sends cmd over conn, with all that was queued, and returns its reply.
// It honours ctx as far as conn can.
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

// within calls the one of three that honours ctx best among those that conn has.
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
			left := max(time.Until(deadline), time.Nanosecond) // no time left breaks conn, as it should
			if val, err := byTimeout(c, left); !errors.Is(err, errNoTimeout) {
				return val, err
			}
		}
	}
	return plain()
}

// drop makes conn, on which no reply is due, one that its pool closes: to wait for
// a reply in vain breaks it, and redigo offers no other way.
func drop(conn redis.Conn) {
	_, _ = redis.ReceiveWithTimeout(conn, time.Nanosecond)
}
