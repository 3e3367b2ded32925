package outage_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store/memory"
)

// A Breaker allocates for the budget alone: 4 times with a deadline that is further away
// or with none, and never otherwise. Without the store, no answer allocates.
func TestOutageAllocations(t *testing.T) {
	if weirtest.Race {
		t.Skip("the race detector allocates")
	}
	near, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	far, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
	defer cancel()
	each := make([]weir.Result, 1)
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		o     outage.Options
		fault weirtest.Fault
		most  float64
	}{
		{"healthy", t.Context(), outage.Options{Budget: 2 * time.Hour}, weirtest.Up, 4},
		{"healthy, a later deadline", far, outage.Options{Budget: 2 * time.Hour}, weirtest.Up, 4},
		{"healthy, an earlier deadline", near, outage.Options{Budget: 2 * time.Hour}, weirtest.Up, 0},
		{"closed", t.Context(), outage.Options{Probe: time.Hour}, weirtest.Down, 0},
		{"open", t.Context(), outage.Options{Probe: time.Hour, Fallback: outage.Open}, weirtest.Down, 0},
		{"local", t.Context(), outage.Options{Probe: time.Hour, Fallback: outage.Local, Processes: 4}, weirtest.Down, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := benched(t, tt.fault, &tt.o)
			key := weir.KeyOf("ann")
			decide := func() {
				res, err := l.Decide(tt.ctx, weir.Request{Key: key}, each)
				if err != nil || (res.Degraded != nil) != (tt.fault != weirtest.Up) {
					t.Fatalf("got %+v, %v", res, err)
				}
			}
			decide()
			if got := testing.AllocsPerRun(1000, decide); got > tt.most {
				t.Errorf("%v allocations, want at most %v", got, tt.most)
			}
		})
	}
}

// benched returns a limiter on the memory store, or on a store that fails, whose breaker
// is open.
func benched(t testing.TB, f weirtest.Fault, o *outage.Options) *weir.Limiter {
	limit := weirtest.Window(1<<40, time.Hour)
	if f == weirtest.Up {
		l := weirtest.New(t, memory.New(nil), limit)
		if o != nil {
			l = onOutage(t, l, *o)
		}
		return l
	}
	st := weirtest.NewFaulty()
	st.Set(f)
	l := onOutage(t, weirtest.New(t, st, limit), *o)
	fail(t, l)
	return l
}

// BenchmarkOutage measures a decision in memory, what a Breaker adds to it, and an answer
// without the store.
func BenchmarkOutage(b *testing.B) {
	soon, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for _, bb := range []struct {
		name  string
		ctx   context.Context
		o     *outage.Options
		fault weirtest.Fault
	}{
		{"plain", b.Context(), nil, weirtest.Up},
		{"healthy", b.Context(), &outage.Options{}, weirtest.Up},
		{"healthy/deadline", soon, &outage.Options{Budget: 2 * time.Hour}, weirtest.Up},
		{"closed", b.Context(), &outage.Options{Probe: time.Hour}, weirtest.Down},
		{"open", b.Context(), &outage.Options{Probe: time.Hour, Fallback: outage.Open}, weirtest.Down},
		{"local", b.Context(), &outage.Options{Probe: time.Hour, Fallback: outage.Local, Processes: 4}, weirtest.Down},
	} {
		b.Run(bb.name, func(b *testing.B) {
			l := benched(b, bb.fault, bb.o)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Allow(bb.ctx, "ann"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
