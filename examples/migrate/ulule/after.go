package ulule

import (
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/weirhttp"
)

// NewLimit returns a middleware that limits each IP address to 3 requests per hour.
func NewLimit(st store.Store) (func(http.Handler) http.Handler, error) {
	lim, err := weir.New("limiter", st, algorithm.FixedWindow{Limit: 3, Window: time.Hour}, nil)
	if err != nil {
		return nil, err
	}
	return weirhttp.New(lim, weirhttp.By(weirhttp.RemoteIP), &weirhttp.Options{
		Headers: weirhttp.XRateLimitUnix, // as ulule/limiter: Reset is a Unix time
		Reject: func(w http.ResponseWriter, _ *http.Request, why weirhttp.Rejection) {
			if why.Status == http.StatusTooManyRequests {
				http.Error(w, "Limit exceeded", why.Status)
				return
			}
			http.Error(w, http.StatusText(why.Status), why.Status)
		},
	})
}
