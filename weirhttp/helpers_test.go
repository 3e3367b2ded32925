package weirhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// all is the key of every request.
var all = weirhttp.By(weirhttp.Text("all"))

// counted is a policy that counts a unit, of which a key has 10 in an hour.
var counted = weir.Policy{Units: []string{"bytes"}, Rules: []weir.Rule{{Name: "bytes", Unit: "bytes", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(10), Burst: 10}}, pauseRule}}

// ofBytes returns a function for WithCosts.
func ofBytes(n int64, err error) func(*http.Request) (weir.Costs, error) {
	return func(*http.Request) (weir.Costs, error) { return weir.CostsOf(map[string]int64{"bytes": n}), err }
}

// newLimiter returns a limiter on a memory store of its own.
func newLimiter(t *testing.T, a algorithm.Algorithm) *weir.Limiter {
	t.Helper()
	lim, err := weir.New("test", memory.New(nil), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// newMiddleware returns the middleware, and collects its errors in errs if OnError is
// nil.
func newMiddleware(t *testing.T, d weir.Decider, request weirhttp.RequestFunc, opts weirhttp.Options) (limit func(http.Handler) http.Handler, errs *[]error) {
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

// serve returns the answer of h to r. A nil r is a plain GET.
func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	if r == nil {
		r = httptest.NewRequest(http.MethodGet, "/", nil)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A deciderFunc is a Decider.
type deciderFunc func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error)

func (f deciderFunc) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return f(ctx, r, each)
}

// failing returns a Decider that always returns err.
func failing(err error) weir.Decider {
	return deciderFunc(func(context.Context, weir.Request, []weir.Result) (weir.Result, error) { return weir.Result{}, err })
}

// A hanging is a store that answers when the context ends.
type hanging struct{ store.Store }

func (hanging) Eval(ctx context.Context, _ *store.Script, _ []string, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	<-ctx.Done()
	return reply, ctx.Err()
}

// wrapped returns lim with its decisions passed to the Decider that f makes.
func wrapped(lim *weir.Limiter, f func(next weir.Decider) weir.Decider) *weir.Limiter {
	lim, err := lim.Wrap(func(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) { return f(next), nil })
	if err != nil {
		panic(err)
	}
	return lim
}
