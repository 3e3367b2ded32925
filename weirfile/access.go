package weirfile

import (
	"cmp"
	"context"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// An Access says whether callers are limited. The zero value, Limited, means that the rules
// decide.
//
// The limiter of an unlimited or a blocked caller answers as an [algorithm.Pause] that is
// always open or always closed, and neither calls the store nor counts anything. It stands
// outside the wrappers of Options.Wrap, so an outage does not open it. Requests that end or
// renew an earlier decision reach the store. A Pause of an unlimited caller has no effect:
// block it.
type Access string

const (
	Limited   Access = ""          // the rules decide
	Unlimited Access = "unlimited" // every request is allowed, and nothing is counted
	Blocked   Access = "blocked"   // every new request is denied, and can never be allowed
)

// inFile has what a file says, in words.
var inFile = map[Access]string{Limited: "limited by the rules", Unlimited: "unlimited: true", Blocked: "blocked: true"}

// access reads the field of an Access into to.
func (r *reader) access(field Access, n *yaml.Node, what string, to *Access) {
	switch {
	case n.Kind != yaml.ScalarNode:
		r.fail(placeOf(n), "%s: %s must be true, or be left out", what, field)
	case n.Value != "true" || quoted(n):
		r.fail(placeOf(n), "%s: %s is %q: it must be true, or be left out", what, field, n.Value)
	case *to != Limited:
		r.fail(placeOf(n), "%s is unlimited and blocked: it must be one of them", what)
	}
	*to = field
}

// A door is the Decider of callers who are unlimited or blocked.
type door struct {
	access Access
	lim    *weir.Limiter
	next   weir.Decider
}

// wrap is a [weir.Wrapper].
func (a Access) wrap(lim *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	return &door{a, lim, next}, nil
}

// Unwrap returns the next Decider, for [weir.Find].
func (d *door) Unwrap() weir.Decider { return d.next }

// Decide implements [weir.Decider].
func (d *door) Decide(ctx context.Context, r weir.Request, each []weir.Result) (res weir.Result, err error) {
	open := d.access == Unlimited
	if asks := r.Op == weir.Consume || r.Op == weir.TakeUpTo || r.Op == weir.Peek || r.Op == weir.Force && open; !asks {
		res, err = d.next.Decide(ctx, r, each)
		found := r.Op != weir.Renew && (res.Allowed || res.Replayed || res.Rule != "")
		if open && err == nil && !found && r.Op <= weir.Finish { // the decision may have been made here
			res.Allowed, res.Replayed = true, r.Op == weir.Finish
			res.Granted, _ = r.Actual.Cost()
		}
		return res, err
	}
	if err := cmp.Or(ctx.Err(), d.lim.Check(r, each)); err != nil {
		return res, err
	}
	clear(each)
	if res.Type, res.Rule = weir.PauseRule, string(d.access); !open {
		res.Delay, res.RetryAfter, res.ResetAfter = weir.Never, weir.Never, weir.Never
		return res, nil
	}
	res.Allowed, res.Limit, res.Remaining = true, algorithm.MaxTokens, algorithm.MaxTokens
	if r.Op != weir.Peek {
		res.Granted = max(r.Cost, 1)
	}
	return res, nil
}
