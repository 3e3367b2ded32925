package xtimerate

import (
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/weirhttp"
)

// After limits each user to a request in 20 seconds and a burst of 3.
func After(st store.Store, next http.Handler) (http.Handler, error) {
	lim, err := weir.New("api", st, algorithm.TokenBucket{Capacity: 3, Refill: algorithm.Every(20 * time.Second)}, nil)
	if err != nil {
		return nil, err
	}
	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.Header("X-User")), nil)
	if err != nil {
		return nil, err
	}
	return limit(next), nil
}
