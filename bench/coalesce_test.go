package bench

import (
	"fmt"
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// BenchmarkCoalesce is BenchmarkRedis for a store that sends concurrent calls together,
// beside one that does not.
func BenchmarkCoalesce(b *testing.B) {
	rdb := connect(b)
	contenders := []*remote{
		newWeirOver(b, goredis.New(rdb), "alone", "alone", gcra, nil),
		newWeirOver(b, store.Coalesce(goredis.New(rdb)), "coalesced", "coalesced", gcra, nil),
	}
	known(b, contenders)
	for _, callers := range []int{1, 64} {
		for _, r := range contenders {
			b.Run(fmt.Sprintf("impl=%s/callers=%d", r.name, callers), r.bench(callers, rdb))
		}
	}
}
