package weirhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
)

// ErrPaused means that a server, or an operator, asked for a pause, and that the request
// may not wait until it has ended. The error is a [weir.ErrDenied] too.
var ErrPaused error = pausedError{}

type pausedError struct{}

func (pausedError) Error() string {
	return "weirhttp: the requests are paused for longer than this one may wait"
}

// Is reports whether target is [weir.ErrDenied].
func (pausedError) Is(target error) bool { return target == weir.ErrDenied }

// DefaultMaxPause is the default of [Transport].MaxPause.
const DefaultMaxPause = 10 * time.Minute

// A Transport is an [http.RoundTripper] that waits for its turn before it sends a
// request.
//
//	client := &http.Client{Transport: &weirhttp.Transport{Limiter: lim}}
//
// It waits until the limiter allows the request, as [weir.Limiter.WaitFor] does: at most
// until the deadline of the request's context, which http.Client.Timeout sets too, and at
// most the MaxWait of the [weir.Request]. If the turn would come later, it returns a
// [weir.ErrDenied] at once, and consumes nothing. If the context ends during the wait, it
// returns the error of the context, and refunds the turn. Each redirect needs a turn of its
// own. If the server denies the request, the Transport returns the response, and does not
// send the request again.
//
// A server can ask for a pause. Then no request with the same key is sent before the
// pause ends: requests wait, and then take their turns, at the pace of Limiter. A request
// that waits for its turn when the pause begins refunds the turn, and takes another one
// after the pause. A server asks for a pause in one of these ways:
//   - with Retry-After, in seconds, as a date or as a Unix time, in a response with a status
//     from 400. Of several such fields, the longest time counts. Without one, Retry-After-Ms
//     and X-Ms-Retry-After-Ms count.
//   - with fields of its own, which the field RetryAfter reads.
//   - with X-RateLimit-Remaining: 0 and X-RateLimit-Reset in a response of any status. The
//     same holds for RateLimit-Remaining and X-Rate-Limit-Remaining. A reset is a date, a
//     Unix time in seconds from 10^9 or in milliseconds from 10^12, or else a number of
//     seconds.
//   - with the field RateLimit of draft-ietf-httpapi-ratelimit-headers, if nothing remains:
//     limit=9, remaining=0, reset=30 of draft 07, or an item with r=0 and t, or a=0 and w,
//     of later drafts.
//
// The first way takes precedence over all others, and the second over the last two, of
// which the longest time counts. Malformed fields, and times that have passed, change
// nothing.
//
// Each Transport has its own pauses, so clients of one process should share a Transport.
// Processes share their pauses through the field Pauses. If the request may not wait
// longer than the pause lasts, the error is [ErrPaused], at once.
//
// Set Limiter or Leases. With neither, each request fails. A Transport is safe for
// concurrent use. Do not change its fields or copy it after the first request.
type Transport struct {
	// Limiter paces the requests. The algorithms of its rules must support MaxWait, for
	// example algorithm.LeakyBucket. If Limiter is nil, requests are not paced.
	Limiter *weir.Limiter

	// Leases limits how many requests run at once, with an algorithm.Concurrency as one
	// of its rules. nil means no such limit. A request acquires a lease before it takes
	// its turn, and releases it when the body of the response has been read to its end or
	// closed, when the request fails, or when its context ends. Until then, the lease is
	// renewed. So a body that is neither read nor closed holds its lease, unless the
	// request has a deadline.
	Leases *weir.Limiter

	// Request makes the request to Limiter and Leases. nil means that the key is the host
	// of the URL, in lower case and without the port. Only the fields Key, Cost, Costs,
	// MaxWait and ID are used, and only Key for Leases. A MaxWait of 0 means that only
	// the context ends the wait. If Request sets an ID, the turn is not refunded when the
	// context ends, because another request with this ID can use it. After ErrUnlimited,
	// the request is sent at once.
	Request RequestFunc

	// Base sends the requests. If it is nil, http.DefaultTransport is used.
	Base http.RoundTripper

	// MaxPause is the longest pause that a server can ask for. A longer one is cut. 0
	// means DefaultMaxPause, and a negative MaxPause ignores pauses.
	MaxPause time.Duration

	// RetryAfter returns how long a response asks to pause in fields of its service's
	// own, for example in a duration like 6m0s. nil, or a result of 0 or less, leaves it
	// to the fields that a Transport knows. It is not called if the response has a valid
	// Retry-After and a status from 400. It must not read the body.
	RetryAfter func(*http.Response) time.Duration

	// Pauses shares the pauses with other processes, by an algorithm.Pause as one of its
	// rules. nil means that they are not shared. A pause that a server asks for then
	// closes the key in Pauses too, under the ID PauseID, and every Transport over the
	// same store waits for its end. So an operator can pause a key there, for any time.
	// Requests that are under way are not stopped.
	//
	// If Pauses is the Limiter, most requests see the pauses in the decision that they
	// make anyway. Otherwise each request asks Pauses with a Peek, which is one more
	// round trip, and asks again after a wait.
	//
	// During an outage of the store, a Transport knows its own pauses only. If Pauses is
	// not the Limiter, wrap it in an outage.Breaker too: otherwise, requests wait for the
	// store.
	Pauses *weir.Limiter

	// Jitter lets a request that waits for the end of a pause wait longer, at random, by
	// at most a tenth of that time, so that requests of several processes are not sent at
	// once. A request is never sent earlier than the server asked, and does not wait
	// longer than it may.
	Jitter bool

	pauses pauses
}

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, sent := cmp.Or(t.Base, http.DefaultTransport), false
	defer func() {
		if !sent && r.Body != nil { // even after a panic
			_ = r.Body.Close()
		}
	}()
	req, err := t.request(r)
	if errors.Is(err, ErrUnlimited) {
		sent = true
		return base.RoundTrip(r)
	}
	if err != nil {
		return nil, err
	}
	ctx, w := r.Context(), guard.NewBudget(req.MaxWait)
	if t.Jitter {
		w.Jitter = rand.Float64()
	}
	held, err := t.lease(ctx, &req, &w)
	if err != nil {
		return nil, err
	}
	keep := false
	defer func() {
		if !keep { // even after a panic
			held.release()
		}
	}()
	if err := t.turn(ctx, &req, &w); err != nil {
		return nil, err
	}
	sent = true
	res, err := base.RoundTrip(r)
	if err != nil || res == nil {
		return res, err
	}
	if pause := min(t.asked(res), cmp.Or(t.MaxPause, DefaultMaxPause)); pause > 0 {
		t.pauses.begin(req.Key, pause)
		t.share(ctx, req.Key, pause)
	}
	if held != nil && res.Body != nil && res.Body != http.NoBody {
		keep = true
		res.Body = held.body(res.Body)
	}
	return res, nil
}

