package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store/goredis"
)

// BenchmarkPrefetch makes decisions for one key, with up to 1,000 tokens in each round trip, beside
// a round trip for each decision.
func BenchmarkPrefetch(b *testing.B) {
	rdb := connect(b)
	contenders := []*remote{
		newWeirOver(b, goredis.New(rdb), "each", "each", gcra, nil),
		newWeirOver(b, goredis.New(rdb), "prefetch", "prefetch", gcra, nil, prefetch.New(&prefetch.Options{MaxTokens: 1000}).Wrap),
	}
	for _, r := range contenders {
		r.many = true      // a round trip is for many decisions
		b.Cleanup(func() { // Reset deletes no markers
			ctx := context.Background()
			keys, err := rdb.Keys(ctx, "weir:"+r.name+":*").Result()
			if err == nil && len(keys) > 0 {
				err = rdb.Del(ctx, keys...).Err()
			}
			if err != nil {
				b.Errorf("deleting the keys of %s: %v", r.name, err)
			}
		})
	}
	draws := drawKeys(1)
	for _, callers := range []int{1, 64} {
		for _, r := range contenders {
			b.Run(fmt.Sprintf("impl=%s/callers=%d", r.name, callers), func(b *testing.B) { r.run(b, callers, draws, []*redis.Client{rdb}) })
		}
	}
}
