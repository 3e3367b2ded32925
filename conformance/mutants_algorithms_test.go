package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/store"
)

// longer changes the waits that an algorithm answers, of requests that do not pass now.
func longer(change func(wait int64) int64) flaw {
	return flaw{
		meter: func(m *badMeter, _ []store.Arg) {
			m.ready = func(now int64, c contract.Cell, n, wait int64) int64 {
				at := m.Meter.Ready(now, c, n, wait)
				if at > now {
					at = now + change(at-now)
				}
				return at
			}
		},
		step: func(b *badStep, _ []store.Arg) {
			b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
				ans := b.Step.Answer(now, s, n, a)
				if ans.RetryAfter > 0 && ans.RetryAfter != contract.Never {
					ans.RetryAfter = contract.Micros(change(ans.RetryAfter.Microseconds()))
				}
				return ans
			}
		},
	}
}

// wholeMillis rounds a wait up to the millisecond.
var wholeMillis = longer(func(wait int64) int64 { return (wait + 999) / 1000 * 1000 })

// mayBeNever answers a request that never passes with a time to come back, of a Step.
var mayBeNever = flaw{step: func(b *badStep, _ []store.Arg) {
	b.answer = func(now int64, s contract.State, n int64, a contract.Ask) contract.Answer {
		ans := b.Step.Answer(now, s, n, a)
		if ans.RetryAfter == contract.Never {
			ans.RetryAfter = time.Hour
		}
		return ans
	}
}}

// stale decides, in scripts whose name is name, with the constants that the first decision
// on the same keys had, in virtual time.
func stale(name string) mutation {
	return mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		consts := len(args) - 3 // behind them are the cost, the wait and the time
		if s.Name() != name || consts <= 0 {
			return f.right(ctx, s, keys, args, reply)
		}
		f.mu.Lock()
		if f.memo == nil {
			f.memo = map[string][]store.Arg{}
		}
		first := f.memo.(map[string][]store.Arg)
		if list, ok := first[keys[0]]; ok && len(list) == len(args) {
			args = slices.Concat(list[:consts], args[consts:])
		} else {
			first[strings.Clone(keys[0])] = slices.Clone(args)
		}
		f.mu.Unlock()
		return f.right(ctx, s, keys, args, reply)
	}}
}

// overdrawn has a token if more than the limit was consumed, before the limit was lowered.
var overdrawn = flaw{meter: func(m *badMeter, _ []store.Arg) {
	m.room = func(now, at int64, c contract.Cell) int64 {
		if left := m.Meter.Room(now, at, c); left >= 0 {
			return left
		}
		return 1
	}
}}

var gcraMutants = []mutant{
	{"a bucket has one token more", "GCRA/Same", []string{"SlidingBuckets/", "MetadataWindow/"}, bad[algorithm.GCRA](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.room = func(now, at int64, c contract.Cell) int64 { return m.Meter.Room(now, at, c) + 1 }
	}})},
	{"fractions are dropped", "GCRA/Same", nil, bad[algorithm.GCRA](flaw{meter: func(m *badMeter, args []store.Arg) {
		m.take = func(c contract.Cell, n int64) contract.Cell {
			if c = m.Meter.Take(c, n); fractional(args) {
				c.B = 0
			}
			return c
		}
	}})},
	{"an interval is at least 1µs", "GCRA/Same", nil, bad[algorithm.GCRA](flaw{limit: func(l *contract.Limit) {
		if parts := l.Args[1].Int(); fractional(l.Args) && l.Args[0].Int() < parts {
			l.Args[0], l.Args[2] = store.ConstArg(parts), store.ConstArg(parts*l.Capacity)
		}
	}})},
	{"parts are taken for others", "GCRA/Same", nil, bad[algorithm.GCRA](flaw{meter: func(m *badMeter, args []store.Arg) {
		m.advance = func(now int64, c contract.Cell) contract.Cell {
			if fractional(args) && c.C > 0 {
				c.C = args[1].Int()
			}
			return m.Meter.Advance(now, c)
		}
	}})},
	{"a cost is miscounted", "GCRA/Same", nil, bad[algorithm.GCRA](miscounts)},
	{"a layout of its own", "GCRA/Same", nil, onlyFor("gcra", func(_ *fake, tx store.Tx) store.Tx {
		return txFunc{Tx: tx, put: func(_ int, n store.Nums, ttl time.Duration) (store.Nums, time.Duration) {
			if n.Tag == gcraTag && n.N[2] > 2 {
				n.N[1], n.N[2] = 0, 1
			}
			return n, ttl
		}}
	})},
	{"the wait is rounded up", "GCRA/Exact", nil, bad[algorithm.GCRA](wholeMillis)},
	{"reads and writes apart", "GCRA/HotKey", nil, torn("gcra")},
	{"the clock is fast", "GCRA/Refill", nil, hasty("gcra")},
	{"far times are disbelieved", "GCRA/Backwards", nil, bad[algorithm.GCRA](unknownAhead(func(args []store.Arg) int64 {
		if fractional(args) {
			return args[2].Int()/args[1].Int() + args[0].Int()/args[1].Int() + 1
		}
		return args[1].Int() + args[0].Int() + 1
	}))},
	{"a very large cost is cut", "GCRA/Never", nil, cutCosts("gcra")},
	{"large numbers lose digits", "GCRA/Huge", nil, bad[algorithm.GCRA](rounded)},
}

