package weir

import (
	"context"
	"fmt"

	"github.com/weir-go/weir/algorithm"
)

// Reset makes the rules that the whole of path identifies as new, in one step.
// Rules that are by fewer segments hold for others too and are left alone:
// see [Limiter.ResetRule]. If there is no other kind, the error is ErrInvalidRule. A
// key that holds someone else's value is not deleted: the error is
// [store.ErrForeign].
func (l *Limiter) Reset(ctx context.Context, path ...string) error {
	if err := l.space.check(path); err != nil {
		return err
	}
	var rules []int
	for i := range l.rules {
		if l.space.identified(i, path) {
			rules = append(rules, i)
		}
	}
	if rules == nil {
		return fmt.Errorf("weir: %w: no rule is identified by the whole path: name one with ResetRule", ErrInvalidRule)
	}
	return l.reset(ctx, rules, path)
}

// ResetRule makes the rule with that name as new, for path and everyone else with
// whom path shares the rule.
func (l *Limiter) ResetRule(ctx context.Context, name string, path ...string) error {
	if err := l.space.check(path); err != nil {
		return err
	}
	for i := range l.rules {
		if l.rules[i].name == name {
			return l.reset(ctx, []int{i}, path)
		}
	}
	return fmt.Errorf("weir: %w: there is no rule %q", ErrInvalidRule, name)
}

func (l *Limiter) reset(ctx context.Context, rules []int, path []string) error {
	now, err := l.now()
	if err != nil {
		return err
	}
	var fragments []*algorithm.Fragment
	var keys []string
	args := l.program.AppendNow(nil, now)
	for _, i := range rules {
		fragments = append(fragments, l.rules[i].limit.Fragment())
		keys = append(keys, string(l.space.appendKey(nil, i, path)))
		args = l.rules[i].limit.AppendArgs(args, algorithm.Request{})
	}
	program, err := algorithm.Compose(fragments...)
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	_, err = l.store.Eval(ctx, program.Reset, keys, args, nil)
	return err
}
