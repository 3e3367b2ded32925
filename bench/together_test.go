package bench

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// four are rules over four algorithms.
var four = []weir.Rule{
	{Name: "gcra", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}},
	{Name: "fixedwindow", Algorithm: algorithm.FixedWindow{Limit: burst, Window: time.Hour}},
	{Name: "slidingcounter", Algorithm: algorithm.SlidingCounter{Limit: burst, Window: time.Hour}},
	{Name: "slidinglog", Algorithm: algorithm.SlidingLog{Limit: 1000, Window: 100 * time.Millisecond}},
}

// BenchmarkTogether asks in pipelines, as BenchmarkServer does, a limiter of four
// rules, and one of each alone: what four decisions cost apart is the sum.
func BenchmarkTogether(b *testing.B) {
	rdb := connect(b)
	contenders := []*remote{newWeirRedis(b, rdb, "together", weir.Options{Prefix: "weir-four"}, four...)}
	for _, rule := range four {
		contenders = append(contenders, newWeirRedis(b, rdb, "apart-"+rule.Name, weir.Options{}, rule))
	}
	known(b, contenders)
	benchServer(b, rdb, contenders)
}
