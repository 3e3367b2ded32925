package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// BenchmarkAround measures answers that the store does not give, and what surrounds a
// decision in memory.
func BenchmarkAround(b *testing.B) {
	for _, c := range arounds(b) {
		b.Run("what="+c.name, func(b *testing.B) {
			c.call(b) // fills caches
			b.ReportAllocs()
			for b.Loop() {
				c.call(b)
			}
		})
	}
}

type around struct {
	name string
	call func(testing.TB)
}

// arounds returns calls with one key. The first one is a decision in memory, with which
// the others are compared.
func arounds(tb testing.TB) []around {
	tb.Helper()
	many := algorithm.FixedWindow{Limit: 1 << 40, Window: window}
	limiter := func(st store.Store, a algorithm.Algorithm) *weir.Limiter {
		return newLimiter(tb, st, policy(weir.Rule{Algorithm: a}), nil)
	}
	wrap := func(lim *weir.Limiter, w weir.Wrapper) *weir.Limiter {
		lim, err := lim.Wrap(w)
		if err != nil {
			tb.Fatal(err)
		}
		return lim
	}
	without := func(o outage.Options) *weir.Limiter {
		o.Failures, o.Probe = 1, time.Hour
		return wrap(limiter(gone{memory.New(nil)}, many), outage.New(&o).Wrap)
	}
	ask := func(lim *weir.Limiter, allowed, degraded bool) func(testing.TB) {
		ctx := context.Background()
		return func(tb testing.TB) {
			res, err := lim.Allow(ctx, "user:100000")
			if err != nil || res.Allowed != allowed || (res.Degraded != nil) != degraded {
				tb.Fatalf("got %+v, %v", res, err)
			}
		}
	}
	one := limiter(memory.New(nil), algorithm.FixedWindow{Limit: 1, Window: window})
	if res, err := one.Allow(context.Background(), "user:100000"); err != nil || !res.Allowed {
		tb.Fatal(res, err)
	}
	limit, err := weirhttp.New(limiter(memory.New(nil), many), weirhttp.By(weirhttp.RemoteIP), &weirhttp.Options{Headers: weirhttp.NoHeaders})
	if err != nil {
		tb.Fatal(err)
	}
	handled := 0
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled++ }))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	ahead := prefetch.New(&prefetch.Options{MaxTokens: 1 << 20, MaxAge: time.Hour})
	return []around{
		{"plain", ask(limiter(memory.New(nil), many), true, false)},
		{"denycache", ask(wrap(one, denycache.New(&denycache.Options{MaxAge: time.Hour}).Wrap), false, false)},
		{"prefetch", ask(wrap(limiter(memory.New(nil), many), ahead.Wrap), true, false)},
		{"failopen", ask(without(outage.Options{Fallback: outage.Open}), true, true)},
		{"faillocal", ask(without(outage.Options{Fallback: outage.Local, Processes: 4}), true, true)},
		{"middleware", func(tb testing.TB) {
			before := handled
			if h.ServeHTTP(w, r); handled != before+1 {
				tb.Fatal("the request was denied")
			}
		}},
	}
}

// gone is a store whose server is away.
type gone struct{ store.Store }

func (gone) Eval(_ context.Context, _ *store.Script, _ []string, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	return reply, store.ErrUnavailable
}
