package bench

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
)

// BenchmarkRules asks in pipelines, as BenchmarkServer does, limiters with more and more
// rules. Each rule is a GCRA with a key of its own.
func BenchmarkRules(b *testing.B) {
	rdb := connect(b)
	contenders := ruleRemotes(b, rdb)
	known(b, contenders)
	benchServer(b, rdb, contenders)
}

func ruleRemotes(tb testing.TB, rdb *redis.Client) []*remote {
	tb.Helper()
	var contenders []*remote
	for _, n := range []int{1, 2, 4, 8, 16} {
		var rules []weir.Rule
		for i := range n {
			rules = append(rules, weir.Rule{Name: fmt.Sprintf("rule%02d", i), Algorithm: gcra})
		}
		contenders = append(contenders, newWeirRedis(tb, rdb, fmt.Sprintf("rules-%d", n), policy(rules...), nil))
	}
	return contenders
}
