package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/stores"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// atomicCheck returns the check Store/Atomic.
func atomicCheck() suite.Check {
	return stores.Checks[slices.IndexFunc(stores.Checks, func(c suite.Check) bool { return c.Name == "Atomic" })]
}

// TestClockSteps shows that Store/Atomic passes if the clock steps back twice, as a
// server's does at times, and fails if it does so three times.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		ahead := []int64{50, 120, 200}[:n]
		wrong := sees(is(scripts.CounterThree), func(_ call, tx store.Tx) view {
			var counted int64
			return view{
				get: func(i int, n *store.Nums, _ *bool, _ *error) {
					if i == 1 { // the second of three keys, in both orders
						counted = n.N[0]
					}
				},
				now: func() int64 {
					if slices.Contains(ahead, counted) {
						return tx.Now() + time.Minute.Microseconds()
					}
					return tx.Now()
				},
			}
		})
		c := suite.Run(t, wrong.host(), atomicCheck())
		if failed := len(c.Failures) > 0; failed != (n > 2) {
			t.Errorf("the clock stepped back %d times: Store/Atomic returned the failures %q", n, c.Failures)
		}
	}
}
