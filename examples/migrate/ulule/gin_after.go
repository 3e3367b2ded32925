package ulule

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/weir-go/weir/store"
)

// GinAfter limits the routes of r. If a request is not passed on, it ends gin's chain.
func GinAfter(st store.Store, r *gin.Engine) error {
	limit, err := NewLimit(st)
	if err != nil {
		return err
	}
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
	return nil
}
