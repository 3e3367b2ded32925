package algorithm_test

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
)

// A tokenModel is a model of TokenBucket with unbounded integers.
type tokenModel struct {
	algorithm.TokenBucket
	anchor, missing *big.Int // nil if there was no request
}

func (m *tokenModel) period() (num, den *big.Int) {
	if m.AtOnce {
		return big.NewInt(m.Refill.Period.Microseconds()), big.NewInt(m.Refill.Count)
	}
	r := new(big.Rat).SetFrac(big.NewInt(int64(m.Refill.Period)), new(big.Int).Mul(big.NewInt(m.Refill.Count), big.NewInt(1000)))
	return r.Num(), r.Denom()
}

// good reports whether the limit is valid.
func (m *tokenModel) good() bool {
	if m.Refill.Count < 1 || m.Refill.Count > contract.MaxSpan/1000 || m.Refill.Period < 1 || m.Capacity < 1 || m.Capacity > algorithm.MaxTokens {
		return false
	}
	if us := m.Refill.Period.Microseconds(); m.AtOnce && (us < 1 || us > contract.MaxSpan || m.Refill.Period%time.Microsecond != 0) {
		return false
	}
	num, den := m.period()
	if !m.AtOnce && new(big.Int).Mul(num, den).Cmp(big.NewInt(algorithm.MaxTokens)) > 0 {
		return false
	}
	if new(big.Int).Add(den, big.NewInt(m.Capacity)).Cmp(big.NewInt(algorithm.MaxTokens)) > 0 {
		return false
	}
	return m.until(big.NewInt(m.Capacity)).Cmp(big.NewInt(contract.MaxSpan)) <= 0
}

func (m *tokenModel) back(past *big.Int) *big.Int {
	num, den := m.period()
	if past.Sign() <= 0 {
		return new(big.Int)
	}
	if m.AtOnce {
		n := new(big.Int).Div(past, num)
		return n.Mul(n, den)
	}
	n := new(big.Int).Mul(past, den)
	return n.Div(n, num)
}

func (m *tokenModel) until(n *big.Int) *big.Int {
	num, den := m.period()
	if m.AtOnce {
		u := ceil(new(big.Rat).SetFrac(n, den))
		return u.Mul(u, num)
	}
	return ceil(new(big.Rat).SetFrac(new(big.Int).Mul(n, num), den))
}

// settled returns when the period began, and the tokens that were missing then.
func (m *tokenModel) settled(now int64) (anchor, missing *big.Int) {
	at := big.NewInt(now)
	anchor, missing = at, new(big.Int)
	if m.missing != nil {
		past := new(big.Int).Sub(at, m.anchor)
		if m.back(past).Cmp(m.missing) < 0 {
			anchor, missing = new(big.Int).Set(m.anchor), new(big.Int).Set(m.missing)
			if num, den := m.period(); past.Sign() > 0 {
				q := new(big.Int).Div(past, num)
				anchor.Add(anchor, new(big.Int).Mul(q, num))
				missing.Sub(missing, q.Mul(q, den))
			}
		}
	}
	return anchor, missing
}

// force consumes cost tokens past the limit, if at most debt tokens are then missing
// beyond the capacity, or fewer. It returns their number.
func (m *tokenModel) force(now, cost, debt int64) int64 {
	anchor, missing := m.settled(now)
	room := new(big.Int).Sub(missing, m.back(new(big.Int).Sub(big.NewInt(now), anchor)))
	if room.Sign() < 0 {
		room.SetInt64(0)
	}
	if room.Sub(big.NewInt(m.Capacity+debt), room); room.Sign() <= 0 {
		return 0
	}
	n := min(cost, room.Int64())
	m.anchor, m.missing = anchor, missing.Add(missing, big.NewInt(n))
	return n
}

func (m *tokenModel) decide(now, cost int64, commit bool) verdict {
	anchor, missing := m.settled(now)
	past := new(big.Int).Sub(big.NewInt(now), anchor)
	wait := func(n *big.Int) time.Duration {
		if n.Cmp(m.back(past)) <= 0 {
			return 0
		}
		u := m.until(n)
		return micros(u.Sub(u, past))
	}
	v := verdict{Limit: m.Capacity}
	if cost > m.Capacity {
		v.RetryAfter = algorithm.Never
	} else {
		n := new(big.Int).Add(missing, big.NewInt(cost-m.Capacity))
		v.RetryAfter = wait(n)
		v.Allowed = v.RetryAfter == 0
	}
	if v.Allowed && commit {
		missing.Add(missing, big.NewInt(cost))
		m.anchor, m.missing = anchor, missing
	}
	left := new(big.Int).Sub(missing, m.back(past))
	left.Sub(big.NewInt(m.Capacity), left)
	v.Remaining = max(min(left.Int64(), m.Capacity), 0)
	v.ResetAfter = min(wait(missing), micros(big.NewInt(algorithm.MaxTokens-now))) // no time is beyond 2^53
	return v
}

