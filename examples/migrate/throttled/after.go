package throttled

import (
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/weirhttp"
)

// After limits each user to 6 requests per minute and a burst of 3.
func After(st store.Store, next http.Handler) (http.Handler, error) {
	quota := algorithm.GCRA{Rate: algorithm.PerMinute(6), Burst: 3} // MaxBurst + 1
	lim, err := weir.New("api", st, quota, nil)
	if err != nil {
		return nil, err
	}
	limit, err := weirhttp.New(lim, weirhttp.By(weirhttp.Header("X-User")),
		&weirhttp.Options{Headers: weirhttp.XRateLimit})
	if err != nil {
		return nil, err
	}
	return limit(next), nil
}
