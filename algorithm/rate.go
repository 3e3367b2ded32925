package algorithm

import (
	"math/bits"
	"time"

	"github.com/weir-go/weir/algorithm/contract"
)

// A Rate is a number of tokens per period. It is exact: three per second is not rounded
// to one every 333,333 microseconds.
type Rate struct {
	Count  int64         // tokens, at least 1
	Period time.Duration // at least 1 ns
}

// PerSecond returns a rate of n tokens per second.
func PerSecond(n int64) Rate { return Rate{n, time.Second} }

// PerMinute returns a rate of n tokens per minute.
func PerMinute(n int64) Rate { return Rate{n, time.Minute} }

// PerHour returns a rate of n tokens per hour.
func PerHour(n int64) Rate { return Rate{n, time.Hour} }

// PerDay returns a rate of n tokens per 24 hours.
func PerDay(n int64) Rate { return Rate{n, 24 * time.Hour} }

// Every returns a rate of one token per period.
func Every(period time.Duration) Rate { return Rate{1, period} }

// interval returns the time between two tokens, num/den microseconds, as a reduced
// fraction. Both are positive, and den is at most MaxSpan.
func (r Rate) interval() (num, den int64, err error) {
	switch {
	case r.Count < 1:
		return 0, 0, contract.Invalid("Rate.Count is %d: it must be at least 1", r.Count)
	case r.Period < 1:
		return 0, 0, contract.Invalid("Rate.Period is %d ns: it must be at least 1 ns", r.Period.Nanoseconds())
	case r.Count > maxSpan/1000:
		return 0, 0, contract.Invalid("Rate.Count is %d: it must be at most %d", r.Count, int64(maxSpan/1000))
	}
	num, den = r.Period.Nanoseconds(), 1000*r.Count
	g := gcd(num, den)
	return num / g, den / g, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// mulDiv returns n*num/den, rounded down, or most if that is less. No argument is
// negative, and den is positive.
func mulDiv(n, num, den, most int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(num))
	if hi >= uint64(den) {
		return most
	}
	whole, _ := bits.Div64(hi, lo, uint64(den))
	return int64(min(whole, uint64(most)))
}
