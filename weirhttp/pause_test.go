package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// The pause that an answer asks for is the time until the next request.
func TestPause(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble's clock
	date := func(d time.Duration) string { return start.Add(d).Format(http.TimeFormat) }
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
		{"seconds of a success", 200, []string{"Retry-After", "7"}, 0, 0},
		{"zero", 429, []string{"Retry-After", "0"}, 0, 0},
		{"a fraction", 429, []string{"Retry-After", "1.5"}, 0, 0},
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
		{"malformed: not closed", 200, []string{"RateLimit", `"a;r=0;t=9`}, 0, 0},
		{"malformed: a token", 200, []string{"RateLimit", `a;r=0;t=9`}, 0, 0},
		{"malformed: no r", 200, []string{"RateLimit", `"b";t=9, "a";r=0;t=9`}, 0, 0},
		{"malformed: a negative r", 200, []string{"RateLimit", `"b";r=-1, "a";r=0;t=9`}, 0, 0},
		{"malformed: a decimal r", 200, []string{"RateLimit", `"a";r=0.0;t=9`}, 0, 0},
		{"malformed: a negative t", 200, []string{"RateLimit", `"b";r=0;t=-9, "a";r=0;t=9`}, 0, 0},
		{"malformed: the end", 200, []string{"RateLimit", `"a";r=0;t=9,`}, 0, 0},
		{"too long", 200, []string{"RateLimit", `"a";r=0;t=9` + strings.Repeat(`, "a";r=0;t=9`, 400)}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{start: time.Now(), answer: func(n int, _ *http.Request) (*http.Response, error) {
					if n > 0 {
						return response(200, nil), nil
					}
					return response(tt.status, nil, tt.fields...), nil
				}}
				fast := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000})
				rt := &weirhttp.Transport{Limiter: fast, Base: s, MaxPause: tt.most}
				for _, url := range []string{"http://a.test", "http://b.test", "http://a.test"} { // b has no pause
					if err := send(t.Context(), t, rt, url); err != nil {
						t.Error(err)
					}
				}
				if want := []time.Duration{0, 0, tt.want}; !slices.Equal(s.times, want) {
					t.Errorf("requests left at %v, want %v", s.times, want)
				}
			})
		})
	}
}

// A request that may not wait so long gets an ErrPaused at once, and consumes nothing.
func TestPausedTooLong(t *testing.T) {
	for _, tt := range []struct {
		name             string
		maxWait, timeout time.Duration
		want             error
	}{
		{"MaxWait", 10 * time.Second, time.Hour, weirhttp.ErrPaused},
		{"deadline", 0, 10 * time.Second, weirhttp.ErrPaused},
		{"long enough", 10*time.Second + time.Microsecond, 10*time.Second + time.Millisecond, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{start: time.Now(), answer: func(int, *http.Request) (*http.Response, error) {
					return response(429, nil, "Retry-After", "10"), nil
				}}
				lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2})
				rt := &weirhttp.Transport{Limiter: lim, Base: s, Request: func(*http.Request) (weir.Request, error) {
					return weir.Request{Key: weir.KeyOf("all"), MaxWait: tt.maxWait}, nil
				}}
				if err := send(t.Context(), t, rt, "http://a.test"); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				err := send(ctx, t, rt, "http://a.test")
				if !errors.Is(err, tt.want) || tt.want != nil && (!errors.Is(err, weir.ErrDenied) || time.Since(s.start) > 0) {
					t.Errorf("got %v after %v, want %v at once", err, time.Since(s.start), tt.want)
				}
				left := int64(1)
				if tt.want == nil {
					left = 0
				}
				if res, err := lim.Peek(t.Context(), "all"); err != nil || res.Remaining != left {
					t.Errorf("got %+v, %v, want %d tokens left", res, err, left)
				}
			})
		})
	}
}

// A shorter pause does not end a longer one.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now(), answer: func(n int, _ *http.Request) (*http.Response, error) {
			time.Sleep(time.Duration(n+1) * 100 * time.Millisecond)
			return response(429, nil, "Retry-After", []string{"10", "1", "0"}[n]), nil
		}}
		rt := &weirhttp.Transport{Limiter: newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000}), Base: s}
		done := make(chan error)
		for range 2 {
			go func() { done <- send(t.Context(), t, rt, "http://a.test") }()
			synctest.Wait()
		}
		err := errors.Join(<-done, <-done, send(t.Context(), t, rt, "http://a.test"))
		if want := []time.Duration{0, 0, 10*time.Second + 100*time.Millisecond}; err != nil || !slices.Equal(s.times, want) {
			t.Errorf("requests left at %v, %v, want %v", s.times, err, want)
		}
	})
}

