package weirfile

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// checkReads checks what read returns for good texts, and its errors for bad ones.
func checkReads[T comparable](t *testing.T, read func(string) (T, error), good map[string]T, bad map[string]string) {
	t.Helper()
	for text, want := range good {
		if got, err := read(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range bad {
		if got, err := read(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	good := map[string]time.Duration{
		"1h": time.Hour, "1d": 24 * time.Hour, "30s": 30 * time.Second, "1h30m": 90 * time.Minute,
		"1d12h": 36 * time.Hour, "90m": 90 * time.Minute, "5ms": 5 * time.Millisecond, "7us": 7 * time.Microsecond,
		"9ns": 9, "0s": 0, "106751d": 106751 * 24 * time.Hour,
	}
	const form, hint = durationForm, calendarHint
	checkReads(t, ParseDuration, good, map[string]string{
		"": form, "h": form, "1": "the unit is missing: did you mean 1s?", "1 hour": "did you mean 1h?",
		"5 minutes": "did you mean 5m?", "2 days": "did you mean 2d?", "2w": "did you mean 14d?" + hint, "1mo": "did you mean 30d?" + hint, "1 year": "did you mean 365d?" + hint,
		"1M": "did you mean 1m, or 30d for months?", "90 mins": "did you mean 1h30m?", "9999999 years": form, "0 hours": form, "10S": "did you mean 10s?",
		"1.5h": form + "; did you mean 1h30m?", "30m1h": form + "; did you mean 1h30m?", "1h1h": form + "; did you mean 2h?",
		"-1s": form, "1h 30m": form, "one hour": form, "3 fortnights": form, "10µs": "did you mean 10us?",
		"106752d": "it must be at most 106751d", "99999999999999999999s": "it must be at most 106751d",
	})
}

func TestRate(t *testing.T) {
	t.Parallel()
	good := map[string]algorithm.Rate{
		"10 per second": algorithm.PerSecond(10), "300 per minute": algorithm.PerMinute(300), "5 per hour": algorithm.PerHour(5),
		"1 per day": algorithm.PerDay(1), "1 per 10s": algorithm.Every(10 * time.Second), "7  per  1h30m": {Count: 7, Period: 90 * time.Minute},
	}
	checkReads(t, parseRate, good, map[string]string{
		"": rateForm, "10": rateForm, "fast": rateForm, "ten per second": rateForm,
		"10/s": `did you mean "10 per second"?`, "10 / minute": `did you mean "10 per minute"?`, "10/min": `did you mean "10 per minute"?`,
		"10 per secnd": `did you mean "10 per second"?`, "10 per seconds": `did you mean "10 per second"?`, "1000-H": `did you mean "1000 per hour"?`,
		"10r/s": `did you mean "10 per second"?`, "10 requests/s": `did you mean "10 per second"?`, "60 per hr": `did you mean "60 per hour"?`,
		"10 Per 5 Minutes": `did you mean "10 per 5m"?`, "10/ms": `did you mean "10 per 1ms"?`, "0/s": rateForm, "1 per 99999 years": rateForm,
		"10 per second/ip": `did you mean "10 per second"? For a limit for each ip, the rule of the policy needs by: [ip]`,
		"10/week":          `did you mean "10 per 7d"?` + calendarHint, "10 per 1M": `in "1M", did you mean 1m, or 30d for months?`,
		"10 per fortnight": rateForm, "0 per second": "the number must be at least 1",
		"10 per month":   `did you mean "10 per 30d"?` + calendarHint,
		"0.5 per second": "the number is 0.5: it must be a whole number, written in digits; for less than one per second, write 1 per a longer time: 1 per 30s",
		"1e3 per second": "the number is 1e3: did you mean 1000?; for less than one per second, write 1 per a longer time: 1 per 30s",
		"5 per 0s":       "the time must be longer than 0: 1 per 30s", "5 per 10": `in "10", the unit is missing: did you mean 10s?`,
		"-1 per second": "the number must be at least 1",
	})
}

func TestInt(t *testing.T) {
	t.Parallel()
	good := map[string]int64{"0": 0, "7": 7, "-3": -3, "9007199254740991": 1<<53 - 1}
	const form = "it must be a whole number, written in digits"
	checkReads(t, parseInt, good, map[string]string{
		"": form, "-": form, "x": form, "1.5": form, "010": "did you mean 10?", "1_000": "did you mean 1000?", "1e6": "did you mean 1000000?",
		"0x10": form, "--1": form, "99999999999999999999": "it must be at most 9007199254740991",
	})
}

func TestClock(t *testing.T) {
	t.Parallel()
	good := map[string]time.Duration{
		"00:00": 0, "06:00": 6 * time.Hour, "23:59": 23*time.Hour + 59*time.Minute, "06:00:07": 6*time.Hour + 7*time.Second,
		"06:00:07.000001": 6*time.Hour + 7*time.Second + time.Microsecond,
	}
	for text, d := range good {
		if got := formatClock(d); got != text {
			t.Errorf("%v: got %q, want %q", d, got, text)
		}
	}
	bad := map[string]string{}
	for _, text := range []string{"", "6", "6:00", "24:00", "06:60", "6 am", "06:00:60", "06.00"} {
		bad[text] = `it must be a time of day from "00:00" to "23:59"`
	}
	checkReads(t, parseClock, good, bad)
}

// Every duration and every rate is read as it was written.
func TestFormat(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		d := time.Duration(random.Int64() >> random.IntN(63))
		if got, err := ParseDuration(formatDuration(d)); err != nil || got != d {
			t.Fatalf("%d ns is written as %q: got %v, %v", d, formatDuration(d), got, err)
		}
		r := algorithm.Rate{Count: 1 + random.Int64()>>random.IntN(63), Period: d + 1}
		if got, err := parseRate(formatRate(r)); err != nil || got != r {
			t.Fatalf("%v is written as %q: got %v, %v", r, formatRate(r), got, err)
		}
	}
}