var gcraTag = store.Tag{'g', '2'}

var fixedWindowMutants = []mutant{
	{"always aligned", "FixedWindow/Same", nil, bad[algorithm.FixedWindow](flaw{limit: func(l *contract.Limit) { l.Args[2] = l.Args[1] }})},
	{"never aligned", "FixedWindow/Same", nil, bad[algorithm.FixedWindow](flaw{limit: func(l *contract.Limit) { l.Args[2] = store.ConstArg(1) }})},
	{"an overdrawn window has a token", "FixedWindow/Same", nil, bad[algorithm.FixedWindow](overdrawn)},
	{"a cost is miscounted", "FixedWindow/Same", nil, bad[algorithm.FixedWindow](miscounts)},
	{"the wait is the window", "FixedWindow/Exact", nil, bad[algorithm.FixedWindow](flaw{meter: func(m *badMeter, args []store.Arg) {
		m.ready = func(now int64, _ contract.Cell, _, _ int64) int64 { return now + args[1].Int() }
	}})},
	{"reads and writes apart", "FixedWindow/HotKey", nil, torn("fixedwindow")},
	{"the clock is fast", "FixedWindow/Refill", nil, hasty("fixedwindow")},
	{"a start ahead of now is forgotten", "FixedWindow/Backwards", nil, bad[algorithm.FixedWindow](unknownAhead(func(args []store.Arg) int64 { return args[1].Int() }))},
	{"a very large cost is cut", "FixedWindow/Never", nil, cutCosts("fixedwindow")},
	{"large numbers lose digits", "FixedWindow/Huge", nil, bad[algorithm.FixedWindow](rounded)},
}

// nextEdge changes the end of a new period of a Calendar.
func nextEdge(change func(now, edge int64, args []store.Arg) int64) flaw {
	return flaw{meter: func(m *badMeter, args []store.Arg) {
		m.advance = func(now int64, c contract.Cell) contract.Cell {
			if now >= c.A {
				return contract.Cell{A: change(now, m.Meter.Advance(now, c).A, args)}
			}
			return c
		}
	}}
}

var calendarMutants = []mutant{
	{"a period ends a microsecond late", "Calendar/Same", nil, bad[algorithm.Calendar](nextEdge(func(_, edge int64, _ []store.Arg) int64 { return edge + 1 }))},
	{"a month starts on its first day", "Calendar/Same", nil, bad[algorithm.Calendar](flaw{limit: func(l *contract.Limit) {
		if l.Args[1].Int() <= 12 {
			l.Args[2] = store.ConstArg(0)
		}
	}})},
	{"days are those of UTC", "Calendar/Same", nil, bad[algorithm.Calendar](nextEdge(func(now, edge int64, args []store.Arg) int64 {
		if every := args[1].Int(); every > 12 {
			return now + every - (now+args[2].Int())%every
		}
		return edge
	}))},
	{"a cost is miscounted", "Calendar/Same", nil, bad[algorithm.Calendar](miscounts)},
	{"an overdrawn period has a token", "Calendar/Same", nil, bad[algorithm.Calendar](overdrawn)},
	{"the wait is the window", "Calendar/Exact", nil, bad[algorithm.Calendar](flaw{meter: func(m *badMeter, _ []store.Arg) {
		m.ready = func(now int64, _ contract.Cell, _, _ int64) int64 { return now + 24*3600*1_000_000 }
	}})},
	{"reads and writes apart", "Calendar/HotKey", nil, torn("calendar")},
	{"an end ahead of now is forgotten", "Calendar/Backwards", nil, bad[algorithm.Calendar](unknownAhead(func([]store.Arg) int64 { return 3600 * 1_000_000 }))},
	{"a very large cost is cut", "Calendar/Never", nil, cutCosts("calendar")},
	{"large numbers lose digits", "Calendar/Huge", nil, bad[algorithm.Calendar](rounded)},
	{"one more is refunded", "Calendar/Refund", nil, bad[algorithm.Calendar](oneMoreBack)},
}
