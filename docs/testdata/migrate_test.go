// Package migrate runs the programs of docs/migrate. A test of package docs copies it to the
// module that it makes of the code on the pages.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"example.com/snippets/golimiter"
	"example.com/snippets/httprate"
	"example.com/snippets/redisrate"
	"example.com/snippets/routers"
	"example.com/snippets/switchover"
	"example.com/snippets/throttled"
	"example.com/snippets/ulule"
	"example.com/snippets/xtimerate"
	"github.com/alicebob/miniredis/v2"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-redis/redis_rate/v10"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	limitermemory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// ok is a handler that answers 200.
var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// must returns v.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

// A row is a request at a time since the start, by a user whose name is also the address. It
// has the answers: the status, and the fields of the limit. If after is empty, both programs
// answer the same.
type row struct {
	at            time.Duration
	key           string
	before, after string
}

// play sends each request to both programs, and moves the clocks of both with pass.
func play(t *testing.T, rows []row, pass func(time.Duration), before, after http.Handler) {
	t.Helper()
	var now time.Duration
	for i, r := range rows {
		pass(r.at - now)
		now = r.at
		for program, want := range map[string]string{"before": r.before, "after": cmp.Or(r.after, r.before)} {
			h := map[string]http.Handler{"before": before, "after": after}[program]
			if got := ask(h, r.key); !strings.HasPrefix(got+" ", want+" ") {
				t.Errorf("request %d at %v by %q: %s: got %q, want %q", i, r.at, r.key, program, got, want)
			}
		}
	}
}

// ask returns the status, and Limit, Remaining, Reset and Retry-After. A dash stands for a
// field that is not set.
func ask(h http.Handler, key string) string {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-User", key)
	r.RemoteAddr = key
	if net.ParseIP(key) != nil {
		r.RemoteAddr = net.JoinHostPort(key, "1234")
	}
	h.ServeHTTP(w, r)
	answer := fmt.Sprint(w.Code)
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"} {
		answer += " " + cmp.Or(w.Header().Get(name), "-")
	}
	return answer
}

// newPeer returns a store of ulule/limiter without a goroutine that removes expired keys.
func newPeer() limiter.Store { return limitermemory.NewStoreWithOptions(limiter.StoreOptions{}) }

// newGin returns a router whose routes are limited by ulule/limiter, or by weir.
func newGin(limit func(*gin.Engine) error) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	if err := limit(r); err != nil {
		panic(err)
	}
	r.GET("/", func(*gin.Context) {})
	return r
}

// Virtual time starts at 946684800, a multiple of an hour.
var ululeRows = []row{
	{0, "192.0.2.1", "200 3 2 946688400 -", ""},
	{20 * time.Minute, "192.0.2.1", "200 3 1 946688400 -", ""},
	{20 * time.Minute, "192.0.2.2", "200 3 2 946689600 -", ""},
	{30 * time.Minute, "192.0.2.1", "200 3 0 946688400 -", ""},
	{30 * time.Minute, "192.0.2.1", "429 3 0 946688400 -", "429 3 0 946688400 1800"},
	{time.Hour - time.Second, "192.0.2.1", "429 3 0 946688400 -", "429 3 0 946688400 1"},
	{time.Hour + time.Second, "192.0.2.1", "200 3 2 946692001 -", ""},
	{3*time.Hour + 500*time.Millisecond, "192.0.2.1", "200 3 2 946699200 -", "200 3 2 946699201 -"},
	{4 * time.Hour, "2001:db8::1", "200 3 2 946702800 -", ""},
	{4 * time.Hour, "2001:db8::2", "200 3 2 946702800 -", "200 3 1 946702800 -"},
	{4 * time.Hour, "no address", "200 3 2 946702800 -", "400 - - - -"}, // not with gin, which finds the address
}

