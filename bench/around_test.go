package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
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

// TestAround checks that all give the expected answers.
func TestAround(t *testing.T) {
	for _, c := range arounds(t) {
		for range 3 {
			c.call(t)
		}
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
		lim, err := weir.New(benchName, st, a, nil)
		if err != nil {
			tb.Fatal(err)
		}
		return lim
	}
	outage := func(o weir.Outage) *weir.Limiter {
		o.Failures, o.Probe = 1, time.Hour
		lim, err := limiter(gone{memory.New(nil)}, many).OnOutage(o)
		if err != nil {
			tb.Fatal(err)
		}
		return lim
	}
	ask := func(lim *weir.Limiter, allowed, degraded bool) func(testing.TB) {
		ctx := context.Background()
		return func(tb testing.TB) {
			res, err := lim.Allow(ctx, "user-100000")
			if err != nil || res.Allowed != allowed || (res.Degraded != nil) != degraded {
				tb.Fatalf("got %+v, %v", res, err)
			}
		}
	}
	one := limiter(memory.New(nil), algorithm.FixedWindow{Limit: 1, Window: window})
	if res, err := one.Allow(context.Background(), "user-100000"); err != nil || !res.Allowed {
		tb.Fatal(res, err)
	}
	limit, err := weirhttp.New(limiter(memory.New(nil), many), weirhttp.By(weirhttp.RemoteIP), &weirhttp.Options{Headers: weirhttp.NoHeaders})
	if err != nil {
		tb.Fatal(err)
	}
	handled := 0
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled++ }))
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	ahead, err := limiter(memory.New(nil), many).Prefetch(weir.Prefetch{MaxTokens: 1 << 20, MaxAge: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	return []around{
		{"plain", ask(limiter(memory.New(nil), many), true, false)},
		{"denycache", ask(one.Wrap(weir.DenyCache{MaxAge: time.Hour}.Wrap), false, false)},
		{"prefetch", ask(ahead, true, false)},
		{"failopen", ask(outage(weir.Outage{Fallback: weir.FailOpen}), true, true)},
		{"faillocal", ask(outage(weir.Outage{Fallback: weir.FailLocal, Processes: 4}), true, true)},
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