// CloseIdleConnections closes the idle connections of Base, if it has such a method.
func (t *Transport) CloseIdleConnections() {
	if c, ok := cmp.Or(t.Base, http.DefaultTransport).(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// request returns the request to the limiters.
func (t *Transport) request(r *http.Request) (weir.Request, error) {
	switch {
	case t.Limiter == nil && t.Leases == nil:
		return weir.Request{}, errors.New("weirhttp: Transport.Limiter and Transport.Leases are nil: set Limiter to a *weir.Limiter, to pace requests, or Leases, to limit how many run at once")
	case t.Request == nil:
		host := ""
		if r.URL != nil {
			host = strings.ToLower(strings.TrimSuffix(r.URL.Hostname(), "."))
		}
		if host == "" {
			return weir.Request{}, source.Missing("the URL has no host")
		}
		return weir.Request{Key: weir.KeyOf(host)}, nil
	}
	req, err := t.Request(r)
	if err == nil && req.Op != weir.Consume {
		err = fmt.Errorf("weirhttp: Request.Op is %v: it must be Consume", req.Op)
	}
	return req, err
}

// lease waits until no pause is left, and acquires a lease. It returns nil if Leases is
// nil.
func (t *Transport) lease(ctx context.Context, req *weir.Request, w *guard.Budget) (*lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.MaxWait < 0 {
		return nil, fmt.Errorf("weirhttp: Request.MaxWait is %v: it must be 0 or more", req.MaxWait)
	}
	if err := t.checkPauses(req.Key); err != nil {
		return nil, err
	}
	shared, err := time.Duration(0), error(nil)
	if t.Pauses != t.Limiter { // otherwise, the turn shows whether there is a pause
		shared, err = t.shared(ctx, req.Key)
	}
	if err == nil {
		err = t.pause(ctx, req.Key, w, shared, nil)
	}
	if err != nil || t.Leases == nil {
		return nil, err
	}
	return acquire(ctx, t.Leases, req.Key, w)
}

// turn waits until the request can be sent.
func (t *Transport) turn(ctx context.Context, req *weir.Request, w *guard.Budget) error {
	// A pause may have begun while the request waited for its lease.
	late := t.Leases != nil && t.Pauses != t.Limiter
	for {
		var turn *weir.Reservation
		var shared time.Duration
		var err error
		if t.Limiter != nil {
			r := *req
			r.MaxWait, r.Metadata = w.Left(), ""
			turn, err = t.Limiter.Reserve(ctx, r)
			if left := pausedFor(err); left > 0 {
				if err = t.pause(ctx, req.Key, w, left, err); err != nil {
					return err
				}
				continue
			}
			if err != nil {
				return source.Explain(t.Limiter, &r, err)
			}
		}
		if late {
			shared, err = t.shared(ctx, req.Key)
		}
		if err == nil && shared <= 0 && turn != nil && turn.Delay > 0 {
			if err = turn.Wait(ctx); err != nil {
				return err
			}
			shared, err = t.shared(ctx, req.Key)
		}
		if err != nil {
			if turn != nil && req.ID == "" { // otherwise another request can use the turn
				err = errors.Join(err, guard.Undo(ctx, turn.Cancel))
			}
			return err
		}
		if shared <= 0 && t.pauses.left(req.Key) <= 0 {
			return nil
		}
		// A pause has begun during the wait. After it, the request needs another turn:
		// otherwise all requests that wait would be sent at once. A repeated request has
		// no turn of its own.
		if turn != nil && (req.ID == "" || !turn.Replayed) {
			err = guard.Undo(ctx, turn.Cancel)
		}
		if err := errors.Join(err, t.pause(ctx, req.Key, w, shared, nil)); err != nil {
			return err
		}
		late = false
	}
}

// pause waits until the server's pause ends. shared is the rest of the pause that other
// processes share, and denied the error of the turn that a pause has denied, or nil.
func (t *Transport) pause(ctx context.Context, key weir.Key, w *guard.Budget, shared time.Duration, denied error) error {
	for {
		left := max(t.pauses.left(key), shared)
		if left <= 0 {
			return nil
		}
		slept, err := w.Pause(ctx, left)
		switch {
		case err != nil:
			return err
		case !slept && denied != nil:
			return fmt.Errorf("%w: %w", ErrPaused, denied)
		case !slept:
			return fmt.Errorf("%w, which ends in %v: the request may not wait so long", ErrPaused, left)
		}
		shared = 0
		if t.Pauses != t.Limiter { // otherwise, the next turn shows whether it lasts longer now
			if shared, err = t.shared(ctx, key); err != nil {
				return err
			}
		}
	}
}
