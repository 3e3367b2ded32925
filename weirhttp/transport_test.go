package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// A service answers requests, and notes when each of them came.
type service struct {
	mu     sync.Mutex
	start  time.Time
	times  []time.Duration
	answer func(n int, r *http.Request) (*http.Response, error) // nil: status 200 and no body
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	n := len(s.times)
	s.times = append(s.times, time.Since(s.start))
	s.mu.Unlock()
	if r.Body != nil {
		_ = r.Body.Close()
	}
	if s.answer != nil {
		return s.answer(n, r)
	}
	return response(http.StatusOK, nil), nil
}

// response returns a response with these fields: a name, a value, and so on.
func response(status int, body io.ReadCloser, fields ...string) *http.Response {
	h := make(http.Header)
	for i := 0; i < len(fields); i += 2 {
		h.Add(fields[i], fields[i+1])
	}
	if body == nil {
		body = http.NoBody
	}
	return &http.Response{StatusCode: status, Header: h, Body: body}
}

// A closeable is a body that notes whether it is closed.
type closeable struct {
	io.Reader
	closed bool
}

func (c *closeable) Close() error { c.closed = true; return nil }

// send sends one request, and closes the body of the response.
func send(ctx context.Context, t *testing.T, rt http.RoundTripper, url string) error {
	t.Helper()
	body := &closeable{Reader: strings.NewReader("hello")}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := rt.RoundTrip(r)
	if (res == nil) == (err == nil) {
		t.Errorf("got response %v and error %v, want one of them", res, err)
	}
	if !body.closed {
		t.Errorf("the body of the request is not closed, error %v", err)
	}
	if res != nil {
		_ = res.Body.Close()
	}
	return err
}

func pace(t *testing.T) *weir.Limiter {
	return newLimiter(t, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 3})
}

// A turn that comes too late is an ErrDenied at once, and consumes nothing. A request that ends while
// it waits gives its turn back, unless its ID is the caller's. Its lease is free in any case.
func TestTransportLate(t *testing.T) {
	for name, tt := range map[string]struct {
		req     weir.Request
		timeout time.Duration // of the context
		cancel  time.Duration // after which the context is cancelled
		want    error
		took    time.Duration
		next    time.Duration // when the next request leaves, after an error
	}{
		"in time":                {weir.Request{}, time.Second, time.Hour, nil, time.Second, 0},
		"in time, by MaxWait":    {weir.Request{MaxWait: time.Second}, time.Hour, time.Hour, nil, time.Second, 0},
		"any wait":               {weir.Request{MaxWait: weir.Never}, time.Hour, time.Hour, nil, time.Second, 0},
		"after the deadline":     {weir.Request{}, time.Second - time.Microsecond, time.Hour, weir.ErrDenied, 0, time.Second},
		"after MaxWait":          {weir.Request{MaxWait: time.Second - time.Microsecond}, time.Hour, time.Hour, weir.ErrDenied, 0, time.Second},
		"cancelled":              {weir.Request{}, time.Hour, time.Millisecond, context.Canceled, time.Millisecond, time.Second},
		"cancelled, with an ID":  {weir.Request{ID: "mine"}, time.Hour, time.Millisecond, context.Canceled, time.Millisecond, 2 * time.Second},
		"cancelled before":       {weir.Request{}, time.Hour, 0, context.Canceled, 0, time.Second},
		"metadata and an Actual": {weir.Request{Metadata: "unused", Actual: weir.ActualCost(3)}, time.Hour, time.Hour, nil, time.Second, 0},
		"twice the cost":         {weir.Request{Cost: 2, MaxWait: time.Second}, time.Hour, time.Hour, weir.ErrDenied, 0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &service{start: time.Now()}
			leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour})
			rt := &weirhttp.Transport{Limiter: newLimiter(t, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 2}), Leases: leases, Base: s, Request: asking(weir.Request{Cost: 2})}
			if err := send(t.Context(), t, rt, "http://a.test"); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			if tt.cancel > 0 {
				time.AfterFunc(tt.cancel, cancel)
			} else {
				cancel()
			}
			rt.Request = asking(tt.req)
			err := send(ctx, t, rt, "http://a.test")
			if took := time.Since(s.start); !errors.Is(err, tt.want) || errors.Is(err, weirhttp.ErrPaused) || took != tt.took || remaining(t, leases) != 1 {
				t.Errorf("%s: got %v after %v and %d free leases, want %v after %v and 1", name, err, took, remaining(t, leases), tt.want, tt.took)
			}
			rt.Request = all
			if err != nil && (send(t.Context(), t, rt, "http://a.test") != nil || s.times[1] != tt.next) {
				t.Errorf("%s: the next request left at %v, want %v", name, s.times, tt.next)
			}
		})
	}
}

