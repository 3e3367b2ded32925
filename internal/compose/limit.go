package compose

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/script"
)

// newStep returns the arithmetic in Go of a limit whose kind has the layout r. The error
// says what is wrong with the limit.
func newStep(r *script.Rule, l *contract.Limit) (step, error) {
	if err := checkLimit(r.Args, l); err != nil {
		return step{}, err
	}
	if r.Type == contract.PauseRule && (l.Capacity != contract.MaxTokens || l.Window != 0 || l.MaxCost != 0) {
		return step{}, fmt.Errorf("its Pauses is true: its Limit must have the Capacity %d, and neither a Window nor a MaxCost", int64(contract.MaxTokens))
	}
	s := stepOf(r, l.Args)
	return s, checkForm(r, s)
}

// checkLimit checks the fields of the limit, whose constants have these names.
func checkLimit(names []string, l *contract.Limit) error {
	if len(l.Args) != len(names) {
		return fmt.Errorf("the limit has %d Args: it must have one for each of the %d names in Head.Args", len(l.Args), len(names))
	}
	for i, arg := range l.Args {
		name, text := strings.CutSuffix(names[i], script.TextMark)
		n := arg.Int()
		if whole := n != 0 || arg.String() == "0"; !text && (!whole || n < -contract.MaxTokens || n > contract.MaxTokens) {
			return fmt.Errorf("the constant %s is %q: it must be an integer below 2^53, or its name in Head.Args must end in %q", name, arg.String(), script.TextMark)
		}
	}
	switch {
	case l.Capacity < 1 || l.Capacity > contract.MaxTokens:
		return fmt.Errorf("its Limit.Capacity is %d: it must be from 1 to %d", l.Capacity, int64(contract.MaxTokens))
	case l.MaxCost < 0:
		return fmt.Errorf("its Limit.MaxCost is %d: it must be 0, which means no bound, or more", l.MaxCost)
	case l.MaxDebt < 0 || l.MaxDebt > contract.MaxTokens-l.Capacity:
		return fmt.Errorf("its Limit.MaxDebt is %d: it must be from 0 to %d, which is 2^53-1 minus Capacity", l.MaxDebt, contract.MaxTokens-l.Capacity)
	case l.MaxWait < 0 || l.MaxWait > contract.MaxSpan:
		return fmt.Errorf("its Limit.MaxWait is %d: it must be from 0 to %d", l.MaxWait, int64(contract.MaxSpan))
	}
	return nil
}

// checkForm checks that the arithmetic in Go has a method for each optional section of
// the Lua.
func checkForm(r *script.Rule, s step) error {
	refund := r.Refunds()
	if s.raw == nil && s.meter == nil {
		return fmt.Errorf("its Meter or Step returned nil")
	}
	if s.meter != nil {
		if _, ok := s.meter.(contract.Refunder); ok != refund {
			return fmt.Errorf("its Lua has a section \"refund\": %t; its Meter is a contract.Refunder: %t: both must be true, or both false", refund, ok)
		}
		return nil
	}
	if _, ok := s.raw.(contract.StepRefunder); refund && !ok {
		return fmt.Errorf("its Lua has a section \"refund\": the Step must be a contract.StepRefunder")
	}
	if _, ok := s.raw.(contract.Lister); r.Entries() && !ok {
		return fmt.Errorf("its Entries is true: the Step must be a contract.Lister")
	}
	return nil
}
