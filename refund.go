package weir

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/algorithm"
)

// Refund gives back what the decision with that [Request].ID took for path, and
// reports whether there was anything left to give: of tokens that have come back by
// themselves since, or of a window that is over, nothing is. It never makes a rule
// more than full. A second refund of one decision gives nothing, so it can be tried
// again after an error. Leases are not ended: see [Limiter.Release].
//
// A decision under [Request].Limits is given back under the same ones, by
// [Limiter.RefundRequest].
//
// The error is [ErrUnsupported] if a rule's algorithm gives nothing back, or as of
// [Limiter.Do].
func (l *Limiter) Refund(ctx context.Context, id string, path ...string) (bool, error) {
	return l.refund(ctx, &Request{Path: path, ID: id})
}

// RefundRequest is [Limiter.Refund] of what r took, of which Path, ID and Limits
// count.
func (l *Limiter) RefundRequest(ctx context.Context, r Request) (bool, error) {
	return l.refund(ctx, &r)
}

// refund is Refund of the decision on r.
func (l *Limiter) refund(ctx context.Context, r *Request) (bool, error) {
	if r.ID == "" {
		return false, fmt.Errorf("weir: %w: Refund: the ID is empty: give each decision a Request.ID", ErrInvalidKey)
	}
	p, err := l.planFor(r.Limits)
	if err != nil {
		return false, err
	}
	if err := l.checkRequest(&Request{ID: r.ID, Limits: r.Limits}, &algorithm.Request{}, false); err != nil {
		return false, fmt.Errorf("weir: %w", err)
	}
	if l.leases {
		if p, err = l.part(l.only(func(f *algorithm.Fragment) bool { return f.Charge != nil }), r.Limits); err != nil {
			return false, err
		}
	}
	return l.giveBack(ctx, p, algorithm.Request{}, r.Path, r.ID, r.Limits)
}

// Release ends the lease of that name that path holds, see [Request].Lease, and
// reports whether there was one. It ends nobody else's, however late it comes, and
// can be tried again after an error. The error is [ErrUnsupported] if no rule holds
// leases, or as of [Limiter.Do].
func (l *Limiter) Release(ctx context.Context, lease string, path ...string) (bool, error) {
	p, ask, err := l.leased("Release", lease)
	if err != nil {
		return false, err
	}
	return l.giveBack(ctx, p, ask, path, "", nil)
}

// Renew makes the lease of that name that path holds last for as long again from
// now, and takes nothing from rules that hold no leases. If it was released or has
// run out, the answer is a denial: what it protected may be in other hands. The
// error is as of [Limiter.Release].
func (l *Limiter) Renew(ctx context.Context, lease string, path ...string) (Result, error) {
	p, ask, err := l.leased("Renew", lease)
	if err != nil {
		return Result{}, err
	}
	if err := l.space.check(path); err != nil {
		return Result{}, fmt.Errorf("weir: %w", err)
	}
	now, err := l.now()
	if err != nil {
		return Result{}, err
	}
	ask.RenewOnly = true
	c := call{plan: p, script: p.program.Decide, ask: ask, take: true}
	reply, err := l.store.Eval(ctx, c.script, l.keysOf(p, path, ""), l.appendArgs(nil, p, now, &ask, nil), nil)
	if err != nil {
		return Result{}, err
	}
	return l.result(&c, reply, nil, nil)
}

// leased returns the plan of the rules that hold leases, and what verb asks of them.
func (l *Limiter) leased(verb, lease string) (*plan, algorithm.Request, error) {
	ask := algorithm.Request{Cost: 1, Lease: lease}
	if !l.leases {
		return nil, ask, fmt.Errorf("weir: %w: %s: no rule holds leases; algorithm.Concurrency does", ErrUnsupported, verb)
	}
	if lease == "" {
		return nil, ask, fmt.Errorf("weir: %w: %s: its name is empty", ErrInvalidLease, verb)
	}
	p, err := l.part(l.only(func(f *algorithm.Fragment) bool { return f.Leases }), nil)
	if err != nil {
		return nil, ask, err
	}
	for _, i := range p.rules {
		if c, ok := l.rules[i].limit.(algorithm.RequestChecker); ok {
			if err := c.CheckRequest(ask); err != nil {
				return nil, ask, fmt.Errorf("weir: rule %q: %w", l.rules[i].name, err)
			}
		}
	}
	return p, ask, nil
}

// giveBack runs the refund script of p.
func (l *Limiter) giveBack(ctx context.Context, p *plan, ask algorithm.Request, path []string, id string, limits []algorithm.Limit) (bool, error) {
	if err := l.space.check(path); err != nil {
		return false, fmt.Errorf("weir: %w", err)
	}
	now, err := l.now()
	if err != nil {
		return false, err
	}
	script, err := p.program.Refund()
	if err != nil {
		return false, fmt.Errorf("weir: %w: %w", ErrUnsupported, err)
	}
	reply, err := l.store.Eval(ctx, script, l.keysOf(p, path, id), l.appendOnes(nil, p, now, ask, limits), nil)
	if err != nil {
		return false, err
	}
	n, _, err := p.program.Outcome(reply)
	if err != nil {
		return false, fmt.Errorf("weir: %w", err)
	}
	return n > 0, nil
}
