package weirhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// all is the key of every request.
var all = weirhttp.By(weirhttp.Text("all"))

// asking returns a RequestFunc that always returns req. Its key is that of all, if it has none.
func asking(req weir.Request) weirhttp.RequestFunc {
	if req.Key == (weir.Key{}) {
		req.Key = weir.KeyOf("all")
	}
	return func(*http.Request) (weir.Request, error) { return req, nil }
}

// newLimiter returns a limiter on a memory store of its own.
func newLimiter(t testing.TB, a algorithm.Algorithm) *weir.Limiter {
	t.Helper()
	return weirtest.New(t, memory.New(nil), a)
}

// remaining returns what remains for the key of all.
func remaining(t *testing.T, lim *weir.Limiter) int64 {
	t.Helper()
	return weirtest.Left(t, lim, "all").Remaining
}

// newMiddleware returns the middleware, and collects its errors in errs if OnError is nil.
func newMiddleware(t testing.TB, d weir.Decider, request weirhttp.RequestFunc, opts weirhttp.Options) (limit func(http.Handler) http.Handler, errs *[]error) {
	t.Helper()
	errs = new([]error)
	if opts.OnError == nil {
		opts.OnError = func(_ *http.Request, err error) { *errs = append(*errs, err) }
	}
	limit, err := weirhttp.New(d, request, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return limit, errs
}

// A counting is a handler that counts its calls.
type counting struct{ calls int }

func (c *counting) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.calls++
	w.WriteHeader(http.StatusNoContent)
}

// serve returns the answer of h to a GET in ctx.
func serve(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	return w
}

// A deciderFunc is a Decider that hides its limiter.
type deciderFunc func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error)

func (f deciderFunc) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return f(ctx, r, each)
}

// An observed Decider lets f answer instead of it.
type observed struct {
	weir.Decider
	f deciderFunc
}

func (o observed) Unwrap() weir.Decider { return o.Decider }

func (o observed) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return o.f(ctx, r, each)
}

// failing returns a Decider that always returns err.
func failing(err error) weir.Decider {
	return deciderFunc(func(context.Context, weir.Request, []weir.Result) (weir.Result, error) { return weir.Result{}, err })
}
