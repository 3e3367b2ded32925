package weirhttp

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirhttp/internal/sfv"
)

const (
	// maxField is the largest length of a RateLimit field that is parsed, in bytes.
	maxField = 4096

	// sweepPauses is the number of pauses at which ended ones are removed.
	sweepPauses = 1024
)

// pauses are the times until which servers asked not to send requests, by key.
type pauses struct {
	mu    sync.Mutex
	until map[weir.Key]time.Time
	sweep int // how many pauses there are when ended ones are removed next
}

// left returns the rest of the pause of key. It is 0 or less if there is none.
func (p *pauses) left(key weir.Key) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := time.Until(p.until[key]) // long ago, if there is none
	if left <= 0 {
		delete(p.until, key)
	}
	return left
}

// note begins the pause that a response asks for, and returns its length. A pause never
// ends earlier because of another response.
func (p *pauses) note(key weir.Key, res *http.Response, most time.Duration) time.Duration {
	pause := min(askedPause(res), most)
	if pause <= 0 {
		return 0
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until, p.sweep = make(map[weir.Key]time.Time), sweepPauses
	}
	if len(p.until) >= p.sweep {
		maps.DeleteFunc(p.until, func(_ weir.Key, until time.Time) bool { return !until.After(now) })
		p.sweep = max(sweepPauses, 2*len(p.until))
	}
	if until := now.Add(pause); until.After(p.until[key]) {
		p.until[key] = until
	}
	return pause
}

// askedPause returns the pause that a response asks for. Retry-After takes precedence
// over RateLimit.
func askedPause(res *http.Response) time.Duration {
	if res.StatusCode >= http.StatusBadRequest {
		if pause, ok := retryAfter(res.Header); ok {
			return pause
		}
	}
	if age, _ := strconv.ParseUint(res.Header.Get("Age"), 10, 64); age > 0 {
		return 0 // a cache's copy: its RateLimit is not current
	}
	return exhausted(res.Header[rateLimit])
}

// retryAfter returns the longest time of the fields Retry-After, each of which is a number
// of seconds or a date. It is negative if all dates have passed.
func retryAfter(h http.Header) (longest time.Duration, found bool) {
	for _, value := range h.Values("Retry-After") {
		at, err := http.ParseTime(value)
		after := time.Until(at)
		if now, unknown := http.ParseTime(h.Get("Date")); unknown == nil {
			after = at.Sub(now) // by the server's clock: the clocks can differ
		}
		if value != "" && strings.Trim(value, "0123456789") == "" {
			n, _ := strconv.ParseInt(value, 10, 64) // the largest number, if it is larger
			after, err = ofSeconds(n), nil
		}
		if err == nil && (!found || after > longest) {
			longest, found = after, true
		}
	}
	return longest, found
}

// exhausted returns the longest time t of the items of the field RateLimit with r=0. A
// malformed field is ignored.
func exhausted(lines []string) time.Duration {
	value := strings.Join(lines, ", ")
	if value == "" || len(value) > maxField {
		return 0
	}
	items, _ := sfv.Parse(value) // none, if it is malformed
	var longest time.Duration
	for i := range items {
		r, ok := items[i].Integer("r")
		t, timed := items[i].Integer("t")
		if items[i].Value.Kind != sfv.String || !ok || r < 0 || timed && t < 0 {
			return 0
		}
		if r == 0 {
			longest = max(longest, ofSeconds(t))
		}
	}
	return longest
}

// ofSeconds returns n seconds as a duration.
func ofSeconds(n int64) time.Duration {
	if n > int64(weir.Never/time.Second) {
		return weir.Never
	}
	return time.Duration(n) * time.Second
}
