package weirhttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirhttp/internal/sfv"
)

// maxField is the largest length of a RateLimit field that is parsed, in bytes.
const maxField = 4096

// asked returns the pause that a response asks for. Retry-After takes precedence over the
// words of a service, and these over the fields that tell what remains.
func (t *Transport) asked(res *http.Response) time.Duration {
	h, now := res.Header, time.Now()
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // by the server's clock: the clocks can differ
	}
	if res.StatusCode >= http.StatusBadRequest {
		if pause, ok := retryAfter(h, now); ok {
			return pause
		}
	}
	if t.RetryAfter != nil {
		if pause := t.RetryAfter(res); pause > 0 {
			return pause
		}
	}
	if age, _ := strconv.ParseUint(h.Get("Age"), 10, 64); age > 0 {
		return 0 // a cache's copy: what remained then is not current
	}
	pause := exhausted(h[rateLimit], now)
	for _, prefix := range []string{"Ratelimit-", "X-Ratelimit-", "X-Rate-Limit-"} {
		pause = max(pause, used(h, prefix, now))
	}
	return pause
}

// retryAfter returns the longest time of the fields Retry-After. Without a valid one that
// has not passed, the fields in milliseconds count.
func retryAfter(h http.Header, now time.Time) (longest time.Duration, found bool) {
	for _, value := range h["Retry-After"] {
		if after, ok := until(value, now); ok && after >= 0 && (!found || after > longest) {
			longest, found = after, true
		}
	}
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, ok := number(h.Get(name)); ok && !found {
			longest, found = time.Duration(min(ms, 1e12)*1e6), true
		}
	}
	return longest, found
}

// exhausted returns the longest time of the items of the field RateLimit of which nothing
// remains: with r=0 and t in draft 11, with a=0 and w in its successor. Draft 07 has the
// members of a Dictionary instead. A malformed field is ignored.
func exhausted(lines []string, now time.Time) time.Duration {
	value := strings.Join(lines, ", ")
	if value == "" || len(value) > maxField {
		return 0
	}
	items, _ := sfv.Parse(value) // none, if it is malformed
	var longest time.Duration
	members := map[string][]string{}
	for i := range items {
		if name, text, ok := strings.Cut(items[i].Value.Text, "="); ok && items[i].Value.Kind == sfv.Other {
			members[name] = append(members[name], text)
			continue
		}
		r, ok := items[i].Integer("r")
		t, timed := items[i].Integer("t")
		if _, given := items[i].Params["r"]; !given {
			r, ok = items[i].Integer("a")
			t, timed = items[i].Integer("w")
		}
		if items[i].Value.Kind != sfv.String || !ok || r < 0 || timed && t < 0 {
			return 0
		}
		if r == 0 {
			longest = max(longest, ofSeconds(t))
		}
	}
	if len(members) == 0 {
		return longest
	}
	return used(map[string][]string{"Remaining": members["remaining"], "Reset": members["reset"]}, "", now)
}

// used returns the time of the field Reset if the field Remaining says that nothing
// remains. Doubled fields are ignored: nobody knows which of them counts.
func used(h map[string][]string, prefix string, now time.Time) time.Duration {
	remaining, reset := h[prefix+"Remaining"], h[prefix+"Reset"]
	if len(remaining) != 1 || len(reset) != 1 {
		return 0
	}
	if n, ok := number(remaining[0]); !ok || n > 0 {
		return 0
	}
	after, _ := until(reset[0], now)
	return after
}

// until reads a date of HTTP or RFC 3339, a Unix time in seconds or milliseconds, or a
// number of seconds. Numbers from 10^9 on are Unix times, and from 10^12 on in
// milliseconds.
func until(value string, now time.Time) (time.Duration, bool) {
	at, err := http.ParseTime(value)
	if err != nil {
		at, err = time.Parse(time.RFC3339, value)
	}
	if err == nil {
		return at.Sub(now), true
	}
	n, ok := number(value)
	switch {
	case n >= 1e12:
		return time.UnixMilli(int64(min(n, 1e15))).Sub(now), ok
	case n >= 1e9:
		return time.UnixMilli(int64(n * 1e3)).Sub(now), ok
	}
	return time.Duration(n * float64(time.Second)), ok
}

// number reads a number of decimal digits, which can have a fraction.
func number(s string) (float64, bool) {
	if strings.Trim(s, "0123456789.") != "" { // ParseFloat also reads 1e9, -0 and Inf
		return 0, false
	}
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return n, true
	}
	return 0, false
}

// ofSeconds returns n seconds as a duration.
func ofSeconds(n int64) time.Duration {
	if n > int64(weir.Never/time.Second) {
		return weir.Never
	}
	return time.Duration(n) * time.Second
}
