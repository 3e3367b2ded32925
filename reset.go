package weir

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/algorithm"
)

// Reset makes the rules that the whole of path identifies as new, in one step.
// Rules that are by fewer segments hold for others too and are left alone: see
// [Limiter.ResetRule]. If there is no other kind, the error is ErrInvalidRule.
// A key that holds someone else's value is not deleted: the error is
// [store.ErrForeign]. Other errors are [ErrInvalidKey] and those of the store.
func (l *Limiter) Reset(ctx context.Context, path ...string) error {
	if err := l.space.check(path); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	var set uint
	for i := range l.rules {
		if l.space.identified(i, path) {
			set |= 1 << i
		}
	}
	if set == 0 {
		return fmt.Errorf("weir: %w: no rule is identified by the whole path: name one with ResetRule", ErrInvalidRule)
	}
	return l.reset(ctx, set, path)
}

// ResetRule makes the rule with that name as new, for path and everyone else
// with whom path shares the rule. The path has all its segments, as in
// [Limiter.Allow]; those that the rule is not by do not matter. The error is
// [ErrInvalidRule] for a name that there is not, or as of [Limiter.Reset].
func (l *Limiter) ResetRule(ctx context.Context, name string, path ...string) error {
	if err := l.space.check(path); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	for i := range l.rules {
		if l.rules[i].name == name {
			return l.reset(ctx, 1<<i, path)
		}
	}
	return fmt.Errorf("weir: %w: there is no rule %q", ErrInvalidRule, name)
}

// reset deletes the keys of the rules whose bits are in set.
func (l *Limiter) reset(ctx context.Context, set uint, path []string) error {
	now, err := l.now()
	if err != nil {
		return err
	}
	p, err := l.part(set, nil)
	if err != nil {
		return err
	}
	args := l.appendArgs(nil, p, now, &algorithm.Request{}, nil)
	_, err = l.store.Eval(ctx, p.program.Reset, l.keysOf(p, path, ""), args, nil)
	return err
}
