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

// words returns a as a file has it.
func (a Access) words() string {
	if a == Limited {
		return "limited by the rules"
	}
	return string(a) + ": true"
}

// access reads the field name, if it is one of an Access, into to.
func (r *reader) access(name string, n *yaml.Node, what string, to *Access) bool {
	if n == nil || n.Kind != yaml.ScalarNode || name != string(Unlimited) && name != string(Blocked) {
		return false
	}
	switch {
	case n.Value != "true" || quoted(n):
		r.fail(placeOf(n), "%s: %s is %q: it must be true, or be left out", what, name, n.Value)
	case *to != Limited:
		r.fail(placeOf(n), "%s is unlimited and blocked: it must be one of them", what)
	}
	*to = Access(name)
	return true
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
	switch r.Op {
	case weir.Consume, weir.TakeUpTo, weir.Peek:
	case weir.Force:
		if !open {
			return d.next.Decide(ctx, r, each)
		}
	default:
		if res, err = d.next.Decide(ctx, r, each); open && err == nil {
			ended(&r, &res)
		}
		return res, err
	}
	if err := cmp.Or(ctx.Err(), d.lim.Check(r, each)); err != nil {
		return res, err
	}
	clear(each)
	res = weir.Result{Type: weir.PauseRule, Rule: string(d.access), Delay: weir.Never, RetryAfter: weir.Never, ResetAfter: weir.Never}
	if open {
		res = weir.Result{Allowed: true, Type: weir.PauseRule, Rule: string(d.access), Limit: algorithm.MaxTokens, Remaining: algorithm.MaxTokens}
		if r.Op != weir.Peek {
			res.Granted = max(r.Cost, 1)
		}
	}
	return res, nil
}

// ended sets the answer to a request that ends or renews a decision of an unlimited caller,
// which the store does not know, to that of one that it knows.
func ended(r *weir.Request, res *weir.Result) {
	switch found := res.Allowed || res.Replayed || res.Rule != ""; {
	case r.Op == weir.Renew:
		res.Allowed = true
	case found || r.Op > weir.Finish: // Pause, Resume and Reset are about the key
	default:
		res.Allowed, res.Replayed = true, r.Op == weir.Finish
		res.Granted, _ = r.Actual.Cost()
	}
}
