// Package routers shows the middleware of weirhttp with chi, gin and echo. With net/http, no
// adapter is needed: see the examples of weirhttp.
package routers

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
)

// A Middleware is what weirhttp.New returns.
type Middleware = func(http.Handler) http.Handler

// Chi returns a chi router. Middlewares of chi are those of net/http. With By(Pattern), use
// r.With(limit).Get(…), so that the route is chosen first.
func Chi(limit Middleware) http.Handler {
	r := chi.NewRouter()
	r.Use(limit)
	r.Get("/users/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("user " + chi.URLParam(r, "id")))
	})
	return r
}

// Gin returns a gin router.
func Gin(limit Middleware) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(ForGin(limit))
	r.GET("/users/:id", func(c *gin.Context) { c.String(http.StatusOK, "user "+c.Param("id")) })
	return r
}

// ForGin returns a gin middleware. If the request is not passed on, it ends gin's chain.
func ForGin(limit Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// Echo returns an echo router. echo has an adapter of its own.
func Echo(limit Middleware) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(limit))
	e.GET("/users/:id", func(c echo.Context) error { return c.String(http.StatusOK, "user "+c.Param("id")) })
	return e
}
