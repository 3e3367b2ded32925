package conformance

import (
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

var slidingCounterMutants = []mutant{
	{"the window before weighs nothing", "SlidingCounter/Same", nil, bad[algorithm.SlidingCounter](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.room = func(now, at int64, c contract.Cell) int64 {
			c.C = 0
			return m.Meter.Room(now, at, c)
		}
	}})},
	{"steps are twice as long", "SlidingCounter/Same", nil, bad[algorithm.SlidingCounter](flaw{limit: func(l *contract.Limit) {
		if steps := l.Args[3].Int(); steps > 1 {
			l.Args[2], l.Args[3] = store.ConstArg(2*l.Args[2].Int()), store.ConstArg(steps/2)
		}
	}})},
	{"an overdrawn window has a token", "SlidingCounter/Same", nil, bad[algorithm.SlidingCounter](overdrawn)},
	{"a cost is miscounted", "SlidingCounter/Same", nil, bad[algorithm.SlidingCounter](miscounts)},
	{"the wait is rounded up", "SlidingCounter/Exact", nil, bad[algorithm.SlidingCounter](wholeMillis)},
	{"reads and writes apart", "SlidingCounter/HotKey", nil, torn("slidingcounter")},
	{"the clock is fast", "SlidingCounter/Refill", nil, hasty("slidingcounter")},
	{"a window ahead of now is forgotten", "SlidingCounter/Backwards", nil, bad[algorithm.SlidingCounter](unknownAhead(func([]store.Arg) int64 { return 0 }))},
	{"a very large cost is cut", "SlidingCounter/Never", nil, cutCosts("slidingcounter")},
	{"large numbers lose digits", "SlidingCounter/Huge", nil, bad[algorithm.SlidingCounter](flaw{limit: func(l *contract.Limit) {
		if n := l.Args[2].Int(); n > 1<<20 {
			l.Args[2] = store.ConstArg(n - n%1000)
		}
	}})},
}
