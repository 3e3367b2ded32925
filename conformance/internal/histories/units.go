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

// is returns an error unless err is want, which is not nil.
func is(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("got error %w, want %w", err, want)
}
