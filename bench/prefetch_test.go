package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store/goredis"
)

// BenchmarkPrefetch makes decisions for one key, with up to 1,000 tokens in each round trip, beside
// a round trip for each decision.
func BenchmarkPrefetch(b *testing.B) {
	rdb := connect(b)
	var contenders []*remote
	for _, name := range []string{"each", "prefetch"} {
		b.Cleanup(func() { // Reset deletes no markers
			ctx := context.Background()
			keys, err := rdb.Keys(ctx, "weir:"+name+":*").Result()
			if err == nil && len(keys) > 0 {
				err = rdb.Del(ctx, keys...).Err()
			}
			if err != nil {
				b.Errorf("deleting the keys of %s: %v", name, err)
			}
		})
		lim, err := weir.New(name, goredis.New(rdb), algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if name == "prefetch" {
			if lim, err = lim.Wrap(prefetch.New(&prefetch.Options{MaxTokens: 1000}).Wrap); err != nil {
				b.Fatal(err)
			}
		}
		contenders = append(contenders, &remote{
			name: name,
			many: true, // a round trip is for many decisions
			allow: func(ctx context.Context, key ...string) (bool, error) {
				res, err := lim.Allow(ctx, key...)
				return res.Allowed, err
			},
			reset: lim.Reset,
		})
	}
	draws := drawKeys(1)
	for _, callers := range []int{1, 64} {
		for _, r := range contenders {
			b.Run(fmt.Sprintf("impl=%s/callers=%d", r.name, callers), func(b *testing.B) { r.run(b, callers, draws, []*redis.Client{rdb}) })
		}
	}
}
