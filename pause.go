package weir

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// Pause closes a key for the time d. Every process then denies its requests, with an
// exact RetryAfter. Exactly one rule must be an algorithm.Pause, whose By says what is
// closed.
//
// During a pause, a Reserve is denied, and a Wait sleeps: see [Limiter.WaitFor]. Requests
// that were allowed or reserved before it go ahead at their turn, even if the key is
// still closed.
//
// id is the random name of the pause, for [Limiter.Resume]. A pause never shortens
// another one. To extend one, or to retry after an error, call [Limiter.Decide] with the
// op Pause and an ID.
func (l *Limiter) Pause(ctx context.Context, d time.Duration, key ...string) (id string, err error) {
	r := Request{Key: KeyOf(key...), Op: Pause, ID: rand.Text(), For: d}
	if _, err := l.Decide(ctx, r, nil); err != nil {
		return "", err
	}
	return r.ID, nil
}

// Resume ends the pause with that ID, and reports whether it was running. The key stays
// closed while another pause lasts. Callers who sleep notice it only when the pause would
// have ended. Resume can be retried after an error.
func (l *Limiter) Resume(ctx context.Context, id string, key ...string) (bool, error) {
	res, err := l.Decide(ctx, Request{Key: KeyOf(key...), Op: Resume, ID: id}, nil)
	return res.Allowed, err
}

// checkPause checks a Pause, and returns how long it lasts, in microseconds.
func (b *bound) checkPause(r *Request) (int64, error) {
	if err := b.checkResume(r); err != nil {
		return 0, err
	}
	us := r.For.Microseconds()
	if r.For%time.Microsecond > 0 {
		us++
	}
	if us < 1 || r.For > algorithm.MaxSpan {
		return 0, fmt.Errorf("weir: Pause: the time is %v: it must be positive, and at most %v", r.For, algorithm.MaxSpan)
	}
	return us, nil
}

// checkResume checks what a Pause and a Resume have in common.
func (b *bound) checkResume(r *Request) error {
	switch {
	case !b.can.any(pauses):
		return fail(ErrUnsupported, "%v: no rule pauses keys: add a rule with the Algorithm algorithm.Pause{}", r.Op)
	case b.pauses == nil:
		return fail(ErrInvalidRule, "%v: %d rules pause keys: select one with Limiter.Only", r.Op, b.can.count(pauses))
	case r.ID == "":
		return fail(ErrInvalidKey, "%v: Request.ID is empty: it must name the pause", r.Op)
	case len(r.ID) > algorithm.MaxLease:
		return fail(ErrInvalidKey, "%v: Request.ID has %d bytes: the name of a pause must have at most %d", r.Op, len(r.ID), algorithm.MaxLease)
	}
	return nil
}
