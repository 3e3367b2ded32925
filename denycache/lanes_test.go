package denycache_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
)

// A whole limit and a lane of it allow the same with a cache as without one. So a remembered
// denial of the lane does not deny a request that may use the tokens that the lane keeps free.
func TestLanes(t *testing.T) {
	t.Parallel()
	for _, of := range []func(limit int64) algorithm.Algorithm{
		func(limit int64) algorithm.Algorithm {
			return algorithm.TokenBucket{Capacity: limit, Refill: algorithm.PerSecond(30)}
		},
		func(limit int64) algorithm.Algorithm { return weirtest.Window(limit, time.Second) },
	} {
		seed := rand.Uint64()
		rng, c := rand.New(rand.NewPCG(seed, 0)), weirtest.NewClock()
		bare := []*weir.Limiter{weirtest.New(t, weirtest.NewStore(c), of(9))}
		whole, n := cached(t, weirtest.New(t, weirtest.NewStore(c), of(9)), c, denycache.Options{MaxAge: time.Hour, MaxKeys: 1})
		lanes := []*weir.Limiter{whole}
		for _, l := range []*[]*weir.Limiter{&bare, &lanes} {
			*l = append(*l, weirtest.With(t, (*l)[0], weir.Rule{Algorithm: of(6)}))
		}
		const steps = 5000
		for step := range steps {
			c.Advance(time.Duration(rng.Int64N(20_000)) * time.Microsecond)
			i, r := rng.IntN(2), weir.Request{Key: weir.KeyOf(fmt.Sprint("u", rng.IntN(2))), Cost: 1 + rng.Int64N(2)}
			got, want := weirtest.Decide(t, lanes[i], r), weirtest.Decide(t, bare[i], r)
			if got.Allowed != want.Allowed || got.RetryAfter > want.RetryAfter { // later requests can make the wait longer
				t.Fatalf("seed %d, step %d, %d, %+v: got %+v, want %+v", seed, step, i, r, got, want)
			}
		}
		if *n == steps {
			t.Errorf("seed %d: all %d requests reached the store, want fewer", seed, steps)
		}
	}
}