// Misuse and outages are errors, and nothing is sent.
func TestTransportErrors(t *testing.T) {
	st := weirtest.NewFaulty()
	st.Set(weirtest.Down)
	outage := weirtest.New(t, st, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 3})
	window := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: 1000})
	mine := errors.New("mine")
	fails := func(err error) weirhttp.RequestFunc {
		return func(*http.Request) (weir.Request, error) { return weir.Request{}, err }
	}
	for name, tt := range map[string]struct {
		rt   *weirhttp.Transport
		is   error
		want string
	}{
		"zero":                     {&weirhttp.Transport{}, nil, "set Limiter to a *weir.Limiter"},
		"a zero Limiter":           {&weirhttp.Transport{Limiter: new(weir.Limiter)}, nil, "make one with New"},
		"a zero Leases":            {&weirhttp.Transport{Leases: new(weir.Limiter)}, nil, "make one with New"},
		"no waiting":               {&weirhttp.Transport{Limiter: window}, weir.ErrUnsupported, "use algorithm.GCRA"},
		"no leases":                {&weirhttp.Transport{Leases: window}, weir.ErrUnsupported, "a rule must be an algorithm.Concurrency"},
		"no leases, for a MaxWait": {&weirhttp.Transport{Leases: window, Request: asking(weir.Request{MaxWait: 1})}, weir.ErrUnsupported, "a rule must be an algorithm.Concurrency"},
		"no pauses":                {&weirhttp.Transport{Limiter: pace(t), Pauses: window}, weir.ErrUnsupported, "weirhttp: Transport.Pauses: weir: Pause: no rule pauses keys"},
		"two segments":             {&weirhttp.Transport{Limiter: pace(t), Request: asking(weir.Request{Key: weir.KeyOf("a", "b")})}, weir.ErrInvalidKey, "2 segments"},
		"nine segments":            {&weirhttp.Transport{Leases: leases, Request: asking(weir.Request{Key: weir.KeyOf(make([]string, 9)...)})}, weir.ErrInvalidKey, "9 segments"},
		"no host":                  {&weirhttp.Transport{Limiter: pace(t), Request: fails(weirhttp.ErrNoKey)}, weirhttp.ErrNoKey, ""},
		"a peek":                   {&weirhttp.Transport{Limiter: pace(t), Request: asking(weir.Request{Op: weir.Peek})}, nil, "Op is Peek"},
		"a negative MaxWait":       {&weirhttp.Transport{Limiter: pace(t), Request: asking(weir.Request{MaxWait: -1})}, nil, "MaxWait is -1ns"},
		"an error of Request":      {&weirhttp.Transport{Limiter: pace(t), Request: fails(mine)}, mine, "mine"},
		"an outage":                {&weirhttp.Transport{Limiter: outage}, store.ErrUnavailable, ""},
	} {
		s := new(service)
		tt.rt.Base = s
		url := "http://a.test"
		if name == "no host" {
			tt.rt.Request, url = nil, "file:///etc"
		}
		err := send(t.Context(), t, tt.rt, url)
		if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || len(s.times) > 0 {
			t.Errorf("%s: got %v and %d requests, want %v, %q and none", name, err, len(s.times), tt.is, tt.want)
		}
	}
	if err := send(t.Context(), t, &weirhttp.Transport{Limiter: outage, Base: new(service), Request: fails(weirhttp.ErrUnlimited)}, "http://a.test"); err != nil {
		t.Errorf("an unlimited request: got %v", err)
	}
}

// A base still reads the body of the request when it returns, and counts its closed connections.
type base int

func (*base) RoundTrip(*http.Request) (*http.Response, error) { return response(200, nil), nil }

func (b *base) CloseIdleConnections() { *b++ }

// Once the request is sent, its body belongs to the base, which may still read it.
// CloseIdleConnections reaches the base too.
func TestTransportBase(t *testing.T) {
	body, b := &closeable{Reader: strings.NewReader("hello")}, new(base)
	r, err := http.NewRequest(http.MethodPost, "http://a.test", body)
	if err != nil {
		t.Fatal(err)
	}
	unlimited := func(*http.Request) (weir.Request, error) { return weir.Request{}, weirhttp.ErrUnlimited }
	for _, request := range []weirhttp.RequestFunc{nil, unlimited} {
		rt := &weirhttp.Transport{Limiter: pace(t), Base: b, Request: request}
		if _, err := rt.RoundTrip(r); err != nil || body.closed {
			t.Errorf("got %v, closed: %v, want an open body", err, body.closed)
		}
		rt.CloseIdleConnections()
	}
	(&weirhttp.Transport{Base: new(service)}).CloseIdleConnections() // it has no such method
	(&weirhttp.Transport{}).CloseIdleConnections()
	if *b != 2 {
		t.Errorf("got %d calls, want 2", *b)
	}
}

// If a rule counts a unit, requests wait for the end of a pause too. A request without
// Costs is not sent.
func TestTransportCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, lim := &service{start: time.Now()}, weirtest.NewPolicy(t, memory.New(nil), counted)
		for i, tt := range []struct {
			request weirhttp.RequestFunc
			pauses  *weir.Limiter
			sent    time.Duration
			want    error
		}{
			{weirhttp.WithCosts(all, ofBytes(10, nil)), lim, 0, nil},
			{weirhttp.WithCosts(all, ofBytes(1, nil)), lim, 6 * time.Minute, nil},
			{weirhttp.WithCosts(all, ofBytes(1, nil)), weirtest.Only(t, lim, "pause"), 12 * time.Minute, nil},
			{all, lim, 0, weir.ErrInvalidCost},
			{nil, lim, 0, weir.ErrInvalidCost},
		} {
			if i == 1 {
				if _, err := lim.Pause(t.Context(), 5*time.Minute, "all"); err != nil {
					t.Fatal(err)
				}
			}
			err := send(t.Context(), t, &weirhttp.Transport{Limiter: lim, Pauses: tt.pauses, Request: tt.request, Base: f}, "http://a.test")
			if !errors.Is(err, tt.want) || err != nil && !strings.HasPrefix(err.Error(), "weirhttp: the request has no Costs: use WithCosts: ") {
				t.Errorf("request %d: got %v, want %v", i, err, tt.want)
			}
			if n := len(f.times); err == nil && f.times[n-1].Round(time.Millisecond) != tt.sent {
				t.Errorf("request %d was sent after %v, want %v", i, f.times[n-1], tt.sent)
			}
		}
	})
}