// Requests that wait for their turn when a pause begins wait for its end, and then leave
// at the limiter's pace. Each of them consumes one token, and holds no lease during the
// pause that it finds.
func TestPauseOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now(), answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 0 {
				time.Sleep(500 * time.Millisecond) // the others wait for their turn
				return response(429, nil, "Retry-After", "10"), nil
			}
			return response(200, nil), nil
		}}
		st := memory.New(nil)
		lim, err := weir.NewPolicy(st, weir.Policy{Name: "test", Rules: []weir.Rule{
			{Name: "pace", Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 10}},
			{Name: "hour", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(10), Burst: 10}},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		rt := &weirhttp.Transport{Limiter: lim, Base: s}
		done := make(chan error)
		for range 5 {
			go func() { done <- send(t.Context(), t, rt, "http://a.test") }()
			synctest.Wait()
		}
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for i := 1; i < len(s.times); i++ {
			if gap := s.times[i] - s.times[i-1]; gap < time.Second || s.times[i] < 10*time.Second+500*time.Millisecond {
				t.Errorf("requests left at %v: want none in the pause of 10.5 s, and then at most one each second", s.times)
				break
			}
		}
		if len(s.times) != 5 || s.times[4] > 18*time.Second {
			t.Errorf("requests left at %v, want 5 of them within 18 s", s.times)
		}
		if hour, err := lim.Only("hour"); err != nil {
			t.Error(err)
		} else if res, err := hour.Peek(t.Context(), "a.test"); err != nil || res.Remaining != 5 {
			t.Errorf("got %+v, %v, want 5 tokens left of 10 after 5 requests", res, err)
		}
	})
}

// A request that waits for the end of a pause holds no lease, and has consumed nothing.
func TestPausedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now(), answer: func(int, *http.Request) (*http.Response, error) {
			return response(429, nil, "Retry-After", "10"), nil
		}}
		rt := &weirhttp.Transport{
			Limiter: newLimiter(t, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 2}),
			Leases:  newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Minute}),
			Base:    s,
		}
		if err := send(t.Context(), t, rt, "http://a.test"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- send(t.Context(), t, rt, "http://a.test") }()
		synctest.Wait()
		for lim, want := range map[*weir.Limiter]int64{rt.Limiter: 1, rt.Leases: 1} {
			if res, err := lim.Peek(t.Context(), "a.test"); err != nil || res.Remaining != want {
				t.Errorf("during the pause: got %+v, %v, want %d left", res, err, want)
			}
		}
		if err := <-done; err != nil || !slices.Equal(s.times, []time.Duration{0, 10 * time.Second}) {
			t.Errorf("requests left at %v, %v, want 0s and 10s", s.times, err)
		}
	})
}

// Pauses that have ended are removed, so that many hosts do not fill the memory. What is
// left still holds.
func TestManyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now(), answer: func(int, *http.Request) (*http.Response, error) {
			return response(429, nil, "Retry-After", "1"), nil
		}}
		fast := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1000), Burst: 1000})
		rt := &weirhttp.Transport{Limiter: fast, Base: s}
		for round := range 3 {
			for i := range 2000 {
				if err := send(t.Context(), t, rt, fmt.Sprintf("http://%d-%d.test", round, i)); err != nil {
					t.Fatal(err)
				}
			}
			at := time.Since(s.start)
			if err := send(t.Context(), t, rt, fmt.Sprintf("http://%d-0.test", round)); err != nil || time.Since(s.start)-at != time.Second {
				t.Errorf("round %d: the pause of the first host was %v, %v, want 1s", round, time.Since(s.start)-at, err)
			}
			time.Sleep(time.Second)
			if n := weirhttp.Pauses(rt); n > 4100 {
				t.Errorf("round %d: there are %d pauses, want the ended ones to be removed", round, n)
			}
		}
	})
}
