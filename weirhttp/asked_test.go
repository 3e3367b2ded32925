package weirhttp_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/weirhttp"
)

// The pause that an answer asks for is the time until the next request.
func TestAsked(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return start.Add(d).Format(http.TimeFormat) }
	unix := func(seconds int64) string { return strconv.FormatInt(start.Unix()+seconds, 10) }
	for _, tt := range []struct {
		name   string
		status int
		fields []string
		most   time.Duration // MaxPause
		want   time.Duration
	}{
		{"none", 429, nil, 0, 0},
		{"seconds", 429, []string{"Retry-After", "7"}, 0, 7 * time.Second},
		{"seconds of a 503", 503, []string{"Retry-After", "7"}, 0, 7 * time.Second},
		{"seconds of a redirect", 301, []string{"Retry-After", "7"}, 0, 0},
		{"seconds of a 400", 400, []string{"Retry-After", "7"}, 0, 7 * time.Second},
		{"zero", 429, []string{"Retry-After", "0"}, 0, 0},
		{"a fraction", 429, []string{"Retry-After", "1.5"}, 0, 1500 * time.Millisecond},
		{"a negative number", 429, []string{"Retry-After", "-7"}, 0, 0},
		{"garbage", 429, []string{"Retry-After", "soon"}, 0, 0},
		{"a day", 429, []string{"Retry-After", "86400"}, 0, 10 * time.Minute},
		{"an hour, with a MaxPause", 429, []string{"Retry-After", "3600"}, 2 * time.Hour, time.Hour},
		{"an hour, without pauses", 429, []string{"Retry-After", "3600"}, -1, 0},
		{"too many seconds for a duration", 429, []string{"Retry-After", "9223372037"}, 0, 10 * time.Minute},
		{"too many seconds for a number", 429, []string{"Retry-After", strings.Repeat("9", 30)}, 0, 10 * time.Minute},
		{"a date", 429, []string{"Retry-After", date(8 * time.Second)}, 0, 8 * time.Second},
		{"a date by the server's clock", 429, []string{"Retry-After", date(time.Hour + 8*time.Second), "Date", date(time.Hour)}, 0, 8 * time.Second},
		{"a date that has passed", 429, []string{"Retry-After", date(-time.Hour)}, 0, 0},
		{"the longer of two", 429, []string{"Retry-After", "2", "Retry-After", date(8 * time.Second)}, 0, 8 * time.Second},
		{"the valid one of two", 429, []string{"Retry-After", "soon", "Retry-After", "7", "Retry-After", "1"}, 0, 7 * time.Second},
		{"RateLimit", 200, []string{"RateLimit", `"a";r=0;t=9`}, 0, 9 * time.Second},
		{"RateLimit of several rules", 429, []string{"RateLimit", `"a";r=1;t=60, "b";r=0;t=3;pk=:YQ==:`, "RateLimit", `"c";t=5;r=0;x;y="\"";z=1.5`}, 0, 5 * time.Second},
		{"RateLimit with tokens left", 200, []string{"RateLimit", `"a";r=1;t=9`}, 0, 0},
		{"RateLimit without a time", 200, []string{"RateLimit", `"a";r=0`}, 0, 0},
		{"RateLimit of a cache", 200, []string{"RateLimit", `"a";r=0;t=9`, "Age", "1"}, 0, 0},
		{"RateLimit of a fresh copy", 200, []string{"RateLimit", `"a";r=0;t=9`, "Age", "0"}, 0, 9 * time.Second},
		{"Retry-After takes precedence", 429, []string{"RateLimit", `"a";r=0;t=9`, "Retry-After", "2"}, 0, 2 * time.Second},
		{"an unknown Retry-After does not", 429, []string{"RateLimit", `"a";r=0;t=9`, "Retry-After", "soon"}, 0, 9 * time.Second},
		{"RateLimit of the next draft", 200, []string{"RateLimit", `"a";a=1;w=99, "b";a=0;w=9`}, 0, 9 * time.Second},
		{"RateLimit of draft 07", 200, []string{"RateLimit", "limit=5, remaining=0, reset=9"}, 0, 9 * time.Second},
		{"RateLimit of draft 07, in lines", 200, []string{"RateLimit", "limit=5;w=60,remaining=0", "RateLimit", "reset=9"}, 0, 9 * time.Second},
		{"RateLimit of draft 07 with tokens left", 429, []string{"RateLimit", "limit=5, remaining=1, reset=9"}, 0, 0},
		{"RateLimit of draft 07, doubled", 429, []string{"RateLimit", "remaining=0, reset=9, remaining=0"}, 0, 0},
		{"RateLimit of draft 07 without a reset", 429, []string{"RateLimit", "limit=5, remaining=0"}, 0, 0},
		{"milliseconds", 429, []string{"Retry-After-Ms", "1250"}, 0, 1250 * time.Millisecond},
		{"milliseconds of Azure", 429, []string{"X-Ms-Retry-After-Ms", "1250"}, 0, 1250 * time.Millisecond},
		{"milliseconds of a 200", 200, []string{"Retry-After-Ms", "1250"}, 0, 0},
		{"milliseconds that are none", 429, []string{"Retry-After-Ms", "1s"}, 0, 0},
		{"too many milliseconds", 429, []string{"Retry-After-Ms", strings.Repeat("9", 30)}, 0, 10 * time.Minute},
		{"seconds before milliseconds", 429, []string{"Retry-After", "2", "Retry-After-Ms", "1250"}, 0, 2 * time.Second},
		{"a Unix time as Retry-After", 429, []string{"Retry-After", unix(8)}, 0, 8 * time.Second},
		{"remaining and a reset", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}, 0, 9 * time.Second},
		{"of draft 06", 429, []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "9"}, 0, 9 * time.Second},
		{"with a dash more", 429, []string{"X-Rate-Limit-Remaining", "0", "X-Rate-Limit-Reset", unix(9)}, 0, 9 * time.Second},
		{"the longer of two kinds", 429, []string{"RateLimit-Remaining", "0", "RateLimit-Reset", "9", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(8)}, 0, 9 * time.Second},
		{"a Unix time", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(9)}, 0, 9 * time.Second},
		{"a Unix time with a fraction", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(9) + ".25"}, 0, 9250 * time.Millisecond},
		{"a Unix time in milliseconds", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(9) + "125"}, 0, 9125 * time.Millisecond},
		{"a Unix time by the server's clock", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(3609), "Date", date(time.Hour)}, 0, 9 * time.Second},
		{"a Unix time that has passed", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(-9)}, 0, 0},
		{"a Unix time in an hour", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", unix(3600)}, 0, 10 * time.Minute},
		{"the first Unix time", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000", "Date", "Sun, 09 Sep 2001 01:46:31 GMT"}, 0, 9 * time.Second},
		{"no Unix time yet", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "999999999", "Date", "Sun, 09 Sep 2001 01:46:31 GMT"}, 0, 10 * time.Minute},
		{"a reset as a date", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", date(9 * time.Second)}, 0, 9 * time.Second},
		{"tokens left", 403, []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "9"}, 0, 0},
		{"a part of a token left", 403, []string{"X-RateLimit-Remaining", "0.5", "X-RateLimit-Reset", "9"}, 0, 0},
		{"no reset", 403, []string{"X-RateLimit-Remaining", "0"}, 0, 0},
		{"a reset alone", 403, []string{"X-RateLimit-Reset", "9"}, 0, 0},
		{"a negative remainder", 403, []string{"X-RateLimit-Remaining", "-1", "X-RateLimit-Reset", "9"}, 0, 0},
		{"a negative reset", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "-9"}, 0, 0},
		{"an empty remainder", 403, []string{"X-RateLimit-Remaining", "", "X-RateLimit-Reset", "9"}, 0, 0},
		{"a reset in words", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9s"}, 0, 0},
		{"an infinite reset", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "Inf"}, 0, 0},
		{"a reset with an exponent", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1e2"}, 0, 0},
		{"a reset of 400 digits", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strings.Repeat("9", 400)}, 0, 0},
		{"a doubled remainder", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"}, 0, 0},
		{"a doubled reset", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "X-RateLimit-Reset", "9"}, 0, 0},
		{"remaining, of a cache", 200, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "Age", "1"}, 0, 0},
		{"Retry-After before remaining", 403, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "Retry-After", "2"}, 0, 2 * time.Second},
		{"a Retry-After that has passed does not", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "Retry-After", date(-time.Hour)}, 0, 9 * time.Second},
		{"a Retry-After of 0 does", 429, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "Retry-After", "0"}, 0, 0},
		{"malformed: a decimal r beside a", 200, []string{"RateLimit", `"a";r=1.0;a=0;w=9`}, 0, 0},
		{"a redirect's Retry-After does not", 301, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9", "Retry-After", "2"}, 0, 9 * time.Second},
		{"malformed: not closed", 200, []string{"RateLimit", `"a;r=0;t=9`}, 0, 0},
		{"malformed: a token", 200, []string{"RateLimit", `a;r=0;t=9`}, 0, 0},
		{"malformed: no r", 200, []string{"RateLimit", `"b";t=9, "a";r=0;t=9`}, 0, 0},
		{"malformed: a negative r", 200, []string{"RateLimit", `"b";r=-1, "a";r=0;t=9`}, 0, 0},
		{"malformed: a decimal r", 200, []string{"RateLimit", `"a";r=0.0;t=9`}, 0, 0},
		{"malformed: a negative t", 200, []string{"RateLimit", `"b";r=0;t=-9, "a";r=0;t=9`}, 0, 0},
		{"malformed: the end", 200, []string{"RateLimit", `"a";r=0;t=9,`}, 0, 0},
		{"too long", 200, []string{"RateLimit", `"a";r=0;t=9` + strings.Repeat(`, "a";r=0;t=9`, 400)}, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(start)) // a bubble's clock starts before the Unix time 10^9
			s := &service{start: time.Now(), answer: func(n int, _ *http.Request) (*http.Response, error) {
				if n > 0 {
					return response(200, nil), nil
				}
				return response(tt.status, nil, tt.fields...), nil
			}}
			rt := &weirhttp.Transport{Limiter: newLimiter(t, fastRule.Algorithm), Base: s, MaxPause: tt.most}
			for _, url := range []string{"http://a.test/x", "http://b.test", "https://A.test.:8443/y"} { // b has no pause
				if err := send(t.Context(), t, rt, url); err != nil {
					t.Error(err)
				}
			}
			if want := []time.Duration{0, 0, tt.want}; !slices.Equal(s.times, want) {
				t.Errorf("%s: requests left at %v, want %v", tt.name, s.times, want)
			}
		})
	}
}

