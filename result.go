package weir

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
)

// maxInts is the most integers that a reply holds.
const maxInts = 2 + MaxRules*6

// result turns the reply to what s asked into a result, and fills each, if it is not
// empty.
func (b *bound) result(s *scratch, reply []store.Value, each []Result) (Result, error) {
	if cap(s.flat) == 0 {
		s.flat = make([]store.Value, 0, maxInts)
	}
	p := s.part.program
	o, err := p.Outcome(s.verb, reply, s.flat)
	if err != nil {
		return Result{}, fmt.Errorf("weir: %w", err)
	}
	if len(each) > 0 {
		clear(each[:len(b.rules)])
	}
	switch s.op {
	case Reset:
		return Result{Allowed: true}, nil
	case Refund, Release:
		return Result{Allowed: o.N > 0}, nil
	}
	if o.N > s.call.Cost {
		return Result{}, fmt.Errorf("weir: %w: %s replied %d, of %d at most", store.ErrScript, p.Name(), o.N, s.call.Cost)
	}
	return b.combine(s, &o, each)
}

// combine makes one result of the answers of all rules.
func (b *bound) combine(s *scratch, o *compose.Outcome, each []Result) (Result, error) {
	var res Result
	allowed, granted, shared := o.N > 0, int64(0), false
	delay := time.Duration(0)
	for n, i := range s.part.rules {
		r := &b.rules[i]
		a := s.part.program.Answer(n, s.verb, o, &s.call)
		if allowed && !a.Allowed {
			return Result{}, fmt.Errorf("weir: %w: the script allowed the request: rule %q denies it by the script's own reply", store.ErrScript, r.name)
		}
		if s.op == Renew {
			a.Granted = 0
		}
		if r.cost == 0 {
			granted, shared = a.Granted, true
		}
		delay = max(delay, a.Delay)
		if len(each) > 0 {
			r.fill(&each[i], &a)
		}
		if n == 0 || allowed && a.Remaining < res.Remaining || !allowed && a.RetryAfter > res.RetryAfter {
			r.fill(&res, &a)
		}
	}
	if !allowed && res.Allowed {
		return Result{}, fmt.Errorf("weir: %w: the script denied the request: every rule allows it by the script's own reply", store.ErrScript)
	}
	if allowed {
		res.Delay = delay
	}
	if shared {
		res.Granted = granted
	}
	return res, nil
}

// fill sets res to the answer of r.
func (r *rule) fill(res *Result, a *compose.Answer) {
	res.Allowed, res.Granted, res.Delay = a.Allowed, a.Granted, a.Delay
	res.Rule, res.Limit, res.Window = r.name, a.Limit, a.Window
	res.Remaining, res.RetryAfter, res.ResetAfter = a.Remaining, a.RetryAfter, a.ResetAfter
	if !a.Allowed {
		res.Delay = Never
	}
}
