package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

// A storeCall is what b, a limiter or a shadow rule, asks the store for a request. eval
// is the index of the call. If err is not nil, b cannot decide the request, and there is
// no call.
type storeCall struct {
	b       *ruleSet
	request int
	query   query
	eval    int
	err     error
}

// A batch is a list of requests, as the store gets them.
type batch struct {
	list  []storeCall
	evals []store.Eval
}

// add adds the request r, with that index, of b and its shadow rules. each is the length
// of the caller's slice.
func (a *batch) add(b *ruleSet, request int, r *Request, each int) error {
	if err := a.ask(b, request, r, each); err != nil {
		return err
	}
	for _, shadow := range b.shadows {
		own := *r
		own.Metadata = ""
		if shadow.can.any(counts) {
			own.Actual.given, own.Actual.cost = false, 0
		}
		if bills := b.all.program.Bills(); r.Op == Finish && (shadow.leases != nil || b.leases != nil && !bills) {
			own.Op, own.Actual = Release, Actual{}
		} else if r.Op == Finish && r.Actual.refund {
			own.Op, own.Actual, own.Costs = Refund, Actual{}, Costs{}
		} else if r.Op == Finish {
			own.Op = Settle
		}
		switch {
		case own.Op == Refund && shadow.leases == nil:
			own.Cost = 0 // a TakeUpTo of the shadow rule may have consumed more
		case (own.Op == Renew || own.Op == Release) && shadow.leases == nil, r.Op == Reset && shadow.resets == nil,
			r.Op == Pause || r.Op == Resume,
			(own.Op == Refund || own.Op == Settle || own.Op == Force) && shadow.leases != nil,
			own.Op == Settle && !shadow.settled(&own): // beside other rules, it would keep its Cost
			continue
		case r.Op == TakeUpTo && !shadow.can.follows: // beside other rules, it would consume its Cost
			own.Op, own.Cost = Consume, 0
		}
		if b.leases != nil && shadow.leases == nil && !b.all.program.Bills() {
			own.ID = "" // it names a lease
		}
		if err := a.ask(shadow, request, &own, 0); err != nil {
			a.list = append(a.list, storeCall{b: shadow, request: request, err: err})
		}
	}
	return nil
}

func (a *batch) ask(b *ruleSet, request int, r *Request, each int) error {
	one := storeCall{b: b, request: request, eval: len(a.evals)}
	if err := b.check(&one.query, r, each); err != nil {
		return err
	}
	var s buffers
	b.pack(&s, &one.query, r, false)
	a.list = append(a.list, one)
	a.evals = append(a.evals, store.Eval{Script: one.query.Program.Script(one.query.Verb), Keys: s.keys, Args: s.args})
	return nil
}

// peeks reports whether MGet can answer all requests.
func (a *batch) peeks() bool {
	return !slices.ContainsFunc(a.list, func(one storeCall) bool {
		return one.err == nil && (one.query.Verb != script.Peek || one.b.all.program.Sets())
	})
}

// answer sets the answers of the requests to live. What a shadow rule answers follows the
// answer of live.
func (a *batch) answer(live *ruleSet, each []Result, answers []Answer) {
	var s buffers
	for i := range a.list {
		one := &a.list[i]
		to := &answers[one.request]
		if one.b != live {
			if err := one.shadow(a.evals, &s); to.Err == nil && err != nil {
				to.Result.Shadow = worse(to.Result.Shadow, err)
			}
			continue
		}
		e := &a.evals[one.eval]
		if to.Err = e.Err; to.Err == nil {
			to.Err = live.result(&one.query, &s, e.Reply, each, &to.Result)
		}
	}
}

// evalMany runs evals. If the store is a Batcher, it runs them in one batch.
func (b *ruleSet) evalMany(ctx context.Context, evals []store.Eval) {
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
func (b *ruleSet) peekMany(ctx context.Context, evals []store.Eval) {
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
func (b *ruleSet) load(ctx context.Context, keys []string) (held []store.Content, now int64, err error) {
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

// DecideMany implements [ManyDecider], inside all wrappers.
func (b *ruleSet) DecideMany(ctx context.Context, requests []Request, answers []Answer) {
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

// shadow returns why a shadow rule would have denied the request, or could not decide it.
func (one *storeCall) shadow(evals []store.Eval, s *buffers) error {
	if one.err != nil {
		return one.err
	}
	e := &evals[one.eval]
	if e.Err != nil {
		return e.Err
	}
	var res Result
	if err := one.b.result(&one.query, s, e.Reply, nil, &res); err != nil {
		return err
	}
	if !res.Allowed && one.query.op <= Force {
		return &DeniedError{res}
	}
	return nil
}

// worse returns which of two errors of shadow rules a Result has: the denial with the
// longest RetryAfter, or else the first error.
func worse(a, b error) error {
	var first, second *DeniedError
	switch {
	case a == nil:
		return b
	case !errors.As(b, &second), errors.As(a, &first) && first.Result.RetryAfter >= second.Result.RetryAfter:
		return a
	}
	return b
}

// addShadows adds shadow rules of p to b. Each decides alone, with the keys that it would
// have as the only rule.
func (b *ruleSet) addShadows(prefix string, p *Policy, rules []Rule) error {
	for i, r := range rules {
		label := ruleLabel(i, r.Name)
		switch {
		case r.Name == "":
			return fail(ErrInvalidRule, "a shadow rule has no Name: give it one")
		case b.find(b.every(), r.Name) >= 0:
			return fail(ErrInvalidRule, "two rules are named %q: each rule needs its own name", r.Name)
		}
		space, err := newKeySpace(prefix, p)
		if err != nil {
			return err
		}
		one, err := newRules(space, []Rule{r})
		if err != nil {
			return err
		}
		own := *b.base
		own.space = space
		shadow, err := bind(&own, one, false)
		switch {
		case err != nil:
			return err
		case shadow.can.any(entries):
			return fail(ErrInvalidRule, "%s: a %s keeps metadata, so it cannot be a shadow rule", label, one[0].kind().Name)
		case shadow.can.any(pauses):
			return fail(ErrInvalidRule, "%s: a %s closes keys, so it cannot be a shadow rule", label, one[0].kind().Name)
		case shadow.leases != nil && b.leases == nil:
			return fail(ErrInvalidRule, "%s: a %s holds leases, so it can be a shadow rule only if another rule holds leases too", label, one[0].kind().Name)
		}
		b.addShadow(shadow)
	}
	return nil
}

// addShadow adds one shadow rule to b.
func (b *ruleSet) addShadow(shadow *ruleSet) {
	b.shadows, b.way, b.renews = append(b.shadows, shadow), withShadows, min(b.renews, shadow.lease)
}

// decideBeside is decide for a ruleSet with shadow rules. It calls the store once, if the
// store is a Batcher.
func (b *ruleSet) decideBeside(ctx context.Context, r *Request, each []Result, res *Result) error {
	var a batch
	if err := a.add(b, 0, r, len(each)); err != nil {
		return err
	}
	b.evalMany(ctx, a.evals)
	var to [1]Answer
	a.answer(b, each, to[:])
	*res = to[0].Result
	return to[0].Err
}
