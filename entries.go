package weir

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/compose"
)

// An Entry is one request that was allowed, as [Limiter.Entries] lists it.
type Entry = contract.Entry

// Entries lists the requests that were allowed in the current window, with their
// metadata, by the rule that keeps metadata: see algorithm.MetadataWindow. The oldest
// comes first. If there are more than algorithm.MaxEntries, the newest are listed. It
// is one read, changes nothing, and does not go through wrappers.
//
// The error is [ErrUnsupported] if no rule keeps metadata, [ErrInvalidRule] if several
// do, or one of [Limiter.Decide].
func (l *Limiter) Entries(ctx context.Context, key ...string) ([]Entry, error) {
	if l == nil || l.bound == nil {
		return nil, errNoLimiter
	}
	b, k := l.bound, KeyOf(key...)
	switch {
	case b.keepers == 0:
		return nil, fail(ErrUnsupported, "Entries: no rule keeps metadata: algorithm.MetadataWindow does")
	case b.keepers > 1:
		return nil, fail(ErrInvalidRule, "Entries: %d rules keep metadata: name one with Limiter.Only", b.keepers)
	}
	if err := b.space.check(&k); err != nil {
		return nil, err
	}
	now, err := b.now()
	if err != nil {
		return nil, err
	}
	s := &scratch{part: b.kept, call: compose.Call{Cost: 1, Now: now}}
	b.setKeys(s, &Request{Key: k}, false, false)
	p := s.part.program
	args := p.AppendArgs(nil, compose.Entries, &s.call)
	reply, err := b.store.Eval(ctx, p.Script(compose.Entries), s.keys, args, nil)
	if err != nil {
		return nil, err
	}
	list, err := p.Entries(reply)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	return list, nil
}
