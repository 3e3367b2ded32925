package golimiter

import (
	"net/http"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// After limits each IP address to 3 requests per hour. Nothing needs closing.
func After(next http.Handler) (http.Handler, error) {
	lim, err := weir.New("api", memory.New(nil), algorithm.FixedWindow{Limit: 3, Window: time.Hour}, nil)
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
