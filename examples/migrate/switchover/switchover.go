// Package switchover changes from one limiter to another without a gap.
package switchover

import "context"

// Allow reports whether a limiter allows a request of key now.
type Allow func(ctx context.Context, key string) (bool, error)

// Shadow asks both limiters. The old one decides, and differ gets each request that the
// new one would have decided otherwise, or could not decide.
func Shadow(old, next Allow, differ func(key string, allowed bool, err error)) Allow {
	return func(ctx context.Context, key string) (bool, error) {
		was, err := old(ctx, key)
		if is, nextErr := next(ctx, key); err == nil && (is != was || nextErr != nil) {
			differ(key, is, nextErr)
		}
		return was, err
	}
}

// Both asks both limiters, and a request is allowed only if both allow it.
func Both(old, next Allow) Allow {
	return func(ctx context.Context, key string) (bool, error) {
		was, err := old(ctx, key)
		if !was || err != nil {
			return false, err
		}
		return next(ctx, key)
	}
}
