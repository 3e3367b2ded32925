// Package ulule moves a program from ulule/limiter to weir, with net/http and with gin.
package ulule

import (
	"net/http"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
)

// Before limits each IP address to 3 requests per hour.
func Before(store limiter.Store, next http.Handler) (http.Handler, error) {
	rate, err := limiter.NewRateFromFormatted("3-H")
	if err != nil {
		return nil, err
	}
	return stdlib.NewMiddleware(limiter.New(store, rate)).Handler(next), nil
}
