package ulule

import (
	"github.com/gin-gonic/gin"
	"github.com/ulule/limiter/v3"
	ginlimiter "github.com/ulule/limiter/v3/drivers/middleware/gin"
)

// GinBefore limits the routes of r.
func GinBefore(store limiter.Store, r *gin.Engine) error {
	rate, err := limiter.NewRateFromFormatted("3-H")
	if err != nil {
		return err
	}
	r.Use(ginlimiter.NewMiddleware(limiter.New(store, rate)))
	return nil
}
