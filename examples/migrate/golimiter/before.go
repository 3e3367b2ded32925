// Package golimiter moves a program from go-limiter to weir.
package golimiter

import (
	"net/http"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

// Before limits each IP address to 3 requests per hour. The caller closes the store.
func Before(next http.Handler) (http.Handler, limiter.Store, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 3, Interval: time.Hour})
	if err != nil {
		return nil, nil, err
	}
	limit, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, nil, err
	}
	return limit.Handle(next), store, nil
}
