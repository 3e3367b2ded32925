package weir

import (
	"context"

	"github.com/weir-go/weir/store"
)

// An Answer is what became of one request of [Limiter.AllowMany].
type Answer struct {
	Result Result
	Err    error // of this request alone; the result is then zero
}

// AllowMany decides every one of requests, each by itself as [Limiter.Do] would,
// in one flush for each shard if the store has batches, and else one by one. They
// run in any order: two requests for one path can be decided either way round. The
// answers are in the order of requests.
func (l *Limiter) AllowMany(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	calls := make([]store.Eval, 0, len(requests))
	prepared := make([]call, 0, len(requests))
	of := make([]int, 0, len(requests)) // the request of each call
	for i := range requests {
		var s scratch
		var c call
		if answers[i].Err = l.prepare(&c, &s, &requests[i], false); answers[i].Err != nil {
			continue
		}
		calls = append(calls, store.Eval{Script: c.script, Keys: s.keys, Args: s.args})
		prepared, of = append(prepared, c), append(of, i)
	}
	l.evalBatch(ctx, calls)
	for n, i := range of {
		if answers[i].Err = calls[n].Err; answers[i].Err == nil {
			answers[i].Result, answers[i].Err = l.result(&prepared[n], calls[n].Reply, requests[i].Limits, requests[i].Each)
		}
	}
	return answers
}

// evalBatch runs calls in a batch if the store has that.
func (l *Limiter) evalBatch(ctx context.Context, calls []store.Eval) {
	if b, ok := l.store.(store.Batcher); ok {
		if len(calls) > 0 {
			b.EvalBatch(ctx, calls)
		}
		return
	}
	for i := range calls {
		c := &calls[i]
		c.Reply, c.Err = l.store.Eval(ctx, c.Script, c.Keys, c.Args, nil)
	}
}
