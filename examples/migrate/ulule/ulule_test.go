package ulule_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/ulule/limiter/v3"
	limitermemory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/migrate/internal/traffic"
	"github.com/weir-go/weir/examples/migrate/ulule"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Virtual time starts at 946684800, so the first window ends at 946688400.
var rows = []traffic.Row{
	{At: 0, Key: "192.0.2.1", Before: "200 3 2 946688400 -"},
	{At: 20 * time.Minute, Key: "192.0.2.1", Before: "200 3 1 946688400 -"},
	{At: 20 * time.Minute, Key: "192.0.2.2", Before: "200 3 2 946689600 -"},
	{At: 30 * time.Minute, Key: "192.0.2.1", Before: "200 3 0 946688400 -"},
	{At: 30 * time.Minute, Key: "192.0.2.1", Before: "429 3 0 946688400 -", After: "429 3 0 946688400 1800"},
	{At: time.Hour - time.Second, Key: "192.0.2.1", Before: "429 3 0 946688400 -", After: "429 3 0 946688400 1"},
	{At: time.Hour + time.Second, Key: "192.0.2.1", Before: "200 3 2 946692001 -"},
	{At: 3*time.Hour + 500*time.Millisecond, Key: "192.0.2.1", Before: "200 3 2 946699200 -", After: "200 3 2 946699201 -"},
	// All addresses of a /64 network share a limit.
	{At: 4 * time.Hour, Key: "2001:db8::1", Before: "200 3 2 946702800 -"},
	{At: 4 * time.Hour, Key: "2001:db8::2", Before: "200 3 2 946702800 -", After: "200 3 1 946702800 -"},
	// Without an address, the key of ulule/limiter is "<nil>".
	{At: 4 * time.Hour, Key: "no address", Before: "200 3 2 946702800 -", After: "400 - - - -"},
}

// newStore returns a store without a goroutine that removes expired keys.
func newStore() limiter.Store { return limitermemory.NewStoreWithOptions(limiter.StoreOptions{}) }

func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, err := ulule.Before(newStore(), traffic.OK)
		if err != nil {
			t.Fatal(err)
		}
		limit, err := ulule.NewLimit(memory.New(nil))
		if err != nil {
			t.Fatal(err)
		}
		traffic.Play(t, rows, time.Sleep, traffic.Ask(before), traffic.Ask(limit(traffic.OK)))
	})
}

// With gin, both answer as with net/http, and a denied request reaches no handler. gin
// finds the address, so there is no request without one.
func TestGin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newGin(), newGin()
		if err := ulule.GinBefore(newStore(), before); err != nil {
			t.Fatal(err)
		}
		if err := ulule.GinAfter(memory.New(nil), after); err != nil {
			t.Fatal(err)
		}
		served := 0
		for _, r := range []*gin.Engine{before, after} {
			r.GET("/", func(c *gin.Context) { served++ })
		}
		traffic.Play(t, rows[:len(rows)-1], time.Sleep, traffic.Ask(before), traffic.Ask(after))
		if want := 16; served != want {
			t.Errorf("the handlers served %d requests, want %d", served, want)
		}
	})
}

// gin believes X-Forwarded-For unless it is told which proxies to trust, so a client
// could choose its key. RemoteIP is the address of the connection.
func TestForwarded(t *testing.T) {
	before, after := newGin(), newGin()
	if err := ulule.GinBefore(newStore(), before); err != nil {
		t.Fatal(err)
	}
	if err := ulule.GinAfter(memory.New(nil), after); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		r    *gin.Engine
		want string // Remaining of the second request, with another field
	}{"before": {before, "2"}, "after": {after, "1"}} {
		tt.r.GET("/", func(*gin.Context) {})
		var w *httptest.ResponseRecorder
		for _, field := range []string{"192.0.2.8", "192.0.2.9"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Forwarded-For", field)
			w = httptest.NewRecorder()
			tt.r.ServeHTTP(w, r)
		}
		if got := w.Header().Get("X-RateLimit-Remaining"); got != tt.want {
			t.Errorf("%s: got %s remaining, want %s", name, got, tt.want)
		}
	}
	// The option TrustForwardHeader reads the leftmost address, which the client can send.
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Forwarded-For", "192.0.2.8, 192.0.2.9")
	if got := limiter.GetIP(r, limiter.Options{TrustForwardHeader: true}).String(); got != "192.0.2.8" {
		t.Errorf("got %s, want the leftmost address", got)
	}
}

