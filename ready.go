package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir/internal/guard"
	"github.com/weir-go/weir/internal/prose"
	"github.com/weir-go/weir/store"
)

// Ready checks that the store can make the decisions of l, when a program starts or in a
// readiness probe. It returns:
//   - nil if the store made a decision.
//   - store.ErrUnavailable if the server is away or too slow. Check again, or start with
//     a fallback: see package outage.
//   - any other error if somebody must act, for example correct a password. Until then, a
//     limiter that fails open has no limits.
//
// Some mistakes look like an outage, for example a wrong address, so alert on an
// ErrUnavailable that stays. A server that was just demoted looks like a mistake, so let
// a probe fail a few times. Ready bypasses the wrappers, and uses keys of its own, which
// it removes.
func (l *Limiter) Ready(ctx context.Context) error {
	if l == nil || l.ruleSet == nil {
		return errNoLimiter
	}
	for _, b := range append([]*ruleSet{l.ruleSet}, l.ruleSet.shadows...) {
		p, err := b.probe()
		if err == nil {
			err = p.tryAll(ctx)
		}
		if err != nil {
			return notReady(err)
		}
	}
	return nil
}

// notReady returns the error of Ready for err.
func notReady(err error) error {
	switch {
	case errors.Is(err, store.ErrMisconfigured): // and no ErrUnavailable
		return fail(store.ErrMisconfigured, "Ready: %s", plain(err))
	case guard.Contextual(err):
		return fmt.Errorf("weir: Ready: %w: %w", store.ErrUnavailable, err)
	}
	return prose.Errorf(err, "weir: Ready: %s", plain(err))
}

// probe returns b with keys for Ready: a part of each is "%ready:", which is no escaped
// text.
func (b *ruleSet) probe() (*ruleSet, error) {
	space := &keySpace{head: b.space.head + "%ready:", segments: b.space.segments, units: b.space.units, secret: b.space.secret}
	rules := slices.Clone(b.rules)
	by := make([]segmentSet, len(rules))
	for i := range rules {
		by[i] = rules[i].key.by
	}
	if err := space.addRules(rules, by); err != nil {
		return nil, err
	}
	g := *b.base
	g.space = space
	p, err := bind(&g, rules, true) // so that a Reset clears every rule
	if err == nil {
		p.way = byScript // the other ways take the text between the braces for segments
	}
	return p, err
}

// tryAll decides a request in each way, for a new key, and removes what it has written.
func (b *ruleSet) tryAll(ctx context.Context) (err error) {
	var key Key
	text := rand.Text()
	key.set(slices.Repeat([]string{text}, len(b.space.segments)))
	one := map[string]int64{} // of each unit
	for _, unit := range b.space.units {
		one[unit] = 1
	}
	costs := CostsOf(one)
	try := func(r Request) {
		if err == nil {
			r.Key, r.Costs = key, costs
			_, err = b.Decide(ctx, r, nil)
		}
	}
	id, undo := "", Peek
	switch {
	case b.leases != nil:
		id, undo = text, Release
	case b.can.without(refunds) == nil:
		id, undo = text, Refund
	}
	try(Request{ID: id})
	try(Request{Op: Peek, ID: id})
	try(Request{Op: undo, ID: id})
	if err != nil {
		_ = guard.Undo(ctx, func(ctx context.Context) (Result, error) {
			_, _ = b.Decide(ctx, Request{Op: undo, Key: key, ID: id}, nil)
			return b.Decide(ctx, Request{Op: Reset, Key: key}, nil)
		})
		return err
	}
	try(Request{Op: Reset})
	return err
}
