package conformance

import (
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

var slidingCounterMutants = []mutant{
	{"the window before weighs nothing", "SlidingCounter/Trace", []string{"SlidingCounter/", "Limiter/", "Hygiene/"}, bad[algorithm.SlidingCounter](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.room = func(now, at int64, c contract.Cell) int64 {
			c.C = 0
			return m.Meter.Room(now, at, c)
		}
	}})},
	{"steps are twice as long", "SlidingCounter/Steps", []string{"SlidingCounter/Huge"}, bad[algorithm.SlidingCounter](flaw{limit: func(l *contract.Limit) {
		if l.Capacity == 1<<20 {
			l.Args[2], l.Args[3] = store.ConstArg(2*l.Args[2].Int()), store.ConstArg(l.Args[3].Int()/2)
		}
	}})},
	{"an overdrawn window has a token", "SlidingCounter/Carry", nil, bad[algorithm.SlidingCounter](overdrawn)},
	{"a cost is miscounted", "SlidingCounter/History", []string{"Limiter/Mix", "Limiter/Modes"}, bad[algorithm.SlidingCounter](sevens)},
	{"the wait is rounded up", "SlidingCounter/Exact", []string{"SlidingCounter/", "Limiter/"}, bad[algorithm.SlidingCounter](wholeMillis)},
	{"reads and writes apart", "SlidingCounter/HotKey", []string{"Hygiene/TTL"}, torn("slidingcounter")},
	{"the clock is fast", "SlidingCounter/Refill", []string{"SlidingCounter/HotKey", "Hygiene/"}, hasty("slidingcounter")},
	{"a window ahead of now is forgotten", "SlidingCounter/Backwards", []string{"SlidingCounter/", "Limiter/"}, bad[algorithm.SlidingCounter](unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"a very large cost is cut", "SlidingCounter/Never", []string{"SlidingCounter/Huge"}, cutCosts("slidingcounter")},
	{"large numbers lose digits", "SlidingCounter/Huge", []string{"SlidingCounter/"}, bad[algorithm.SlidingCounter](flaw{limit: func(l *contract.Limit) {
		if n := l.Args[2].Int(); n > 1<<20 {
			l.Args[2] = store.ConstArg(n - n%1000)
		}
	}})},
}
