package weirhttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/guard"
)

// statusClientClosed is the status for a request that its client has cancelled, as nginx
// logs it.
const statusClientClosed = 499

type middleware struct {
	rules   gate.Rules
	request RequestFunc
	opts    Options
}

// wrap is the middleware.
func (m *middleware) wrap(next http.Handler) http.Handler {
	if next == nil {
		next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			m.fail(w, r, &internalError, errors.New("weirhttp: the handler given to the middleware is nil: pass the handler to limit"))
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	var req gate.Request
	err := m.ask(r, &req)
	switch {
	case errors.Is(err, ErrUnlimited):
		next.ServeHTTP(w, r)
		return
	case err != nil:
		m.fail(w, r, &internalError, err)
		return
	}
	s := gate.NewScratch()
	res, err := req.Decide(r.Context(), m.opts.Timeout, s)
	gone := err != nil && cancelled(r)
	pass := m.answer(w, r, &req, &res, err, s)
	s.Free()
	if !pass {
		if err != nil || res.Degraded != nil {
			m.giveUp(r, req, &res, err, gone)
		}
		return
	}
	if err := guard.Sleep(r.Context(), res.Delay); err != nil {
		m.giveUp(r, req, &res, err, true)
		m.fail(w, r, &reducedCapacity, err)
		return
	}
	if req.ID == "" {
		next.ServeHTTP(w, r)
		return
	}
	m.run(w, r, &req, next)
}

// run calls the handler of a request with an ID, and ends its decision.
func (m *middleware) run(w http.ResponseWriter, r *http.Request, req *gate.Request, next http.Handler) {
	req.Run(r.Context(), "weirhttp", m.opts.RefundPanics, http.ErrAbortHandler, func(err error) { m.report(r, err) }, func(ctx context.Context) {
		own := r.WithContext(ctx)
		defer func() { // net/http removes the files of r, and a middleware around this one can read its pattern
			r.Pattern, r.MultipartForm = own.Pattern, own.MultipartForm
		}()
		next.ServeHTTP(w, own)
	})
}

// giveUp undoes the decision of a request that is not passed on. It gets a copy of the request, so
// that other requests allocate nothing.
func (m *middleware) giveUp(r *http.Request, req gate.Request, res *weir.Result, err error, gone bool) {
	if guard.Contextual(err) {
		r = r.Clone(r.Context()) // an error can be reported later, and net/http can reuse r
	}
	req.GiveUp(r.Context(), res, err, gone, func(err error) { m.report(r, err) })
}

// ask sets req to the request to decide.
func (m *middleware) ask(r *http.Request, req *gate.Request) (err error) {
	var plan weir.Decider
	req.Request, err = m.request(r)
	if err == nil && m.opts.Plan != nil {
		plan, err = m.opts.Plan(r)
	}
	if err != nil {
		return err
	}
	return req.Prepare(r.Context(), "weirhttp", &m.rules, plan)
}

// answer sets the header fields after a decision, and reports whether the request is
// passed on. If it is not, answer writes the answer.
func (m *middleware) answer(w http.ResponseWriter, r *http.Request, req *gate.Request, res *weir.Result, err error, s *gate.Scratch) bool {
	switch {
	case err == nil:
		m.setHeaders(w.Header(), r, res, s)
		if !res.Allowed {
			m.deny(w, r, res, s)
		}
		return res.Allowed
	case guard.Unknown(err) && m.opts.FailOpen && !cancelled(r):
		m.report(r, err)
		return true
	case guard.Unknown(err):
		m.fail(w, r, &reducedCapacity, err)
	default:
		m.fail(w, r, &internalError, source.Explain(req.Decider, &req.Request, err))
	}
	return false
}

// cancelled reports whether the client has cancelled the request.
func cancelled(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }

// fail answers a request after an error: by p, unless the request has no key.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, p *problem, err error) {
	if cancelled(r) {
		w.WriteHeader(statusClientClosed)
		return
	}
	m.report(r, err)
	if errors.Is(err, ErrNoKey) {
		p = &badRequest
	}
	m.reject(w, r, p, Rejection{Err: err})
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
