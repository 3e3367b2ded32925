package weir

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/store"
)

// An Answer is the answer to one request of [Limiter.DoMany].
type Answer struct {
	Result Result
	Err    error // the error of this request; if it is not nil, Result is zero
}

// DoMany decides many requests. It decides each request like [Limiter.Decide],
// independently of the others. The answers are in the order of requests. If two
// requests have the same key, either of them can be decided first.
//
// DoMany uses the first of these ways that is possible:
//   - If a wrapper of the limiter is no [ManyDecider], DoMany decides the requests one by one.
//   - If every request is a Peek, and MGet can read the state of all rules, DoMany
//     calls MGet of the store once. It also calls Time once if there is no
//     Options.Clock.
//   - If the store is a [store.Batcher], DoMany sends all requests in one batch.
//   - Otherwise DoMany decides the requests one by one.
//
// MGet cannot read the state of algorithm.SlidingLog, Concurrency and MetadataWindow.
// MGet can read the keys of different requests at different instants. If a key holds a
// list or a sorted set, MGet treats it as missing.
//
// A batch is held in memory: pass thousands of requests at once, not millions.
func (l *Limiter) DoMany(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	if l != nil && l.bound != nil {
		DecideMany(ctx, l.outer, requests, answers)
		return answers
	}
	for i := range answers {
		answers[i].Err = errNoLimiter
	}
	return answers
}

// DecideMany implements [ManyDecider], inside all wrappers.
func (b *bound) DecideMany(ctx context.Context, requests []Request, answers []Answer) {
	a := batch{make([]storeCall, 0, len(requests)), make([]store.Eval, 0, len(requests))}
	for i := range requests {
		answers[i].Err = a.add(b, i, &requests[i], 0)
	}
	if a.peeks() {
		b.peekMany(ctx, a.evals)
	} else {
		b.evalMany(ctx, a.evals)
	}
	a.answer(b, nil, answers)
}

// evalMany runs evals. If the store is a Batcher, it runs them in one batch.
func (b *bound) evalMany(ctx context.Context, evals []store.Eval) {
	if batcher, ok := b.store.(store.Batcher); ok && len(evals) > 0 {
		batcher.EvalBatch(ctx, evals)
		return
	}
	for i := range evals {
		e := &evals[i]
		e.Reply, e.Err = b.store.Eval(ctx, e.Script, e.Keys, e.Args, nil)
	}
}

// peekMany reads all keys of evals with one MGet, and runs the Go forms of evals over the
// values. The scripts only read, and their keys hold strings.
func (b *bound) peekMany(ctx context.Context, evals []store.Eval) {
	if len(evals) == 0 {
		return
	}
	var keys []string
	for i := range evals {
		keys = append(keys, evals[i].Keys...)
	}
	held, now, err := b.load(ctx, keys)
	for i := range evals {
		e := &evals[i]
		if e.Err = err; err == nil {
			n := len(e.Keys)
			e.Reply, e.Err = e.Script.Run(store.NewLoaded(now, held[:n]), e.Keys, e.Args, nil)
			held = held[n:]
		}
	}
}

// load reads keys. It reads the store's clock too, unless the limiter has a Clock.
func (b *bound) load(ctx context.Context, keys []string) (held []store.Content, now int64, err error) {
	if b.clock == nil {
		t, err := b.store.Time(ctx)
		if err != nil {
			return nil, 0, err
		}
		now = t.UnixMicro()
	}
	values, err := b.store.MGet(ctx, keys, make([]store.Value, 0, len(keys)))
	if err != nil {
		return nil, 0, err
	}
	if len(values) != len(keys) {
		return nil, 0, fmt.Errorf("weir: %w: MGet of the store returned %d values for %d keys: it must return one for each key", store.ErrScript, len(values), len(keys))
	}
	held = make([]store.Content, len(keys))
	for i, v := range values {
		if v.Kind() == store.Nil {
			continue
		}
		held[i].Kind = store.Other
		if n, ok := store.ParseNums(v.Str()); ok && v.Kind() == store.Bulk {
			held[i] = store.Content{Kind: store.Numbers, Nums: n}
		}
	}
	return held, now, nil
}
