package weir

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// Entries lists the requests that the current window admitted for path, with
// their metadata, under the rule of that name or, if name is empty, under the
// one rule that keeps metadata: see [algorithm.MetadataWindow]. The oldest comes
// first; of more than [algorithm.MaxEntries], the newest are listed. It is one
// read, and changes nothing.
//
// The path has all its segments, as in [Limiter.Allow]. The error is
// [ErrUnsupported] if the rule keeps no metadata, [ErrInvalidRule] for a name that
// there is not, or one that is missing where two rules keep metadata, or as of
// [Limiter.Do].
func (l *Limiter) Entries(ctx context.Context, name string, path ...string) ([]algorithm.Entry, error) {
	if err := l.space.check(path); err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	i, err := l.keeper(name)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	now, err := l.now()
	if err != nil {
		return nil, err
	}
	p, err := l.part(1<<i, nil)
	if err != nil {
		return nil, err
	}
	args := l.appendArgs(nil, p, now, &algorithm.Request{}, nil)
	reply, err := l.store.Eval(ctx, p.program.Entries, l.keysOf(p, path, ""), args, nil)
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(reply))
	for i, v := range reply {
		if v.Kind() != store.Bulk {
			return nil, fmt.Errorf("weir: %w: value %d of what %s replied is no text", store.ErrScript, i, p.program.Entries.Name())
		}
		texts[i] = v.Str()
	}
	list, err := l.rules[i].limit.(algorithm.Lister).Entries(texts)
	if err != nil {
		return nil, fmt.Errorf("weir: %w", err)
	}
	return list, nil
}

// keeper returns the number of the rule of that name, or of the one that keeps
// metadata.
func (l *Limiter) keeper(name string) (int, error) {
	found := -1
	for i, r := range l.rules {
		keeps := r.limit.Fragment().Entries != nil
		switch {
		case name == r.name && !keeps:
			return 0, fmt.Errorf("%w: Entries: rule %q is a %s, which keeps no metadata; algorithm.MetadataWindow does", ErrUnsupported, name, r.limit.Fragment().Name)
		case name == r.name:
			return i, nil
		case name == "" && keeps && found >= 0:
			return 0, fmt.Errorf("%w: rules %q and %q both keep metadata: name one", ErrInvalidRule, l.rules[found].name, r.name)
		case name == "" && keeps:
			found = i
		}
	}
	switch {
	case name != "":
		return 0, fmt.Errorf("%w: there is no rule %q", ErrInvalidRule, name)
	case found < 0:
		return 0, fmt.Errorf("%w: Entries: no rule keeps metadata; algorithm.MetadataWindow does", ErrUnsupported)
	}
	return found, nil
}