// The answers are the answers of the model, for any limits, costs and clocks, and whether
// or not the store removes expired keys.
func FuzzTokenBucket(f *testing.F) {
	ops := []byte{0, 1, 0, 1, 132, 0, 0, 1, 4, 0, 0, 2, 140, 9, 0, 1, 132, 1, 1, 2, 12, 3, 0, 3, 0, 1, 0, 0, 1, 3, 5, 2, 4, 0, 9, 0, 1, 1, 2, 6, 3, 200, 2, 0, 0, 0, 0, 0, 7, 1, 1, 4, 2, 0, 3, 1}
	f.Add(int64(3), int64(time.Second), int64(5), byte(0), int64(7), int64(time.Minute), int64(2), true, ops)
	f.Add(int64(3), int64(time.Second), int64(5), byte(3), int64(7), int64(time.Minute), int64(2), true, ops)
	f.Add(int64(1), int64(time.Second), int64(1), byte(1), int64(1), int64(time.Hour), int64(100), false, ops)
	f.Add(int64(1500000), int64(time.Second), int64(10), byte(0), int64(1), int64(1), int64(1), false, ops)
	f.Add(int64(4503599627370), int64(1e9), int64(algorithm.MaxTokens-5e12), byte(2), int64(104_249), int64(24*time.Hour), int64(1e9), true, ops)
	f.Add(int64(997), int64(time.Minute), int64(100), byte(2), int64(contract.MaxSpan/1000), int64(4503599627370496000), int64(1), false, ops)
	debt := []byte{16, 0, 0, 9, 8, 1, 1, 1, 16, 1, 1, 255, 0, 0, 0, 1, 8, 1, 2, 1, 24, 9, 3, 245, 148, 0, 0, 7, 12, 3, 2, 2, 19, 2, 1, 40, 8, 2, 2, 9, 24, 255, 4, 1, 8, 255, 4, 252}
	f.Add(int64(3), int64(time.Second), int64(5), byte(0), int64(7), int64(time.Minute), int64(2), true, debt)
	f.Add(int64(3), int64(time.Second), int64(5), byte(3), int64(7), int64(time.Minute), int64(2), true, debt)
	f.Add(int64(4503599627370), int64(1e9), int64(algorithm.MaxTokens-5e12), byte(2), int64(104_249), int64(24*time.Hour), int64(1e9), true, debt)
	f.Add(int64(1), int64(time.Hour), int64(1e9), byte(1), int64(1), int64(time.Second), int64(1), false, debt)
	f.Fuzz(func(t *testing.T, count, period, capacity int64, atOnce byte, count2, period2, capacity2 int64, keep bool, ops []byte) {
		limits := [2]algorithm.TokenBucket{
			{Refill: algorithm.Rate{Count: count, Period: time.Duration(period)}, Capacity: capacity, AtOnce: atOnce&1 != 0},
			{Refill: algorithm.Rate{Count: count2, Period: time.Duration(period2)}, Capacity: capacity2, AtOnce: atOnce&2 != 0},
		}
		var compiled [2]*contract.Limit
		for i, a := range limits {
			l, err := a.NewLimit()
			if good := (&tokenModel{TokenBucket: a}).good(); good != (err == nil) {
				t.Fatalf("%+v: error %v, the model says it is good: %v", a, err, good)
			}
			if err != nil {
				if !errors.Is(err, algorithm.ErrInvalidLimit) {
					t.Fatalf("%+v: error %v, want ErrInvalidLimit", a, err)
				}
				return
			}
			compiled[i] = l
		}
		b, m := newBench(t, limits[0]), &tokenModel{TokenBucket: limits[0]}
		b.state.keep = keep
		now, wrote := int64(epoch), -1 // the limit that wrote the key
		which := 0
		for ops = ops[:min(len(ops), 200)]; len(ops) >= 4; ops = ops[4:] {
			op, step, unit, cost := ops[0], int64(ops[1]), ops[2], int64(ops[3])
			num, den := m.period()
			one := max(1, new(big.Int).Div(num, den).Int64())
			now += fuzzStep(now, op, step, unit, one, num.Int64(), num.Int64())
			cost = fuzzCost(cost, m.Capacity)
			if op&4 != 0 {
				which = int(op >> 7)
				b.use(compiled[which])
				m.TokenBucket = limits[which]
			}
			held := m.missing
			if wrote >= 0 && which != wrote && !keep && b.state.keys[0].expires <= now {
				m.missing = nil // full under the limit that wrote it
			}
			if op&16 != 0 {
				n := m.force(now, cost, b.limit.MaxDebt)
				if got, _ := b.force(now, cost); got != n {
					t.Fatalf("at %d, force %d of %+v: consumed %d, want %d", now, cost, m.TokenBucket, got, n)
				}
				if n > 0 {
					held, wrote = m.missing, which
				}
			}
			take := op&8 == 0
			want, got := m.decide(now, cost, take), verdict{}
			if take {
				got = b.take(now, cost)
			} else {
				got = b.peek(now, cost)
			}
			if take && got.Allowed {
				wrote = which
			} else {
				m.missing = held // a clock that steps back may find it again
			}
			if got != want {
				t.Fatalf("at %d, cost %d, %+v: got %+v, want %+v", now, cost, m.TokenBucket, got, want)
			}
			b.checkPossible(got)
			b.checkExact(now, cost, 0, got)
			b.integers()
		}
	})
}
