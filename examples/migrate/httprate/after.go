package httprate

import (
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/weirhttp"
)

// After limits each IP address to 3 requests per minute.
func After(st store.Store, next http.Handler) (http.Handler, error) {
	lim, err := weir.New("api", st, algorithm.SlidingCounter{Limit: 3, Window: time.Minute}, nil)
	if err != nil {
		return nil, err
	}
	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.RemoteIP),
		&weirhttp.Options{Headers: weirhttp.XRateLimitUnix})
	if err != nil {
		return nil, err
	}
	return limit(next), nil
}