// An error of the store panics before, and is a 503 after.
func TestOutage(t *testing.T) {
	before, err := ulule.Before(brokenPeer{newStore()}, traffic.OK)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := ulule.NewLimit(broken{memory.New(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := traffic.Ask(limit(traffic.OK))("192.0.2.1"), "503 - - - -"; got != want {
		t.Errorf("after: got %q, want %q", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("before: no panic")
		}
	}()
	traffic.Ask(before)("192.0.2.1")
}

type brokenPeer struct{ limiter.Store }

func (brokenPeer) Get(context.Context, string, limiter.Rate) (limiter.Context, error) {
	return limiter.Context{}, errors.New("no answer")
}

type broken struct{ store.Store }

func (broken) Eval(context.Context, *store.Script, []string, []store.Arg, []store.Value) ([]store.Value, error) {
	return nil, store.ErrUnavailable
}

func newGin() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	return gin.New()
}

// Both have the same body, and a denied request of several tokens consumes them only
// before.
func TestDifferences(t *testing.T) {
	limit, err := ulule.NewLimit(memory.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	before, err := ulule.Before(newStore(), traffic.OK)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]http.Handler{"before": before, "after": limit(traffic.OK)} {
		var w *httptest.ResponseRecorder
		for range 4 {
			w = httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		}
		if got := w.Body.String(); w.Code != http.StatusTooManyRequests || got != "Limit exceeded\n" {
			t.Errorf("%s: got %d with %q", name, w.Code, got)
		}
	}
	old := limiter.New(newStore(), limiter.Rate{Limit: 3, Period: time.Hour})
	lim, err := weir.New("limiter", memory.New(nil), algorithm.FixedWindow{Limit: 3, Window: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		cost            int64
		reached, denied bool
	}{{2, false, false}, {2, true, true}, {1, true, false}} {
		was, err := old.Increment(t.Context(), "ann", want.cost)
		if err != nil {
			t.Fatal(err)
		}
		res, err := lim.AllowN(t.Context(), want.cost, "ann")
		if err != nil {
			t.Fatal(err)
		}
		if was.Reached != want.reached || res.Allowed == want.denied {
			t.Errorf("request %d: got %+v and %+v, want reached %v and denied %v", i, was, res, want.reached, want.denied)
		}
	}
}

// Calls by hand.
func TestByHand(t *testing.T) {
	ctx := t.Context()
	old := limiter.New(newStore(), limiter.Rate{Limit: 3, Period: time.Hour})
	lim, err := weir.New("limiter", memory.New(nil), algorithm.FixedWindow{Limit: 3, Window: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	peek := func(what string, reached, allowed bool, period, resetAfter time.Duration) {
		t.Helper()
		was, err := old.Peek(ctx, "ann")
		res, err2 := lim.Peek(ctx, "ann")
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		left := time.Until(time.Unix(was.Reset, 0)).Round(time.Minute)
		if was.Reached != reached || res.Allowed != allowed || left != period || res.ResetAfter.Round(time.Minute) != resetAfter {
			t.Errorf("%s: got %+v (%v) and %+v", what, was, left, res)
		}
	}
	increment := func(n int64, remaining int64, want error) {
		t.Helper()
		was, err := old.Increment(ctx, "ann", n)
		_, err2 := lim.AllowN(ctx, n, "ann")
		if err != nil || was.Remaining != remaining || !errors.Is(err2, want) {
			t.Errorf("increment by %d: got %+v, %v and error %v", n, was, err, err2)
		}
	}
	peek("unused", false, true, time.Hour, 0)
	increment(3, 0, nil)
	peek("nothing left", false, false, time.Hour, time.Hour)
	increment(0, 0, weir.ErrInvalidCost)
	increment(-2, 2, weir.ErrInvalidCost)
}