func TestTraffic(t *testing.T) {
	for name, tt := range map[string]struct {
		programs func() (before, after http.Handler)
		rows     []row
	}{
		"ulule": {func() (before, after http.Handler) {
			return must(ulule.Before(newPeer(), ok)), must(ulule.NewLimit(memory.New(nil)))(ok)
		}, ululeRows},
		"gin": {func() (before, after http.Handler) {
			return newGin(func(r *gin.Engine) error { return ulule.GinBefore(newPeer(), r) }), newGin(func(r *gin.Engine) error { return ulule.GinAfter(memory.New(nil), r) })
		}, ululeRows[:len(ululeRows)-1]},
		"httprate": {func() (before, after http.Handler) {
			return httprate.Before(ok), must(httprate.After(memory.New(nil), ok))
		}, []row{
			// Reset was the end of the window. Now it is the end of the next window.
			{10 * time.Second, "192.0.2.1", "200 3 2 946684860 -", "200 3 2 946684920 -"},
			{10 * time.Second, "192.0.2.1", "200 3 1 946684860 -", "200 3 1 946684920 -"},
			{10 * time.Second, "2001:db8::1", "200 3 2 946684860 -", "200 3 2 946684920 -"},
			{10 * time.Second, "2001:db8::2", "200 3 1 946684860 -", "200 3 1 946684920 -"},
			{20 * time.Second, "192.0.2.1", "200 3 0 946684860 -", "200 3 0 946684920 -"},
			// Retry-After was the length of the window. Now it is exact.
			{20 * time.Second, "192.0.2.1", "429 3 0 946684860 60", "429 3 0 946684920 61"},
			{70 * time.Second, "192.0.2.1", "429 3 0 946684920 60", "429 3 0 946684920 11"},
			{85 * time.Second, "192.0.2.1", "200 3 0 946684920 -", "200 3 0 946684980 -"},
			// The estimate is 2.25: it was rounded to 2, and is now rounded up to 3.
			{95 * time.Second, "192.0.2.1", "200 3 0 946684920 -", "429 3 0 946684980 6"},
			{10 * time.Minute, "no address", "428 - - - -", "400 - - - -"},
		}},
		"throttled": {func() (before, after http.Handler) {
			return must(throttled.Before(must(memstore.NewCtx(0)), ok)), must(throttled.After(memory.New(nil), ok))
		}, []row{
			{0, "ann", "200 3 2 10 -", ""}, {0, "ann", "200 3 1 20 -", ""}, {0, "bob", "200 3 2 10 -", ""},
			{0, "ann", "200 3 0 30 -", ""}, {0, "ann", "429 3 0 30 10", ""},
			{8500 * time.Millisecond, "ann", "429 3 0 22 2", ""}, {10 * time.Second, "ann", "200 3 0 30 -", ""},
			{30 * time.Second, "ann", "200 3 1 20 -", ""}, {time.Hour, "ann", "200 3 2 10 -", ""},
			{time.Hour, "", "200 3 2 10 -", "400 - - - -"}, {time.Hour, "", "200 3 1 20 -", "400 - - - -"}, // one limit for all without the field
		}},
		"x/time/rate": {func() (before, after http.Handler) {
			return xtimerate.Before(ok), must(xtimerate.After(memory.New(nil), ok))
		}, []row{
			{0, "ann", "200", ""}, {0, "ann", "200", ""}, {0, "bob", "200", ""}, {0, "ann", "200", ""},
			{500 * time.Millisecond, "ann", "429 - - - -", "429 - - - 20"}, {19 * time.Second, "ann", "429 - - - -", "429 - - - 1"},
			{21 * time.Second, "ann", "200", ""}, {41 * time.Second, "ann", "200", ""}, {41 * time.Second, "ann", "429 - - - -", "429 - - - 19"},
			{41 * time.Second, "", "200", "400 - - - -"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, after := tt.programs()
				play(t, tt.rows, time.Sleep, before, after)
			})
		})
	}
}

// go-limiter reads the machine's clock, so all requests are in one window, and their times
// are not compared.
func TestGoLimiter(t *testing.T) {
	before, st, err := golimiter.Before(ok)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close(t.Context())
	play(t, []row{
		{0, "192.0.2.1", "200 3 2", ""}, {0, "192.0.2.1", "200 3 1", ""}, {0, "192.0.2.2", "200 3 2", ""}, {0, "192.0.2.1", "200 3 0", ""},
		{0, "192.0.2.1", "429 3 0", ""}, {0, "2001:db8::1", "200 3 2", ""}, {0, "2001:db8::2", "200 3 2", "200 3 1"}, {0, "no address", "500 - -", "400 - -"},
	}, func(time.Duration) {}, before, must(golimiter.After(ok)))
}

// startRedis returns a client of a server, and a function that moves the clock of the server.
func startRedis(t *testing.T) (*redis.Client, func(time.Duration)) {
	server, now := miniredis.RunT(t), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server.SetTime(now)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb, func(d time.Duration) {
		now = now.Add(d)
		server.SetTime(now)
		server.FastForward(d)
	}
}

