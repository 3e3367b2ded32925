package algorithm_test

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
)

// windowModel is a model of FixedWindow with unbounded integers.
type windowModel struct {
	limit, window, align *big.Int
	end, count           *big.Int // nil if there was no request
}

func (m *windowModel) set(w algorithm.FixedWindow) bool {
	if w.Limit < 1 || w.Limit > algorithm.MaxTokens || w.Window < us || w.Window%us != 0 || w.Window > algorithm.MaxSpan {
		return false
	}
	m.limit, m.window, m.align = big.NewInt(w.Limit), big.NewInt(w.Window.Microseconds()), big.NewInt(1)
	if w.Aligned {
		m.align = m.window
	}
	return true
}

// settled returns the end of the window, and its count.
func (m *windowModel) settled(now int64) (end, count *big.Int) {
	at := big.NewInt(now)
	if m.end == nil || m.end.Cmp(at) <= 0 {
		start := new(big.Int).Sub(at, new(big.Int).Mod(at, m.align))
		return start.Add(start, m.window), new(big.Int)
	}
	return m.end, m.count
}

// after returns the end of the window after tokens are consumed. If a limit with other
// windows started it, it lasts until the next multiple of align.
func (m *windowModel) after(end *big.Int) *big.Int {
	up := new(big.Int).Add(end, m.align)
	up.Sub(up, big.NewInt(1))
	up.Sub(up, new(big.Int).Mod(up, m.align))
	if most := big.NewInt(algorithm.MaxTokens); up.Cmp(most) > 0 {
		return most
	}
	return up
}

// force consumes cost tokens past the limit, if the count is then at most debt above the
// limit, or fewer. It returns their number.
func (m *windowModel) force(now, cost, debt int64) int64 {
	end, count := m.settled(now)
	room := new(big.Int).Add(m.limit, big.NewInt(debt))
	if room.Sub(room, count).Sign() <= 0 {
		return 0
	}
	n := min(cost, room.Int64())
	m.end, m.count = m.after(end), new(big.Int).Add(count, big.NewInt(n))
	return n
}

func (m *windowModel) decide(now, cost int64, commit bool) verdict {
	at, n := big.NewInt(now), big.NewInt(cost)
	end, count := m.settled(now)
	after := new(big.Int).Add(count, n)
	v := verdict{Limit: m.limit.Int64()}
	switch {
	case n.Cmp(m.limit) > 0:
		v.RetryAfter = algorithm.Never
	case after.Cmp(m.limit) > 0:
		v.RetryAfter = micros(new(big.Int).Sub(end, at))
	default:
		v.Allowed = true
		if commit {
			count, end = after, m.after(end)
			m.end, m.count = end, count
		}
	}
	if free := new(big.Int).Sub(m.limit, count); free.Sign() > 0 {
		v.Remaining = free.Int64()
	}
	if count.Sign() > 0 {
		v.ResetAfter = micros(new(big.Int).Sub(end, at))
	}
	return v
}

// The answers are the answers of the model, for any limits, costs and clocks, and whether
// or not the store removes expired keys.
func FuzzFixedWindow(f *testing.F) {
	ops := []byte{0, 1, 0, 1, 0, 3, 1, 1, 3, 1, 1, 5, 8, 0, 0, 0, 4, 2, 2, 1, 132, 0, 1, 2, 0, 200, 3, 1, 0, 0, 0, 255, 1, 9, 1, 1}
	f.Add(int64(3), int64(time.Second), true, int64(7), int64(time.Minute), false, true, ops)
	f.Add(int64(1), int64(time.Microsecond), false, int64(1), int64(time.Hour), true, false, ops)
	f.Add(int64(algorithm.MaxTokens), int64(24*time.Hour), true, int64(10), int64(25*time.Hour), true, false, ops)
	f.Add(int64(10), int64(4503599627370496000), true, int64(10), int64(4503599627370496000), false, true, ops)
	debt := []byte{16, 0, 0, 9, 8, 1, 1, 1, 16, 1, 1, 255, 0, 0, 0, 1, 8, 1, 2, 1, 24, 9, 3, 245, 148, 0, 0, 7, 12, 3, 2, 2, 19, 2, 1, 40, 8, 2, 2, 9}
	f.Add(int64(3), int64(time.Second), true, int64(7), int64(time.Minute), false, true, debt)
	f.Add(int64(1), int64(time.Microsecond), false, int64(1<<52), int64(time.Hour), true, false, debt)
	f.Fuzz(func(t *testing.T, limit, window int64, aligned bool, limit2, window2 int64, aligned2, keep bool, ops []byte) {
		limits := [2]algorithm.FixedWindow{
			{Limit: limit, Window: time.Duration(window), Aligned: aligned},
			{Limit: limit2, Window: time.Duration(window2), Aligned: aligned2},
		}
		var compiled [2]*contract.Limit
		model := windowModel{}
		for i, w := range limits {
			l, err := w.NewLimit()
			if good := model.set(w); good != (err == nil) {
				t.Fatalf("%+v: error %v, the model says it is good: %v", w, err, good)
			}
			if err != nil {
				if !errors.Is(err, algorithm.ErrInvalidLimit) {
					t.Fatalf("%+v: error %v, want ErrInvalidLimit", w, err)
				}
				return
			}
			compiled[i] = l
		}
		if len(ops) > 400 {
			ops = ops[:400]
		}

		b := newBench(t, limits[0])
		b.state.keep = keep
		model.set(limits[0])
		now := int64(epoch)
		for ; len(ops) >= 4; ops = ops[4:] {
			op, step, unit, cost := ops[0], int64(ops[1]), ops[2], int64(ops[3])
			length := model.window.Int64()
			switch unit % 4 {
			case 1:
				step *= max(1, length/16)
			case 2:
				step *= length % (1 << 52 >> 8)
			case 3:
				step = length - 1 + step%3
			}
			if op&3 == 3 {
				step = -step
			}
			if now+step < 1 || now+step >= 1<<52 {
				step = 0
			}
			now += step
			cost = fuzzCost(cost, model.limit.Int64())
			if op&4 != 0 {
				i := int(op >> 7)
				b.use(compiled[i])
				model.set(limits[i])
			}
			if op&16 != 0 {
				want := model.force(now, cost, b.limit.MaxDebt)
				if got, _ := b.force(now, cost); got != want {
					t.Fatalf("at %d, force %d of %+v: consumed %d, want %d", now, cost, limits, got, want)
				}
			}
			take := op&8 == 0
			want := model.decide(now, cost, take)
			var got verdict
			if take {
				got = b.take(now, cost)
			} else {
				got = b.peek(now, cost)
			}
			if got != want {
				t.Fatalf("at %d, cost %d, %+v: got %+v, want %+v", now, cost, limits, got, want)
			}
			b.checkPossible(got)
			b.checkExact(now, cost, 0, got)
			b.integers()
		}
	})
}
