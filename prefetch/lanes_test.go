package prefetch_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
)

// A lane prefetches none of the tokens that it keeps free, and uses none that the whole limit
// has prefetched.
func TestLanes(t *testing.T) {
	t.Parallel()
	for _, of := range []func(limit int64) algorithm.Algorithm{
		func(limit int64) algorithm.Algorithm {
			return algorithm.TokenBucket{Capacity: limit, Refill: algorithm.PerSecond(100)}
		},
		func(limit int64) algorithm.Algorithm { return weirtest.Window(limit, 10*time.Second) },
	} {
		c := weirtest.NewClock()
		bare := weirtest.New(t, weirtest.NewStore(c), of(1000))
		whole, log := prefetching(t, bare, c, prefetch.Options{})
		lane := weirtest.With(t, whole, weir.Rule{Algorithm: of(600)})
		held, free := warm(t, whole, log, 10), weirtest.Left(t, bare, "u").Remaining
		for _, tt := range []struct {
			name string
			l    *weir.Limiter
			want int64
		}{{"the lane", lane, free - 400}, {"the whole limit", whole, 400 + held}} {
			n, calls := int64(0), 0
			for weirtest.Decide(t, tt.l, weir.Request{Key: weir.KeyOf("u")}).Allowed {
				n++
			}
			if calls = len(log.take()); n != tt.want || int64(calls) > n/4 {
				t.Errorf("%T: %s allowed %d requests with %d calls, want %d with a quarter of the calls", of(1), tt.name, n, calls, tt.want)
			}
		}
	}
}
