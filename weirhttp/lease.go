package weirhttp

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/store"
)

// A lease is a weir.Lease that is renewed until release is called or the request's
// context ends.
type lease struct {
	stop func() bool // stops waiting for the end of the context
	free func()      // releases the lease, once
}

// acquire acquires a lease.
func acquire(ctx context.Context, leases *weir.Limiter, key weir.Key, w *guard.Budget) (*lease, error) {
	held, err := acquireOrWait(ctx, leases, weir.Request{Key: key}, w)
	if err != nil {
		return nil, err
	}
	free := sync.OnceFunc(func() {
		_ = guard.Undo(context.Background(), held.Release) // after an error, the lease expires
	})
	go held.KeepAlive(ctx, nil)
	return &lease{context.AfterFunc(ctx, free), free}, nil
}

func acquireOrWait(ctx context.Context, leases *weir.Limiter, r weir.Request, w *guard.Budget) (*weir.Lease, error) {
	if w.Endless {
		return leases.Acquire(ctx, r)
	}
	held, err := leases.TryAcquire(ctx, r)
	var denied *weir.DeniedError
	if !errors.As(err, &denied) {
		return held, err
	}
	short, cancel := context.WithDeadline(ctx, w.Until)
	defer cancel()
	if short.Err() != nil {
		return nil, err
	}
	held, err = leases.Acquire(short, r)
	again := errors.As(err, &denied)
	late := ctx.Err() == nil && !time.Now().Before(w.Until)
	if late && (again || guard.Contextual(err) && !errors.Is(err, store.ErrUnavailable)) {
		return nil, denied // not the error of short, which the caller does not know
	}
	return held, err
}

// release releases the lease. A nil lease is not held.
func (l *lease) release() {
	if l != nil {
		l.stop()
		l.free()
	}
}

// body returns b, and releases the lease at its end.
func (l *lease) body(b io.ReadCloser) io.ReadCloser {
	held := &heldBody{b, l}
	if w, ok := b.(io.Writer); ok { // of a response with status 101
		return &writableBody{held, w}
	}
	return held
}

// A heldBody is a body that releases a lease when it is closed, read to its end, or
// fails.
type heldBody struct {
	io.ReadCloser

	lease *lease
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.lease.release()
	}
	return n, err
}

func (b *heldBody) Close() error {
	defer b.lease.release()
	return b.ReadCloser.Close()
}

type writableBody struct {
	*heldBody
	io.Writer
}
