package contract

import (
	"time"
)

// Micros returns n microseconds as a duration. If n is too large, it returns [Never].
func Micros(n int64) time.Duration {
	if n > int64(Never)/1000 {
		return Never
	}
	return time.Duration(n) * time.Microsecond
}

// WholeMicros returns d in microseconds. If d is not a whole number of microseconds from
// 1 to [MaxSpan], the error is an [ErrInvalidLimit] that names the field.
func WholeMicros(field string, d time.Duration) (int64, error) {
	us := d.Microseconds()
	if us < 1 || us > MaxSpan || d%time.Microsecond != 0 {
		return 0, Invalid("%s is %v: it must be a whole number of microseconds, from 1µs to %v", field, d, Micros(MaxSpan))
	}
	return us, nil
}

// TTL returns the TTL of a key whose state ends at ends: the time from now to ends,
// rounded up to the millisecond, plus slack. It is at most 2*[MaxSpan] plus slack.
func TTL(now, ends int64, slack time.Duration) time.Duration {
	return Micros((min(max(ends-now, 1), 2*MaxSpan)+999)/1000*1000) + slack
}
