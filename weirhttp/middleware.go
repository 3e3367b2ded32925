package weirhttp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/sleep"
	"github.com/weir-go/weir/internal/undo"
	"github.com/weir-go/weir/store"
)

// statusClientClosed is the status for a request that its client has cancelled, as nginx
// logs it.
const statusClientClosed = 499

type middleware struct {
	decider weir.Decider
	request RequestFunc
	opts    Options
}

// A scratch holds the buffers of one decision, which are reused.
type scratch struct {
	each [weir.MaxRules]weir.Result
	text []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) free() {
	clear(s.each[:])
	scratches.Put(s)
}

// rules returns the results of the rules. A wrapper may leave them empty: the only result is
// then res.
func (s *scratch) rules(res *weir.Result) []weir.Result {
	n := 0
	for n < len(s.each) && s.each[n].Rule != "" {
		n++
	}
	if n == 0 && res.Rule != "" {
		s.each[0], n = *res, 1
	}
	return s.each[:n]
}

// leased reports whether a rule is an algorithm.Concurrency, which has no window.
func leased(each []weir.Result) bool {
	return slices.ContainsFunc(each, func(res weir.Result) bool { return res.Window == 0 })
}

// wrap is the middleware.
func (m *middleware) wrap(next http.Handler) http.Handler {
	if next == nil {
		next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m.fail(w, r, errors.New("weirhttp: the handler given to the middleware is nil: pass the handler to limit"))
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	d, req, err := m.ask(r)
	switch {
	case err == nil:
	case errors.Is(err, ErrUnlimited):
		next.ServeHTTP(w, r)
		return
	default:
		m.fail(w, r, err)
		return
	}
	own := req.ID == "" // nobody else can use the ID
	if own && req.MaxWait > 0 {
		req.ID = rand.Text() // for the refund
	}
	s := scratches.Get().(*scratch)
	res, err := m.decide(r.Context(), d, req, s.each[:])
	leased := err == nil && req.ID != "" && req.MaxWait == 0 && leased(s.rules(&res))
	pass := m.answer(w, r, &req, &res, err, s)
	s.free()
	// Tokens with an ID of the RequestFunc can be those of another request, which uses them.
	holds := req.ID != "" && (own || req.MaxWait == 0)
	switch {
	case err != nil && cancelled(r) && holds: // the tokens may be reserved, or the lease held
		m.undo(r, d, req)
	case guard.Contextual(err) && holds: // the same, but the client still waits
		go m.undo(r.Clone(r.Context()), d, req) // a clone, because the handler can change r
	case err == nil && res.Degraded != nil && !res.Allowed && holds && (leased || own): // only the reply may be lost
		go undo.Request(r.Context(), d, req)
	case leased && res.Allowed:
		defer m.undo(r, d, req)
	}
	if !pass {
		return
	}
	if err := sleep.For(r.Context(), res.Delay); err != nil {
		if holds {
			m.undo(r, d, req)
		}
		m.late(w, r, err)
		return
	}
	next.ServeHTTP(w, r)
}

// ask returns who decides, and the request to decide.
func (m *middleware) ask(r *http.Request) (weir.Decider, weir.Request, error) {
	req, err := m.request(r)
	if err != nil {
		return nil, req, err
	}
	if req.Op != weir.Consume {
		return nil, req, fmt.Errorf("weirhttp: Request.Op is %v: it must be Consume", req.Op)
	}
	if req.MaxWait > 0 {
		if deadline, ok := r.Context().Deadline(); ok {
			// Not 0, which has another meaning.
			req.MaxWait = max(min(req.MaxWait, time.Until(deadline)), time.Microsecond)
		}
	}
	if m.opts.Plan != nil {
		if d, err := m.opts.Plan(r); d != nil || err != nil {
			return d, req, err
		}
	}
	return m.decider, req, nil
}

func (m *middleware) decide(ctx context.Context, d weir.Decider, req weir.Request, each []weir.Result) (weir.Result, error) {
	if m.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.opts.Timeout)
		defer cancel()
	}
	return d.Decide(ctx, req, each)
}

// answer sets the header fields after a decision, and reports whether the request is
// passed on. If it is not, answer writes the answer.
func (m *middleware) answer(w http.ResponseWriter, r *http.Request, req *weir.Request, res *weir.Result, err error, s *scratch) bool {
	switch {
	case err == nil:
		m.setHeaders(w.Header(), r, res, s)
		if !res.Allowed {
			m.deny(w, r, res, s)
		}
		return res.Allowed
	case !cancelled(r) && outage(err):
		m.report(r, err)
		if !m.opts.FailOpen {
			m.reject(w, r, &reducedCapacity, Rejection{Err: err})
		}
		return m.opts.FailOpen
	}
	if errors.Is(err, weir.ErrInvalidKey) && slices.Contains(req.Key.Segments(), "") {
		err = fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	m.fail(w, r, err)
	return false
}

// outage reports whether err means that the store did not decide.
func outage(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || guard.Contextual(err)
}

// cancelled reports whether the client has cancelled the request.
func cancelled(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }

// fail answers a request after an error that is no outage.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, err error) {
	if cancelled(r) {
		w.WriteHeader(statusClientClosed)
		return
	}
	m.report(r, err)
	if errors.Is(err, ErrNoKey) {
		m.reject(w, r, &badRequest, Rejection{Err: err})
		return
	}
	m.reject(w, r, &internalError, Rejection{Err: err})
}

// report reports an error to the program, never to the client.
func (m *middleware) report(r *http.Request, err error) {
	switch {
	case m.opts.OnError != nil:
		m.opts.OnError(r, err)
	case errors.Is(err, ErrNoKey):
		slog.DebugContext(r.Context(), "weirhttp rejects a request", "error", err)
	default:
		slog.ErrorContext(r.Context(), "weirhttp cannot limit a request", "error", err)
	}
}

// late answers a request whose context ended before its turn.
func (m *middleware) late(w http.ResponseWriter, r *http.Request, err error) {
	if cancelled(r) {
		m.fail(w, r, err)
		return
	}
	m.report(r, err)
	m.reject(w, r, &reducedCapacity, Rejection{Err: err})
}

// undo undoes the decision, and reports an error.
func (m *middleware) undo(r *http.Request, d weir.Decider, req weir.Request) {
	if err := undo.Request(r.Context(), d, req); err != nil {
		m.report(r, err)
	}
}
