package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
	"github.com/weir-go/weir/store"
)

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
