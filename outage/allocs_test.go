package outage_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A Breaker allocates for the budget alone: 4 times with a deadline that is further away
// or with none, and never otherwise. Without the store, no answer allocates.
func TestAllocations(t *testing.T) {
	if weirtest.Race {
		t.Skip("the race detector allocates")
	}
	for _, tt := range []struct {
		name     string
		deadline time.Duration
		o        outage.Options
		most     float64
	}{
		{"healthy", 0, outage.Options{Budget: 2 * time.Hour}, 4},
		{"healthy, a later deadline", 3 * time.Hour, outage.Options{Budget: 2 * time.Hour}, 4},
		{"healthy, an earlier deadline", time.Hour, outage.Options{Budget: 2 * time.Hour}, 0},
		{"closed", 0, outage.Options{Probe: time.Hour}, 0},
		{"open", 0, outage.Options{Probe: time.Hour, Fallback: outage.Open}, 0},
		{"local", 0, outage.Options{Probe: time.Hour, Fallback: outage.Local, Processes: 4}, 0},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if tt.deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, tt.deadline)
			defer cancel()
		}
		var st store.Store = memory.New(nil)
		if tt.o.Probe > 0 {
			faulty := weirtest.NewFaulty()
			faulty.Set(weirtest.Down)
			st = faulty
		}
		l, key, each := onOutage(t, weirtest.New(t, st, weirtest.Window(1<<40, time.Hour)), tt.o), weir.KeyOf("ann"), make([]weir.Result, 1)
		if tt.o.Probe > 0 {
			fail(t, l)
		}
		decide := func() {
			res, err := l.Decide(ctx, weir.Request{Key: key}, each)
			if err != nil || (res.Degraded != nil) != (tt.o.Probe > 0) {
				t.Fatalf("got %+v, %v", res, err)
			}
		}
		decide()
		if got := testing.AllocsPerRun(1000, decide); got > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", tt.name, got, tt.most)
		}
	}
}
