package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// BenchmarkCoalesce is BenchmarkRedis for a store that sends concurrent calls together,
// beside one that does not.
func BenchmarkCoalesce(b *testing.B) {
	rdb := connect(b)
	var contenders []*remote
	for _, c := range []struct {
		name string
		st   store.Store
	}{
		{"alone", goredis.New(rdb)},
		{"coalesced", store.Coalesce(goredis.New(rdb))},
	} {
		lim, err := weir.New(c.name, c.st, algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}, nil)
		if err != nil {
			b.Fatal(err)
		}
		contenders = append(contenders, &remote{
			name: c.name,
			allow: func(ctx context.Context, key ...string) (bool, error) {
				res, err := lim.Allow(ctx, key...)
				return res.Allowed, err
			},
			reset: lim.Reset,
		})
	}
	known(b, contenders)
	for _, callers := range []int{1, 64} {
		for _, r := range contenders {
			b.Run(fmt.Sprintf("impl=%s/callers=%d", r.name, callers), r.bench(callers, rdb))
		}
	}
}