// The words of a service count if the response has no valid Retry-After, and before the
// fields that tell what remains.
func TestAskedInWords(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		says   time.Duration
		most   time.Duration // MaxPause
		fields []string
		want   time.Duration
	}{
		{"a 200", 200, 5 * time.Second, 0, nil, 5 * time.Second},
		{"a 429", 429, 5 * time.Second, 0, nil, 5 * time.Second},
		{"nothing", 429, 0, 0, nil, 0},
		{"a time that has passed", 429, -time.Second, 0, nil, 0},
		{"too long", 429, time.Hour, time.Minute, nil, time.Minute},
		{"with Retry-After", 429, 5 * time.Second, 0, []string{"Retry-After", "2"}, 2 * time.Second},
		{"with an unknown Retry-After", 429, 5 * time.Second, 0, []string{"Retry-After", "soon"}, 5 * time.Second},
		{"with the Retry-After of a redirect", 302, 5 * time.Second, 0, []string{"Retry-After", "2"}, 5 * time.Second},
		{"with what remains", 429, 5 * time.Second, 0, []string{"RateLimit", `"a";r=0;t=9`}, 5 * time.Second},
		{"nothing, with what remains", 429, 0, 0, []string{"RateLimit", `"a";r=0;t=9`}, 9 * time.Second},
		{"of a cache", 200, 5 * time.Second, 0, []string{"Age", "1"}, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			rt := &weirhttp.Transport{MaxPause: tt.most, RetryAfter: func(res *http.Response) time.Duration {
				if res.StatusCode != tt.status {
					t.Errorf("%s: RetryAfter got status %d", tt.name, res.StatusCode)
				}
				return tt.says
			}}
			answer := func(int, *http.Request) (*http.Response, error) { return response(tt.status, nil, tt.fields...), nil }
			if got, want := twoTimes(t, rt, answer), []time.Duration{0, tt.want}; !slices.Equal(got, want) {
				t.Errorf("%s: requests left at %v, want %v", tt.name, got, want)
			}
		})
	}
}

// twoTimes returns when two requests to one host leave rt, whose service answers so.
func twoTimes(t *testing.T, rt *weirhttp.Transport, answer func(int, *http.Request) (*http.Response, error)) []time.Duration {
	t.Helper()
	s := &service{start: time.Now(), answer: answer}
	rt.Limiter, rt.Base = newLimiter(t, fastRule.Algorithm), s
	for range 2 {
		if err := send(t.Context(), t, rt, "http://a.test"); err != nil {
			t.Error(err)
		}
	}
	return s.times
}
