package histories

import (
	"errors"
	"fmt"

	"github.com/weir-go/weir"
)

// units are the units of all limiters that have any.
var units = []string{"u", "v", "w"}

// amounts returns random amounts of most units: one in miss is not named. Some are those of
// like.
func (h *history) amounts(like weir.Costs, miss int) weir.Costs {
	list := map[string]int64{}
	for _, unit := range units {
		n, ok := like.Amount(unit)
		if !ok {
			n = 1 + h.r.Int64N(6)
		}
		if h.units != nil && h.r.IntN(miss) > 0 {
			list[unit] = pick(h.r, 0, n, n, h.r.Int64N(12), h.r.Int64N(4))
		}
	}
	return weir.CostsOf(list)
}

// asked returns what r asks of rule i.
func (v *version) asked(i int, r *weir.Request) int64 {
	switch rule := v.rules[i]; {
	case rule.Unit != "":
		n, _ := r.Costs.Amount(rule.Unit)
		return n
	case rule.Cost > 0:
		return rule.Cost
	}
	return r.Cost
}

// follows reports whether r consumes Request.Cost.
func follows(r weir.Rule) bool { return r.Unit == "" && r.Cost == 0 }

// rejects returns the error of a decision r that no limiter like v can make, or nil.
func (v *version) rejects(r weir.Request) error {
	switch {
	case r.MaxWait > 0, r.Op == weir.Force && v.places() && !v.bills(), r.Op == weir.TakeUpTo && !v.follows:
		return weir.ErrUnsupported
	case v.places() && r.ID == "" && r.Op != weir.Force && r.Op != weir.Peek:
		return weir.ErrInvalidLease
	}
	for _, rule := range v.rules {
		if _, ok := r.Costs.Amount(rule.Unit); rule.Unit != "" && !ok {
			return weir.ErrInvalidCost
		}
	}
	return nil
}

// is returns an error unless err is want, which is not nil.
func is(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("got error %w, want %w", err, want)
}
