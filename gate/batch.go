package gate

import (
	"context"

	"github.com/weir-go/weir"
)

// Rest decides the requests with the indexes in rest, as [weir.DecideMany] does, and sets
// their answers.
func Rest(ctx context.Context, d weir.Decider, requests []weir.Request, answers []weir.Answer, rest []int) {
	if len(rest) == 0 {
		return
	}
	some, got := make([]weir.Request, len(rest)), make([]weir.Answer, len(rest))
	for n, i := range rest {
		some[n] = requests[i]
	}
	weir.DecideMany(ctx, d, some, got)
	for n, i := range rest {
		answers[i] = got[n]
	}
}
