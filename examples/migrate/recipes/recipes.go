// Package recipes limits the requests to chi, gin, echo, fiber and connect.
package recipes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirhttp"
)

// A Middleware is what weirhttp.New returns.
type Middleware = func(http.Handler) http.Handler

// Chi limits all routes of r.
func Chi(r chi.Router, limit Middleware) {
	r.Use(limit)
}

// Gin limits all routes of r. If the request is not passed on, it ends gin's chain.
func Gin(r gin.IRouter, limit Middleware) {
	r.Use(func(c *gin.Context) {
		passed := false
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	})
}

// Echo limits all routes of e.
func Echo(e *echo.Echo, limit Middleware) {
	e.Use(echo.WrapMiddleware(limit))
}

// Fiber limits each IP address: app.Use(Fiber(lim)).
func Fiber(lim *weir.Limiter) fiber.Handler {
	return func(c fiber.Ctx) error {
		ip, _ := weirhttp.IPSegment(c.IP(), 0) // Allow returns an error if there is no address
		if res, err := lim.Allow(c.Context(), ip); err != nil {
			return fiber.ErrServiceUnavailable
		} else if !res.Allowed {
			c.Set(fiber.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(res.RetryAfter.Seconds()))))
			return fiber.ErrTooManyRequests
		}
		return c.Next()
	}
}

// Connect limits the unary calls of each user to the services that have the interceptor.
func Connect(lim *weir.Limiter) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if res, err := lim.Allow(ctx, req.Header().Get("X-User")); err != nil {
				return nil, connect.NewError(connect.CodeUnavailable, errors.New("try again"))
			} else if !res.Allowed {
				return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("retry after %v", res.RetryAfter))
			}
			return next(ctx, req)
		}
	}
}
