package compose_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/internal/script"
)

// Each token of a share is n tokens of the limit, also in the numbers of its answers.
func TestShare(t *testing.T) {
	t.Parallel()
	const n = 7
	for _, a := range []algorithm.Algorithm{
		algorithm.FixedWindow{Limit: 75, Window: time.Minute},
		algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 75},
		algorithm.TokenBucket{Capacity: 75, Refill: algorithm.PerSecond(3)},
		algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 3 * time.Second, Limit: 75}}},
	} {
		limit := mustLimit(t, a)
		part := *limit
		part.Capacity /= n
		programs := []*compose.Program{mustProgram(t, compose.Rule{Limit: limit}), mustProgram(t, compose.Rule{Limit: &part, Share: n})}
		benches := []*bench{newBench(t), newBench(t)}
		for i, c := range []struct {
			verb script.Verb
			cost int64
		}{
			{script.ConsumeMark, 2}, {script.Consume, 3}, {script.Settle, 1}, {script.Settle, 4}, {script.Peek, 4}, {script.Peek, 5}, {script.Refund, 0},
			{script.Consume, 6}, {script.Consume, 2}, {script.Consume, contract.MaxTokens/n + 1}, {script.Consume, contract.MaxTokens + 1}, {script.Consume, 1}, {script.Peek, 1},
		} {
			var got [2][]compose.Result
			var values [2][]string
			for j, b := range benches {
				_, got[j] = b.do(programs[j], 1, c.verb, "a", compose.Call{Cost: min(c.cost, contract.MaxTokens) * []int64{n, 1}[j], Gen: 1 + int64(i)})
				for k := range programs[j].Keys(0) {
					values[j] = append(values[j], b.values(fmt.Sprint("{x}:0:", k))...)
				}
			}
			if !slices.Equal(values[0], values[1]) {
				t.Errorf("%+v, step %d: a share writes %q, want %q", a, i, values[1], values[0])
			}
			for j, whole := range got[0] {
				share := got[1][j]
				if whole.Remaining /= n; share.Allowed != whole.Allowed || share.Remaining != whole.Remaining || share.RetryAfter != whole.RetryAfter || share.Limit != 75/n {
					t.Errorf("%+v, step %d: a share answers %+v, want %+v", a, i, share, whole)
				}
			}
		}
	}
}
