package weirtest

import (
	"context"

	"github.com/weir-go/weir"
)

// Pass is a [weir.Wrapper] that passes every request on.
func Pass(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) { return passing{next}, nil }

type passing struct{ next weir.Decider }

func (p passing) Unwrap() weir.Decider { return p.next }

func (p passing) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return p.next.Decide(ctx, r, each)
}

// Around returns a [weir.Wrapper] that makes d of the next Decider.
func Around[D weir.Decider](around func(next weir.Decider) D) weir.Wrapper {
	return func(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) { return around(next), nil }
}
