package histories

import (
	"testing"

	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
)

// TestHistories runs WEIR_HISTORIES histories on the memory store, or 2,500.
func TestHistories(t *testing.T) {
	t.Parallel()
	n := 2500
	if testing.Short() {
		n = 500
	}
	var stats Stats
	failed := 0
	for seed := range uint64(weirtest.Histories(t, n)) {
		if err := Run(t.Context(), memory.New(nil), "h", seed, &stats); err != nil {
			t.Error(err)
			if failed++; failed == 10 {
				return
			}
		}
	}
	t.Logf("%+v", stats)
	if stats.Exact < 4*stats.Bounds || min(stats.Kept, stats.Replayed, stats.Settled, stats.Refunded, 4*stats.Held) < n/10 ||
		min(stats.Counted, stats.Zeros, stats.Less, stats.More, stats.Ended, stats.NotFound, stats.Forgot, stats.Other) < n/10 ||
		min(stats.Taken, 4*stats.Full, stats.Again, stats.Anew, stats.Paused, stats.Lost, stats.Finished, stats.Plain) < n/10 {
		t.Errorf("%+v: want more of it", stats)
	}
}
