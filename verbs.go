package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// Allow consumes one token from every rule, if all rules allow the request.
func (l *Limiter) Allow(ctx context.Context, key ...string) (res Result, err error) {
	var r Request
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// AllowN consumes cost tokens, at least 1, from every rule, if all rules allow the
// request.
func (l *Limiter) AllowN(ctx context.Context, cost int64, key ...string) (res Result, err error) {
	if cost < 1 {
		return Result{}, errCost("AllowN", cost)
	}
	r := Request{Cost: cost}
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// Peek reports whether [Limiter.Allow] would allow a request, and changes nothing.
func (l *Limiter) Peek(ctx context.Context, key ...string) (res Result, err error) {
	r := Request{Op: Peek}
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// TakeUpTo consumes as many tokens as all rules allow, up to most, and [Result].Granted
// is their number. If there are none, the request is denied, and RetryAfter says when
// there is one. A rule with a Cost consumes exactly its Cost.
//
// The error is [ErrUnsupported] if every rule has a Cost, or an algorithm.Concurrency has
// none.
func (l *Limiter) TakeUpTo(ctx context.Context, most int64, key ...string) (res Result, err error) {
	if most < 1 {
		return Result{}, errCost("TakeUpTo", most)
	}
	r := Request{Op: TakeUpTo, Cost: most}
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// Force consumes cost tokens, at least 1, from every rule, even if a rule would deny the
// request. It is for work that has already happened. A rule can then be in debt: its
// Remaining is 0, and requests are denied until the debt has been refilled.
//
// Debt has a bound, in most rules at least 100 times the limit: see
// docs/reference/algorithms.md. A cost above it is an [ErrInvalidCost]. If earlier debt
// leaves less, Force consumes what is left, and [Result].Granted is lower. An
// algorithm.Concurrency has no debt.
func (l *Limiter) Force(ctx context.Context, cost int64, key ...string) (res Result, err error) {
	if cost < 1 {
		return Result{}, errCost("Force", cost)
	}
	r := Request{Op: Force, Cost: cost}
	r.Key.set(key)
	err = l.decide(ctx, &r, nil, &res)
	return res, err
}

// DoMany decides many requests independently. The answers are in the order of requests.
// Of two requests with the same key, either can be decided first.
//
// If the store is a [store.Batcher] and every wrapper a [ManyDecider], the requests form
// one batch. It is held in memory, so pass thousands of requests at once, not millions.
func (l *Limiter) DoMany(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	if l != nil && l.ruleSet != nil {
		DecideMany(ctx, l.outer, requests, answers)
		return answers
	}
	for i := range answers {
		answers[i].Err = errNoLimiter
	}
	return answers
}

// Reset clears the rules identified by the full key, atomically. To clear one with fewer
// segments in By, which other keys share, select it with [Limiter.Only].
func (l *Limiter) Reset(ctx context.Context, key ...string) error {
	_, err := l.Decide(ctx, Request{Key: KeyOf(key...), Op: Reset}, nil)
	return err
}

// Pause closes a key for the time d. Every process then denies its requests, with an
// exact RetryAfter. Exactly one rule must be an algorithm.Pause, whose By says what is
// closed.
//
// During a pause, a Reserve is denied, and a Wait sleeps: see [Limiter.WaitFor]. Requests
// that were allowed or reserved before it go ahead at their turn, even if the key is
// still closed.
//
// id is the random name of the pause, for [Limiter.Resume]. A pause never shortens
// another one. To extend one, or to retry after an error, call [Limiter.Decide] with the
// op Pause and an ID.
func (l *Limiter) Pause(ctx context.Context, d time.Duration, key ...string) (id string, err error) {
	r := Request{Key: KeyOf(key...), Op: Pause, ID: rand.Text(), For: d}
	if _, err := l.Decide(ctx, r, nil); err != nil {
		return "", err
	}
	return r.ID, nil
}

// Resume ends the pause with that ID, and reports whether it was running. The key stays
// closed while another pause lasts. Callers who sleep notice it only when the pause would
// have ended. Resume can be retried after an error.
func (l *Limiter) Resume(ctx context.Context, id string, key ...string) (bool, error) {
	res, err := l.Decide(ctx, Request{Key: KeyOf(key...), Op: Resume, ID: id}, nil)
	return res.Allowed, err
}

// An Entry is an allowed request in the list of [Limiter.Entries].
type Entry = contract.Entry

// Entries lists the newest allowed requests in the current window of an
// algorithm.MetadataWindow, at most algorithm.MaxEntries, the oldest first. If several
// rules keep metadata, select one with [Limiter.Only].
func (l *Limiter) Entries(ctx context.Context, key ...string) ([]Entry, error) {
	if l == nil || l.ruleSet == nil {
		return nil, errNoLimiter
	}
	b, k := l.ruleSet, KeyOf(key...)
	switch {
	case !b.can.any(entries):
		return nil, fail(ErrUnsupported, "Entries: no rule keeps metadata: a rule must be an algorithm.MetadataWindow")
	case b.kept == nil:
		return nil, fail(ErrInvalidRule, "Entries: %d rules keep metadata: select one with Limiter.Only", b.can.count(entries))
	}
	if err := b.space.check(&k); err != nil {
		return nil, err
	}
	var q query
	q.Verb, q.Call.Cost = script.Entries, 1
	q.group, q.Program = b.kept, b.kept.program
	if b.clock != nil {
		var err error
		if q.Call.Now, err = b.now(); err != nil {
			return nil, err
		}
	}
	var s buffers
	b.pack(&s, &q, &Request{Key: k}, false)
	p := b.kept.program
	reply, err := b.store.Eval(ctx, p.Script(script.Entries), s.keys, s.args, nil)
	if err != nil {
		return nil, err
	}
	list, err := p.Entries(reply)
	if errors.Is(err, store.ErrForeign) {
		err = store.Foreign(s.keys[0])
	}
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	return list, nil
}