// Ann's plan allows 3 requests per minute, and everybody else's 6.
func TestRedisRate(t *testing.T) {
	rdb, pass := startRedis(t)
	plan := func(r *http.Request) int { return map[bool]int{true: 3, false: 6}[r.Header.Get("X-User") == "ann"] }
	play(t, []row{
		{0, "ann", "200 - 2 - -", ""}, {0, "ann", "200 - 1 - -", ""}, {0, "bob", "200 - 5 - -", ""}, {500 * time.Millisecond, "ann", "200 - 0 - -", ""},
		{500 * time.Millisecond, "ann", "429 - 0 - 20", ""}, {19 * time.Second, "ann", "429 - 0 - 1", ""}, {21 * time.Second, "ann", "200 - 0 - -", ""},
		{21 * time.Second, "", "200 - 5 - -", "400 - - - -"}, {90 * time.Second, "ann", "200 - 2 - -", ""}, {91 * time.Second, "bob", "200 - 5 - -", ""},
	}, pass, redisrate.Before(rdb, plan, ok), must(redisrate.After(rdb, plan, ok)))
}

// The package with redis_rate's methods answers the calls of redis_rate's own tests, and a
// long random traffic, as redis_rate does, except for a cost above the burst.
func TestCompat(t *testing.T) {
	ctx := t.Context()
	rdb, pass := startRedis(t)
	before, after := redis_rate.NewLimiter(rdb), must(redisrate.NewLimiter(goredis.New(rdb)))
	type call struct {
		wait        time.Duration
		method, key string
		rate, n     int // per second, which is also the burst
	}
	calls := []call{
		{0, "Allow", "a", 10, 1}, {0, "Reset", "a", 0, 0}, {0, "Allow", "a", 10, 1}, {0, "AllowN", "a", 10, 2}, {0, "AllowN", "a", 10, 7}, {0, "AllowN", "a", 10, 1000},
		{0, "AllowN", "b", 10, 0}, {0, "Allow", "b", 10, 1}, {0, "AllowN", "b", 10, 0},
		{0, "Allow", "c", 10, 1}, {0, "AllowAtMost", "c", 10, 2}, {0, "AllowN", "c", 10, 0}, {0, "AllowAtMost", "c", 10, 10}, {0, "AllowN", "c", 10, 0}, {0, "AllowAtMost", "c", 10, 1000}, {0, "AllowN", "c", 10, 1000},
		{0, "AllowAtMost", "d", 10, 0}, {0, "Allow", "d", 10, 1}, {0, "AllowAtMost", "d", 10, 0},
		// AllowAtMost of 0 says when one is allowed, and AllowN of 0 does not.
		{0, "AllowN", "f", 10, 10}, {0, "AllowAtMost", "f", 10, 0}, {0, "AllowN", "f", 10, 0},
		// The empty key, and another limit for the same key.
		{0, "Allow", "", 2, 1}, {0, "Allow", "", 2, 1}, {0, "Allow", "", 2, 1}, {0, "Reset", "", 0, 0}, {0, "Allow", "", 2, 1},
		{0, "AllowN", "e", 10, 8}, {0, "Allow", "e", 4, 1}, {250 * time.Millisecond, "AllowAtMost", "e", 4, 1}, {0, "Allow", "e", 20, 1},
	}
	for i, x := 0, uint64(1); i < 500; i++ { // no AllowAtMost, with which redis_rate consumes a fraction that it does not grant
		x = x*6364136223846793005 + 1442695040888963407
		n := int(x >> 33)
		calls = append(calls, call{time.Duration(n%7) * 31 * time.Millisecond, []string{"Allow", "AllowN"}[n/7%2], fmt.Sprint("user", n/14%3), 10, n / 42 % 9})
	}
	near := func(a, b time.Duration) bool { return (a - b).Abs() < time.Millisecond } // redis_rate computes in floating-point seconds
	denied, above := 0, 0
	for i, c := range calls {
		pass(c.wait + 100*time.Microsecond) // so that redis_rate does not round a whole token away
		var old *redis_rate.Result
		var now *redisrate.Result
		var err, err2 error
		was, is := redis_rate.PerSecond(c.rate), redisrate.PerSecond(c.rate)
		switch c.method {
		case "Reset":
			if err := errors.Join(before.Reset(ctx, c.key), after.Reset(ctx, c.key)); err != nil {
				t.Fatal(err)
			}
			continue
		case "Allow":
			old, err = before.Allow(ctx, c.key, was)
			now, err2 = after.Allow(ctx, c.key, is)
		case "AllowN":
			old, err = before.AllowN(ctx, c.key, was, c.n)
			now, err2 = after.AllowN(ctx, c.key, is, c.n)
		case "AllowAtMost":
			old, err = before.AllowAtMost(ctx, c.key, was, c.n)
			now, err2 = after.AllowAtMost(ctx, c.key, is, c.n)
		}
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if now.RetryAfter == weir.Never && c.n > c.rate && old.RetryAfter > 0 {
			above++
			now.RetryAfter = old.RetryAfter
		}
		whole := now.ResetAfter%(now.Limit.Period/time.Duration(now.Limit.Rate)) == 0 // redis_rate's number can then be just below
		if !near(old.RetryAfter, now.RetryAfter) || !near(old.ResetAfter, now.ResetAfter) || old.Allowed != now.Allowed ||
			old.Remaining != now.Remaining && !(whole && old.Remaining == now.Remaining-1) || was.String() != is.String() || was.IsZero() != is.IsZero() {
			t.Errorf("call %d, %+v: got %+v, redis_rate's answer was %+v", i, c, now, old)
		}
		if old.Allowed == 0 {
			denied++
		}
	}
	if denied < 50 || denied > len(calls)-50 || above != 2 {
		t.Errorf("%d of %d calls were denied, and %d were above the burst", denied, len(calls), above)
	}
	if _, err := after.AllowN(ctx, "a", redisrate.PerHour(10), -3); !errors.Is(err, weir.ErrInvalidCost) {
		t.Errorf("a negative number: got error %v, want ErrInvalidCost", err)
	}
}

