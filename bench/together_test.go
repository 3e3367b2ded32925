package bench

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// four are rules of four algorithms.
var four = []weir.Rule{
	{Name: "gcra", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(perSecond), Burst: burst}},
	{Name: "fixedwindow", Algorithm: algorithm.FixedWindow{Limit: burst, Window: time.Hour}},
	{Name: "slidingcounter", Algorithm: algorithm.SlidingCounter{Limit: burst, Window: time.Hour}},
	{Name: "slidinglog", Algorithm: algorithm.SlidingLog{Limit: 1000, Window: 100 * time.Millisecond}},
}

// BenchmarkTogether asks in pipelines, as BenchmarkServer does, a limiter of four
// rules, and a limiter of each of them. The sum of the latter is the cost of four
// separate decisions.
func BenchmarkTogether(b *testing.B) {
	rdb := connect(b)
	contenders := []*remote{newWeirRedis(b, rdb, "together", weir.Policy{Name: "four", Rules: four}, nil)}
	for _, rule := range four {
		contenders = append(contenders, newWeirRedis(b, rdb, "apart-"+rule.Name, policy(rule), nil))
	}
	known(b, contenders)
	benchServer(b, rdb, contenders)
}
