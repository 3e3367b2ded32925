package recipes_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/migrate/recipes"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// newLimiter returns a limiter of 2 requests per hour, whose clock stands still.
func newLimiter(t *testing.T) *weir.Limiter {
	t.Helper()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 2, Window: time.Hour}, &weir.Options{Clock: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func newMiddleware(t *testing.T) recipes.Middleware {
	t.Helper()
	limit, err := weirhttp.New(newLimiter(t), weirhttp.By(weirhttp.RemoteIP), nil)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

// Two requests reach the handler, and the third is answered with 429 and Retry-After.
func TestRouters(t *testing.T) {
	const body = "user 7"
	routers := map[string]func(*http.Request) *http.Response{
		"chi": func() func(*http.Request) *http.Response {
			r := chi.NewRouter()
			recipes.Chi(r, newMiddleware(t))
			r.Get("/users/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "user "+chi.URLParam(r, "id")) })
			return serve(r)
		}(),
		"gin": func() func(*http.Request) *http.Response {
			gin.SetMode(gin.ReleaseMode)
			r := gin.New()
			recipes.Gin(r, newMiddleware(t))
			r.GET("/users/:id", func(c *gin.Context) { c.String(http.StatusOK, "user "+c.Param("id")) })
			return serve(r)
		}(),
		"echo": func() func(*http.Request) *http.Response {
			e := echo.New()
			recipes.Echo(e, newMiddleware(t))
			e.GET("/users/:id", func(c echo.Context) error { return c.String(http.StatusOK, "user "+c.Param("id")) })
			return serve(e)
		}(),
		"fiber": func() func(*http.Request) *http.Response {
			app := fiber.New()
			app.Use(recipes.Fiber(newLimiter(t)))
			app.Get("/users/:id", func(c fiber.Ctx) error { return c.SendString("user " + c.Params("id")) })
			// Not app.Test: its requests have no address.
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }()
			t.Cleanup(func() { _ = app.Shutdown() })
			return func(r *http.Request) *http.Response {
				res, err := http.Get("http://" + ln.Addr().String() + r.URL.Path)
				if err != nil {
					t.Fatal(err)
				}
				return res
			}
		}(),
	}
	for name, do := range routers {
		for i, want := range []struct {
			status int
			retry  string
		}{{200, ""}, {200, ""}, {429, "3600"}} {
			res := do(httptest.NewRequest(http.MethodGet, "/users/7", nil))
			got, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != want.status || res.Header.Get("Retry-After") != want.retry || (string(got) == body) != (want.status == 200) {
				t.Errorf("%s: request %d: got %d, Retry-After %q and %q, want %+v", name, i, res.StatusCode, res.Header.Get("Retry-After"), got, want)
			}
		}
	}
}

func serve(h http.Handler) func(*http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
}

// Each user has a limit. A denied call gets ResourceExhausted, and reaches no handler.
func TestConnect(t *testing.T) {
	served := 0
	client := newClient(t, func(h http.Handler) http.Handler { return h }, &served, connect.WithInterceptors(recipes.Connect(newLimiter(t))))
	for i, tt := range []struct {
		user string
		want connect.Code // 0 is no error
	}{{"ann", 0}, {"ann", 0}, {"ann", connect.CodeResourceExhausted}, {"bob", 0}, {"", connect.CodeUnavailable}} {
		req := connect.NewRequest(new(emptypb.Empty))
		req.Header().Set("X-User", tt.user)
		_, err := client.CallUnary(t.Context(), req)
		if err == nil && tt.want != 0 || err != nil && connect.CodeOf(err) != tt.want {
			t.Errorf("call %d by %q: got %v, want %v", i, tt.user, err, tt.want)
		}
	}
	if served != 3 {
		t.Errorf("the handler served %d calls, want 3", served)
	}
}

// With a middleware of net/http, the client of a denied call gets Unavailable.
func TestConnectMiddleware(t *testing.T) {
	served := 0
	client := newClient(t, newMiddleware(t), &served)
	for i, want := range []connect.Code{0, 0, connect.CodeUnavailable} {
		_, err := client.CallUnary(t.Context(), connect.NewRequest(new(emptypb.Empty)))
		if err == nil && want != 0 || err != nil && connect.CodeOf(err) != want {
			t.Errorf("call %d: got %v, want %v", i, err, want)
		}
	}
	if served != 2 {
		t.Errorf("the handler served %d calls, want 2", served)
	}
}

// newClient returns a client of a server, which counts the calls that reach its handler.
func newClient(t *testing.T, limit recipes.Middleware, served *int, opts ...connect.HandlerOption) *connect.Client[emptypb.Empty, emptypb.Empty] {
	t.Helper()
	const procedure = "/test.Service/Call"
	server := httptest.NewServer(limit(connect.NewUnaryHandler(procedure,
		func(context.Context, *connect.Request[emptypb.Empty]) (*connect.Response[emptypb.Empty], error) {
			*served++
			return connect.NewResponse(new(emptypb.Empty)), nil
		}, opts...)))
	t.Cleanup(server.Close)
	return connect.NewClient[emptypb.Empty, emptypb.Empty](server.Client(), server.URL+procedure)
}