type broken struct{ store.Store }

func (broken) Eval(context.Context, *store.Script, []string, []store.Arg, []store.Value) ([]store.Value, error) {
	return nil, store.ErrUnavailable
}

// The programs answer 503 if the store is away.
func TestOutage(t *testing.T) {
	st := broken{memory.New(nil)}
	for name, h := range map[string]http.Handler{
		"ulule": must(ulule.NewLimit(st))(ok), "httprate": must(httprate.After(st, ok)), "throttled": must(throttled.After(st, ok)), "x/time/rate": must(xtimerate.After(st, ok)),
	} {
		if got, want := ask(h, "192.0.2.1"), "503 - - - -"; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// newLimiter returns a limiter of 2 requests per hour, whose clock stands still.
func newLimiter() *weir.Limiter {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return must(weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 2, Window: time.Hour}, &weir.Options{Clock: func() time.Time { return now }}))
}

// With each router, two requests reach the handler, and the third is answered with 429 and
// Retry-After.
func TestRouters(t *testing.T) {
	limit := func(by weirhttp.Segment) routers.Middleware {
		return must(weirhttp.New(newLimiter(), weirhttp.By(by), nil))
	}
	inside, g, e, app := chi.NewRouter(), gin.New(), echo.New(), fiber.New()
	forChi := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "user "+chi.URLParam(r, "id")) }
	outside := chi.NewRouter()
	routers.Chi(outside, limit(weirhttp.RemoteIP))
	outside.Get("/users/{id}", forChi)
	inside.With(limit(weirhttp.Pattern)).Get("/users/{id}", forChi) // the route is known
	routers.Gin(g, limit(weirhttp.RemoteIP))
	g.GET("/users/:id", func(c *gin.Context) { c.String(http.StatusOK, "user "+c.Param("id")) })
	routers.Echo(e, limit(weirhttp.RemoteIP))
	e.GET("/users/:id", func(c echo.Context) error { return c.String(http.StatusOK, "user "+c.Param("id")) })
	app.Use(routers.Fiber(newLimiter()))
	app.Get("/users/:id", func(c fiber.Ctx) error { return c.SendString("user " + c.Params("id")) })
	ln := must(net.Listen("tcp", "127.0.0.1:0")) // the requests of app.Test have no address
	go func() { _ = app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() { _ = app.Shutdown() })
	for name, h := range map[string]http.Handler{"chi": outside, "chi, pattern": inside, "gin": g, "echo": e, "fiber": nil} {
		for i, want := range []string{"200 user 7", "200 user 7", "429 3600"} {
			url := "http://" + ln.Addr().String()
			if h != nil {
				srv := httptest.NewServer(h)
				defer srv.Close()
				url = srv.URL
			}
			res := must(http.Get(url + "/users/7"))
			text := res.Header.Get("Retry-After")
			if body := must(io.ReadAll(res.Body)); res.StatusCode == 200 {
				text = string(body)
			}
			_ = res.Body.Close()
			if got := fmt.Sprint(res.StatusCode, " ", text); got != want {
				t.Errorf("%s: request %d: got %q, want %q", name, i, got, want)
			}
		}
	}
}

