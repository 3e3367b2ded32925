package algorithms

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/examples/dailyquota"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// TestLastMinute runs the checks that need a minute without a refill when a day is about to
// end: they wait for the next day.
func TestLastMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - 30*time.Second) // a bubble begins at midnight
		s := &Subject{New: func(*rand.Rand) algorithm.Algorithm { return dailyquota.Quota{Limit: 5, Zone: time.UTC} }}
		r := s.On(suite.New(t.Context(), t, suite.Host{New: func(*testing.T) store.Store { return memory.New(nil) }, Seed: 1}))
		r.slow(r.Rand())
		if now := time.Now().UTC(); now.Hour() != 0 || now.Minute() != 0 {
			t.Errorf("the checks go on at %v, want after midnight", now)
		}
		for _, f := range r.Failures {
			t.Error(f)
		}
	})
}
