package weir

import (
	"context"
	"slices"

	"github.com/weir-go/weir/internal/failure"
)

// manyPerBudget is the largest number of requests that are sent at once within one budget.
const manyPerBudget = 100

// decideMany is Decide for many requests. While the store works, it sends them in batches, if
// they only consume and peek.
func (d *degraded) decideMany(ctx context.Context, requests []Request, answers []Answer) {
	for n := 0; len(requests) > 0; requests, answers = requests[n:], answers[n:] {
		n = min(len(requests), manyPerBudget)
		plain := !slices.ContainsFunc(requests[:n], func(r Request) bool { return r.Op > TakeUpTo })
		if !plain || d.breaker.isOpen() || !d.batch(ctx, requests[:n], answers[:n]) {
			oneByOne(ctx, d, requests[:n], answers[:n])
		}
	}
}

// batch decides requests in one batch. It returns false if the breaker has just opened.
func (d *degraded) batch(ctx context.Context, requests []Request, answers []Answer) bool {
	t, ok := d.breaker.enter()
	if !ok {
		return false
	}
	defer d.breaker.exit(t)
	short, cancel := d.within(ctx)
	defer cancel()
	d.bound.decideMany(short, requests, answers)
	var failed *failure.Error
	works := false
	for i := range answers {
		cause, answered, err := d.judge(ctx, short, answers[i].Err)
		works = works || answered && cause == nil
		if answers[i].Err = err; cause == nil {
			continue
		}
		failed = cause
		if !answered {
			answers[i].Result, answers[i].Err = d.answer(ctx, &requests[i], nil, cause)
		}
	}
	switch {
	case works: // also if a node of a cluster does not
		d.breaker.succeed()
	case failed != nil:
		d.breaker.fail(t, failed)
	}
	return true
}