// A denied call gets ResourceExhausted from the interceptor, and Unavailable from a
// middleware of net/http.
func TestConnect(t *testing.T) {
	for name, tt := range map[string]struct {
		opts  []connect.HandlerOption
		limit routers.Middleware
		want  []connect.Code // of calls by ann, ann, ann, bob and nobody; 0 is no error
	}{
		"interceptor": {[]connect.HandlerOption{connect.WithInterceptors(routers.Connect(newLimiter()))}, func(h http.Handler) http.Handler { return h },
			[]connect.Code{0, 0, connect.CodeResourceExhausted, 0, connect.CodeUnavailable}},
		"middleware": {nil, must(weirhttp.New(newLimiter(), weirhttp.By(weirhttp.RemoteIP), nil)), []connect.Code{0, 0, connect.CodeUnavailable, connect.CodeUnavailable, connect.CodeUnavailable}},
	} {
		const procedure = "/test.Service/Call"
		served := 0
		server := httptest.NewServer(tt.limit(connect.NewUnaryHandler(procedure, func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			served++
			return connect.NewResponse(new(emptypb.Empty)), nil
		}, tt.opts...)))
		defer server.Close()
		client := connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure)
		var got []connect.Code
		for _, user := range []string{"ann", "ann", "ann", "bob", ""} {
			req := connect.NewRequest(new(emptypb.Empty))
			req.Header().Set("X-User", user)
			code := connect.Code(0)
			if _, err := client.CallUnary(t.Context(), req); err != nil {
				code = connect.CodeOf(err)
			}
			got = append(got, code)
		}
		if want := len(tt.want) - len(slices.DeleteFunc(slices.Clone(tt.want), func(c connect.Code) bool { return c == 0 })); !slices.Equal(got, tt.want) || served != want {
			t.Errorf("%s: got %v and %d served calls, want %v", name, got, served, tt.want)
		}
	}
}

// A caller that is always over the limit gets a burst more if the limiter is simply replaced,
// and nothing more if both decided before, for as long as the burst takes to refill.
func TestSwitch(t *testing.T) {
	const burst = 5
	for name, tt := range map[string]struct {
		before func(old, next switchover.Allow) switchover.Allow
		more   int
	}{
		"replaced": {func(old, _ switchover.Allow) switchover.Allow { return old }, burst},
		"shadow": {func(old, next switchover.Allow) switchover.Allow {
			return switchover.Shadow(old, next, func(string, bool, error) {})
		}, 0},
		"both": {switchover.Both, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peer := rate.NewLimiter(1, burst)
				lim := must(weir.New("api", memory.New(nil), algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: burst}, nil))
				next := func(ctx context.Context, key string) (bool, error) {
					res, err := lim.Allow(ctx, key)
					return res.Allowed, err
				}
				allow := tt.before(func(context.Context, string) (bool, error) { return peer.Allow(), nil }, next)
				n := 0
				for i := range 200 { // ten in a second
					if i == 101 {
						allow = next
					}
					if must(allow(t.Context(), "ann")) {
						n++
					}
					time.Sleep(100 * time.Millisecond)
				}
				if want := burst + 19 + tt.more; n < want || n > want+1 {
					t.Errorf("%d requests were allowed in 20 s, want %d", n, want)
				}
			})
		})
	}
}

// Shadow answers as the old limiter does, and reports each difference, even an error.
func TestShadow(t *testing.T) {
	outage := errors.New("no answer")
	decide := func(allowed bool, err error) switchover.Allow {
		return func(context.Context, string) (bool, error) { return allowed, err }
	}
	for name, tt := range map[string]struct {
		old, next switchover.Allow
		allowed   bool
		err       error
		reports   int
	}{
		"both allow":         {decide(true, nil), decide(true, nil), true, nil, 0},
		"the new one denies": {decide(true, nil), decide(false, nil), true, nil, 1},
		"the old one denies": {decide(false, nil), decide(true, nil), false, nil, 1},
		"the new one fails":  {decide(false, nil), decide(false, outage), false, nil, 1},
		"the old one fails":  {decide(false, outage), decide(true, nil), false, outage, 0},
	} {
		reports := 0
		got, err := switchover.Shadow(tt.old, tt.next, func(string, bool, error) { reports++ })(t.Context(), "ann")
		if got != tt.allowed || !errors.Is(err, tt.err) || reports != tt.reports {
			t.Errorf("%s: got %v, %v and %d reports", name, got, err, reports)
		}
	}
}
