package algorithm_test

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
)

// gcraModel is a model of GCRA with exact fractions. Nothing in it overflows, drifts or
// expires.
type gcraModel struct {
	interval *big.Rat // microseconds
	burst    int64
	tat      *big.Rat // nil if there was no request
	den      *big.Int // the denominator of the interval when tat was written
}

// set changes the limit, and reports whether the limit is valid: the bucket fills within
// algorithm.MaxSpan, and if the interval is not whole, its parts are below 2^53.
func (m *gcraModel) set(g algorithm.GCRA) bool {
	if g.Rate.Count < 1 || g.Rate.Period < 1 || g.Burst < 1 || g.Burst > algorithm.MaxTokens || g.Rate.Count > contract.MaxSpan/1000 {
		return false
	}
	interval := new(big.Rat).SetFrac(big.NewInt(int64(g.Rate.Period)), new(big.Int).Mul(big.NewInt(g.Rate.Count), big.NewInt(1000)))
	span := new(big.Rat).Mul(interval, rat(g.Burst))
	if floor(span).Cmp(big.NewInt(contract.MaxSpan)) > 0 {
		return false
	}
	if !interval.IsInt() {
		parts := new(big.Int).Mul(interval.Num(), big.NewInt(g.Burst))
		if parts.Add(parts, interval.Denom()).Cmp(big.NewInt(algorithm.MaxTokens)) > 0 {
			return false
		}
	}
	m.interval, m.burst = interval, g.Burst
	return true
}

// settled returns TAT, or now if it is later.
func (m *gcraModel) settled(now int64) *big.Rat {
	at := rat(now)
	if m.tat != nil {
		tat := m.tat
		if m.den.Cmp(m.interval.Denom()) != 0 {
			tat = new(big.Rat).SetInt(ceil(tat))
		}
		if tat.Cmp(at) > 0 {
			at = tat
		}
	}
	return at
}

// force returns how many of cost tokens can be consumed past the limit, so that at most
// debt tokens are then missing beyond the burst.
func (m *gcraModel) force(now, cost, debt int64) int64 {
	ahead := new(big.Rat).Sub(m.settled(now), rat(now))
	room := new(big.Int).Sub(big.NewInt(m.burst+debt), ceil(ahead.Quo(ahead, m.interval)))
	if room.Sign() <= 0 {
		return 0
	}
	return min(cost, room.Int64())
}

// deep reports whether us microseconds are 2^53 parts or more, so that the code rounds
// them.
func (m *gcraModel) deep(us *big.Rat) bool {
	parts := new(big.Rat).Mul(us, new(big.Rat).SetInt(m.interval.Denom()))
	return !m.interval.IsInt() && parts.Cmp(rat(1<<53)) >= 0
}

// took notes that n tokens were consumed at now. tat is the TAT of the code. It reports
// whether tat is right: exact or, if the time of n tokens was rounded, less than 4 µs
// late.
func (m *gcraModel) took(now, n int64, tat *big.Rat) bool {
	exact := new(big.Rat).Mul(m.interval, rat(n))
	rounded := m.deep(new(big.Rat).Add(exact, rat(1)))
	exact.Add(exact, m.settled(now))
	m.tat, m.den = tat, m.interval.Denom()
	late := new(big.Rat).Sub(tat, exact)
	return late.Sign() == 0 || rounded && late.Sign() > 0 && late.Cmp(rat(4)) < 0
}

func (m *gcraModel) decide(now, cost int64, commit bool) verdict {
	at := m.settled(now)
	v := verdict{Limit: m.burst}
	if cost > m.burst {
		v.RetryAfter = algorithm.Never
	} else {
		room := new(big.Rat).Mul(m.interval, rat(m.burst-cost))
		over := new(big.Rat).Sub(new(big.Rat).Sub(at, rat(now)), room)
		if v.Allowed = over.Sign() <= 0; !v.Allowed {
			v.RetryAfter = micros(ceil(over))
		}
	}
	if v.Allowed && commit {
		at = new(big.Rat).Add(at, new(big.Rat).Mul(m.interval, rat(cost)))
		m.tat, m.den = at, m.interval.Denom()
	}
	ahead := new(big.Rat).Sub(at, rat(now))
	free := new(big.Rat).Sub(new(big.Rat).Mul(m.interval, rat(m.burst)), ahead)
	if free.Sign() > 0 {
		v.Remaining = floor(free.Quo(free, m.interval)).Int64()
	}
	v.ResetAfter = micros(ceil(ahead))
	return v
}

// tat returns the TAT of a GCRA.
func (b *bench) tat() *big.Rat {
	n := b.state.keys[0].nums.N
	return new(big.Rat).Add(rat(n[0]), big.NewRat(n[1], max(n[2], 1)))
}

