package weir

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/internal/compose"
	"github.com/weir-go/weir/store"
)

// An Answer is the answer to one request of [Limiter.DoMany].
type Answer struct {
	Result Result
	Err    error // of this request alone; Result is then zero
}

// DoMany decides every one of requests, each by itself as [Limiter.Decide] would. The
// answers are in the order of requests. They need one flush for each shard, if the store
// has batches, and run in any order: if two requests have the same key, either can be
// decided first.
//
// If all requests are of the Op Peek, they are one MGet and one Time of the store. They
// are not read at one instant then, and a key of a wrong type reads as missing. Rules
// whose state MGet cannot read, algorithm.SlidingLog, Concurrency and MetadataWindow,
// still need a batch. A batch is held in memory at once: ask for some thousands of
// requests, not for millions.
//
// If the limiter has wrappers, the requests are decided one by one.
func (l *Limiter) DoMany(ctx context.Context, requests []Request) []Answer {
	answers := make([]Answer, len(requests))
	if l == nil || l.bound == nil || len(l.wrappers) > 0 {
		for i, r := range requests {
			answers[i].Result, answers[i].Err = l.Decide(ctx, r, nil)
		}
		return answers
	}
	b := l.bound
	peeks := !b.all.program.Sets()
	evals := make([]store.Eval, 0, len(requests))
	asked := make([]scratch, len(requests))
	for i := range requests {
		s := &asked[i]
		if answers[i].Err = b.prepare(s, &requests[i], 0, false); answers[i].Err != nil {
			continue
		}
		peeks = peeks && s.verb == compose.Peek
		evals = append(evals, store.Eval{Script: s.part.program.Script(s.verb), Keys: s.keys, Args: s.args})
	}
	if peeks {
		b.peekMany(ctx, evals)
	} else {
		b.evalMany(ctx, evals)
	}
	n := 0
	for i := range answers {
		a := &answers[i]
		if a.Err != nil {
			continue
		}
		if a.Err = evals[n].Err; a.Err == nil {
			asked[i].flat = asked[0].flat // the room of one serves all
			a.Result, a.Err = b.result(&asked[i], evals[n].Reply, nil)
			asked[0].flat = asked[i].flat
		}
		n++
	}
	return answers
}

// evalMany runs evals, in a batch if the store has batches.
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

// peekMany runs evals, which read string keys alone, over what one MGet read.
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

// load reads keys, and the store's clock unless the caller brings the time.
func (b *bound) load(ctx context.Context, keys []string) (held []store.Held, now int64, err error) {
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
		return nil, 0, fmt.Errorf("weir: %w: the store read %d values of %d keys", store.ErrScript, len(values), len(keys))
	}
	held = make([]store.Held, len(keys))
	for i, v := range values {
		if v.Kind() == store.Nil {
			continue
		}
		held[i].Kind = store.Other
		if n, ok := store.ParseNums(v.Str()); ok && v.Kind() == store.Bulk {
			held[i] = store.Held{Kind: store.Numbers, Nums: n}
		}
	}
	return held, now, nil
}
