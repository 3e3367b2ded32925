package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
)

// OnOutage allocates for the budget alone: 4 times with a deadline that is further away or
// with none, and never otherwise. Without the store, no answer allocates.
func TestOutageAllocations(t *testing.T) {
	if raceEnabled {
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
		o     weir.Outage
		fault fault
		most  float64
	}{
		{"healthy", t.Context(), weir.Outage{Budget: 2 * time.Hour}, up, 4},
		{"healthy, a later deadline", far, weir.Outage{Budget: 2 * time.Hour}, up, 4},
		{"healthy, an earlier deadline", near, weir.Outage{Budget: 2 * time.Hour}, up, 0},
		{"closed", t.Context(), weir.Outage{Probe: time.Hour}, down, 0},
		{"open", t.Context(), weir.Outage{Probe: time.Hour, Fallback: weir.FailOpen}, down, 0},
		{"local", t.Context(), weir.Outage{Probe: time.Hour, Fallback: weir.FailLocal, Processes: 4}, down, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := benched(t, tt.fault, &tt.o)
			key := weir.KeyOf("ann")
			decide := func() {
				res, err := l.Decide(tt.ctx, weir.Request{Key: key}, each)
				if err != nil || (res.Degraded != nil) != (tt.fault != up) {
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

// benched returns a limiter on the memory store, or on a store that fails, whose breaker is
// open.
func benched(t testing.TB, f fault, o *weir.Outage) *weir.Limiter {
	limit := window(1<<40, time.Hour)
	if f == up {
		l := mustNew(t, memory.New(nil), limit)
		if o != nil {
			l = onOutage(t, l, *o)
		}
		return l
	}
	st := newFaulty()
	st.set(f)
	l := onOutage(t, mustNew(t, st, limit), *o)
	fail(t, l)
	return l
}

// BenchmarkOutage measures a decision in memory, what OnOutage adds to it, and an answer
// without the store.
func BenchmarkOutage(b *testing.B) {
	soon, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for _, bb := range []struct {
		name  string
		ctx   context.Context
		o     *weir.Outage
		fault fault
	}{
		{"plain", b.Context(), nil, up},
		{"healthy", b.Context(), &weir.Outage{}, up},
		{"healthy/deadline", soon, &weir.Outage{Budget: 2 * time.Hour}, up},
		{"closed", b.Context(), &weir.Outage{Probe: time.Hour}, down},
		{"open", b.Context(), &weir.Outage{Probe: time.Hour, Fallback: weir.FailOpen}, down},
		{"local", b.Context(), &weir.Outage{Probe: time.Hour, Fallback: weir.FailLocal, Processes: 4}, down},
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