// The answers are the answers of the model, for any limits, costs and clocks, and whether
// or not the store removes expired keys.
func FuzzGCRA(f *testing.F) {
	ops := []byte{0, 1, 0, 1, 132, 0, 0, 1, 4, 0, 0, 2, 140, 9, 0, 1, 132, 1, 1, 2, 12, 3, 0, 3, 0, 1, 0, 0, 1, 3, 5, 2, 4, 0, 9, 0, 1, 1, 2, 6, 3, 200, 2, 0, 0, 0, 0, 0, 7, 1, 1, 4, 2, 0, 3, 1}
	f.Add(int64(3), int64(time.Second), int64(5), int64(7), int64(time.Minute), int64(2), true, ops)
	f.Add(int64(1), int64(time.Second), int64(1), int64(1), int64(time.Hour), int64(100), false, ops)
	f.Add(int64(1500000), int64(time.Second), int64(10), int64(1), int64(1), int64(1), false, ops)
	f.Add(int64(4503599627370), int64(1), int64(4503599627370991), int64(999999937), int64(24*time.Hour), int64(100), true, ops)
	f.Add(int64(3), int64(time.Second), int64(9_007_199_254), int64(3), int64(time.Minute), int64(9_007_199_254), true, ops)
	f.Add(int64(3), int64(time.Second), int64(9_007_199_255), int64(3), int64(time.Second), int64(1), true, ops)
	f.Add(int64(1), int64(1<<62), int64(1), int64(1), int64(4503599627370496000), int64(1), false, ops)
	f.Add(int64(6000), int64(time.Second), int64(6000), int64(6000), int64(time.Second), int64(5999), true, ops)
	debt := []byte{16, 0, 0, 9, 8, 1, 1, 1, 16, 1, 1, 255, 0, 0, 0, 1, 8, 1, 2, 1, 24, 9, 3, 245, 148, 0, 0, 7, 12, 3, 2, 2, 19, 2, 1, 40, 8, 2, 2, 9, 24, 255, 4, 1, 8, 255, 4, 252}
	f.Add(int64(3), int64(time.Second), int64(5), int64(7), int64(time.Minute), int64(2), true, debt)
	f.Add(int64(1), int64(time.Second), int64(9), int64(1), int64(time.Hour), int64(100), false, debt)
	f.Add(int64(1500000), int64(time.Second), int64(10), int64(1), int64(1), int64(1), true, debt)
	f.Add(int64(4503599627370), int64(1), int64(4503599627370000), int64(999999937), int64(24*time.Hour), int64(100), true, debt)
	f.Add(int64(3), int64(time.Second), int64(9_007_199_254), int64(1), int64(4503599627370496000), int64(1), false, debt)
	for _, burst := range []int64{100_000, 104_249, 1} {
		f.Add(int64(1_000_003), int64(24*time.Hour), burst, int64(999_999_937), int64(time.Second), 90_000*burst, true, debt)
	}
	f.Add(int64(4503599627370), int64(1), int64(1), int64(104_729), int64(24*time.Hour-1), int64(1), true, debt)
	f.Fuzz(func(t *testing.T, count, period, burst, count2, period2, burst2 int64, keep bool, ops []byte) {
		limits := [2]algorithm.GCRA{
			{Rate: algorithm.Rate{Count: count, Period: time.Duration(period)}, Burst: burst},
			{Rate: algorithm.Rate{Count: count2, Period: time.Duration(period2)}, Burst: burst2},
		}
		var compiled [2]*contract.Limit
		model := gcraModel{}
		for i, g := range limits {
			l, err := g.NewLimit()
			if good := model.set(g); good != (err == nil) {
				t.Fatalf("%+v: error %v, the model says it is good: %v", g, err, good)
			}
			if err != nil {
				if !errors.Is(err, algorithm.ErrInvalidLimit) {
					t.Fatalf("%+v: error %v, want ErrInvalidLimit", g, err)
				}
				return
			}
			compiled[i] = l
		}
		if len(ops) > 200 {
			ops = ops[:200]
		}

		b := newBench(t, limits[0])
		b.state.keep = keep
		model.set(limits[0])
		now := int64(epoch)
		for ; len(ops) >= 4; ops = ops[4:] {
			op, step, unit, cost := ops[0], int64(ops[1]), ops[2], int64(ops[3])
			interval := max(1, floor(model.interval).Int64())
			now += fuzzStep(now, op, step, unit, interval, interval, max(1, interval*min(model.burst, 1<<20)/16))
			cost = fuzzCost(cost, model.burst)
			if op&4 != 0 {
				i := int(op >> 7)
				b.use(compiled[i])
				model.set(limits[i])
			}
			if op&16 != 0 {
				want, off := model.force(now, cost, b.limit.MaxDebt), int64(0)
				if model.deep(new(big.Rat).Sub(model.settled(now), rat(now))) {
					off = 4
				}
				got, _ := b.force(now, cost)
				if got < want-off || got > want+off {
					t.Fatalf("at %d, force %d of %+v: consumed %d, want %d", now, cost, limits, got, want)
				}
				if got > 0 && !model.took(now, got, b.tat()) {
					t.Fatalf("at %d, force %d of %+v: TAT is %v", now, cost, limits, model.tat)
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
