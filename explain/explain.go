// Package explain says in words and in JSON why a limiter answers as it does, for the
// tools and pages of operators.
//
//	doc, err := explain.Explain(ctx, lim, "acme", "ann")
//	if err != nil {
//		return err
//	}
//	fmt.Println(doc.Why) // denied by rule "user": 0 of 20 tokens left; …
//	for _, r := range doc.Rules {
//		fmt.Printf("%s: %s\n", r.Name, r.State)
//	}
//
// [List] lists the callers that have state in the store, and [Top] ranks them.
//
// Nothing here consumes a token or writes to the store. All questions go to the store:
// the wrappers of the limiter neither answer them nor see them. So during an outage, the
// error is [store.ErrUnavailable].
package explain

import (
	"context"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/store"
)

// Explain returns what lim would answer to a request for the key now, and why. The request
// is for one token, and for 1 of each unit. Explain makes one Peek, and another for each
// shadow rule. Errors: see [weir.Limiter.Decide].
func Explain(ctx context.Context, lim *weir.Limiter, key ...string) (*Document, error) {
	return ExplainKey(ctx, lim, weir.KeyOf(key...))
}

// ExplainKey is [Explain] for a [weir.Key], for example of a [Caller] whose segments are
// hashes.
func ExplainKey(ctx context.Context, lim *weir.Limiter, k weir.Key) (*Document, error) {
	if err := lim.Valid(); err != nil {
		return nil, err
	}
	bare, rules := lim.Bare(), lim.Rules()
	keys, err := bare.StoreKeys(k)
	if err != nil {
		return nil, err
	}
	peek := weir.Request{Key: k, Op: weir.Peek, Costs: gate.Each(bare, 1)}
	each := make([]weir.Result, len(rules)) // the shadow rules are the last
	res, err := bare.Decide(ctx, peek, each)
	if err != nil {
		return nil, err
	}
	doc := &Document{
		Policy: lim.Name(), Key: segments(lim, k), Slot: store.Slot(keys[0][0]),
		Allowed: res.Allowed, RetryAfter: Duration(res.RetryAfter),
	}
	if !res.Allowed {
		doc.DeniedBy = res.Rule
	}
	for i, info := range rules {
		if info.Shadow {
			only, err := bare.Only(info.Name)
			if err != nil {
				return nil, err
			}
			if each[i], err = only.Decide(ctx, peek, nil); err != nil {
				return nil, err
			}
		}
		doc.Rules = append(doc.Rules, Rule{
			Name: info.Name, By: info.By, Algorithm: info.Kind, Words: gate.Words(&info),
			Shadow: info.Shadow, Unit: info.Unit, Cost: max(info.Cost, 1), Keys: keys[i], Slot: store.Slot(keys[i][0]),
			Usage: usage(&info, &each[i]),
		})
	}
	doc.Why = why(doc, res.Rule)
	return doc, nil
}

// segments returns the segments of k as the store has them: secret and long ones are
// hashed, and others are as weir.HashedKeyOf takes them. k can have only the first segments.
func segments(lim *weir.Limiter, k weir.Key) []Segment {
	infos, values := lim.Segments(), k.Segments()
	list := make([]Segment, len(values))
	for i, value := range values {
		list[i] = Segment{Name: infos[i].Name, Value: storekey.Typed(value, k.Hashed(i)), Hashed: k.Hashed(i)}
		if !k.Hashed(i) && (infos[i].Secret || len(value) > weir.MaxSegment) {
			list[i].Value, list[i].Hashed = string(storekey.AppendHash(nil, value)), true
		}
	}
	return list
}
