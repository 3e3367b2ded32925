package weirhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
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

// Requests leave at the limiter's pace, for each host.
func TestTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{start: time.Now()}
		rt := &weirhttp.Transport{Limiter: pace(t), Base: s}
		for _, url := range []string{"http://a.test/x", "https://A.test:8443/y", "http://a.test./z", "http://b.test/"} {
			if err := send(t.Context(), t, rt, url); err != nil {
				t.Error(err)
			}
		}
		if want := []time.Duration{0, time.Second, 2 * time.Second, 2 * time.Second}; !slices.Equal(s.times, want) {
			t.Errorf("requests left at %v, want %v", s.times, want)
		}
	})
}

// A turn that comes too late is an ErrDenied at once, and consumes nothing. A request
// that ends while it waits gives its turn back.
func TestTransportLate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		maxWait time.Duration
		timeout time.Duration // of the context
		cancel  time.Duration // after which the context is cancelled
		want    error
		took    time.Duration
	}{
		{"in time", 0, time.Second, time.Hour, nil, time.Second},
		{"in time, by MaxWait", time.Second, time.Hour, time.Hour, nil, time.Second},
		{"any wait", weir.Never, time.Hour, time.Hour, nil, time.Second},
		{"after the deadline", 0, time.Second - time.Microsecond, time.Hour, weir.ErrDenied, 0},
		{"after MaxWait", time.Second - time.Microsecond, time.Hour, time.Hour, weir.ErrDenied, 0},
		{"cancelled", 0, time.Hour, time.Millisecond, context.Canceled, time.Millisecond},
		{"cancelled before", 0, time.Hour, 0, context.Canceled, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &service{start: time.Now()}
				lim := pace(t)
				rt := &weirhttp.Transport{Limiter: lim, Base: s, Request: func(r *http.Request) (weir.Request, error) {
					return weir.Request{Key: weir.KeyOf("all"), MaxWait: tt.maxWait}, nil
				}}
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
				err := send(ctx, t, rt, "http://a.test")
				if took := time.Since(s.start); !errors.Is(err, tt.want) || took != tt.took {
					t.Errorf("got %v after %v, want %v after %v", err, took, tt.want, tt.took)
				}
				if err != nil { // as if it had not been made
					time.Sleep(time.Until(s.start.Add(time.Second)))
					if err := send(t.Context(), t, rt, "http://a.test"); err != nil || s.times[1] != time.Second {
						t.Errorf("the next request: got %v at %v, want one second", err, s.times)
					}
				}
			})
		})
	}
}

// Misuse and outages are errors, and nothing is sent.
func TestTransportErrors(t *testing.T) {
	outage, err := weir.New("test", down{memory.New(nil)}, algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	window := newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour})
	of := func(req weir.Request, err error) weirhttp.RequestFunc {
		return func(*http.Request) (weir.Request, error) { return req, err }
	}
	mine := errors.New("mine")
	for _, tt := range []struct {
		name string
		rt   *weirhttp.Transport
		is   error
		want string
	}{
		{"zero", &weirhttp.Transport{}, nil, "set Limiter to a *weir.Limiter"},
		{"a zero Limiter", &weirhttp.Transport{Limiter: new(weir.Limiter)}, nil, "make one with New"},
		{"a zero Leases", &weirhttp.Transport{Leases: new(weir.Limiter)}, nil, "make one with New"},
		{"no waiting", &weirhttp.Transport{Limiter: window}, weir.ErrUnsupported, "use algorithm.GCRA"},
		{"no leases", &weirhttp.Transport{Leases: window}, weir.ErrUnsupported, "a rule must be an algorithm.Concurrency"},
		{"no leases, with a MaxWait", &weirhttp.Transport{Leases: window, Request: of(weir.Request{Key: weir.KeyOf("a"), MaxWait: 1}, nil)}, weir.ErrUnsupported, "a rule must be an algorithm.Concurrency"},
		{"two segments", &weirhttp.Transport{Limiter: pace(t), Request: of(weir.Request{Key: weir.KeyOf("a", "b")}, nil)}, weir.ErrInvalidKey, "2 segments"},
		{"nine segments", &weirhttp.Transport{Leases: newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: 1000}), Request: of(weir.Request{Key: weir.KeyOf(make([]string, 9)...)}, nil)}, weir.ErrInvalidKey, "9 segments"},
		{"a peek", &weirhttp.Transport{Limiter: pace(t), Request: of(weir.Request{Key: weir.KeyOf("a"), Op: weir.Peek}, nil)}, nil, "Op is Peek"},
		{"a peek for a lease", &weirhttp.Transport{Leases: newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: 1000}), Request: of(weir.Request{Key: weir.KeyOf("a"), Op: weir.Peek}, nil)}, nil, "Op is Peek"},
		{"a negative MaxWait", &weirhttp.Transport{Limiter: pace(t), Request: of(weir.Request{Key: weir.KeyOf("a"), MaxWait: -1}, nil)}, nil, "MaxWait is -1ns"},
		{"an error of the RequestFunc", &weirhttp.Transport{Limiter: pace(t), Request: of(weir.Request{}, mine)}, mine, "mine"},
		{"an outage", &weirhttp.Transport{Limiter: outage}, store.ErrUnavailable, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := new(service)
			tt.rt.Base = s
			err := send(t.Context(), t, tt.rt, "http://a.test")
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || len(s.times) > 0 {
				t.Errorf("got %v and %d requests, want %v, %q and none", err, len(s.times), tt.is, tt.want)
			}
		})
	}
	rt := &weirhttp.Transport{Limiter: pace(t), Base: new(service)}
	if err := send(t.Context(), t, rt, "file:///etc"); !errors.Is(err, weirhttp.ErrNoKey) {
		t.Errorf("a URL without a host: got %v, want an ErrNoKey", err)
	}
	rt.Request = of(weir.Request{}, weirhttp.ErrUnlimited)
	rt.Limiter = outage
	if err := send(t.Context(), t, rt, "http://a.test"); err != nil {
		t.Errorf("an unlimited request: got %v", err)
	}
}

// Once the request is sent, its body belongs to the base, which may still read it.
func TestTransportBody(t *testing.T) {
	body := &closeable{Reader: strings.NewReader("hello")}
	r, err := http.NewRequest(http.MethodPost, "http://a.test", body)
	if err != nil {
		t.Fatal(err)
	}
	unlimited := func(*http.Request) (weir.Request, error) { return weir.Request{}, weirhttp.ErrUnlimited }
	for _, request := range []weirhttp.RequestFunc{nil, unlimited} {
		rt := &weirhttp.Transport{Limiter: pace(t), Base: reading{}, Request: request}
		if _, err := rt.RoundTrip(r); err != nil || body.closed {
			t.Errorf("got %v, closed: %v, want an open body", err, body.closed)
		}
	}
}

// A reading is a base that still reads the body of the request when it returns.
type reading struct{}

func (reading) RoundTrip(*http.Request) (*http.Response, error) { return response(200, nil), nil }

// A down is a store that is not available.
type down struct{ store.Store }

func (down) Eval(_ context.Context, _ *store.Script, _ []string, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	return reply, store.ErrUnavailable
}

// CloseIdleConnections reaches the base.
func TestCloseIdleConnections(t *testing.T) {
	base := new(idle)
	(&http.Client{Transport: &weirhttp.Transport{Base: base}}).CloseIdleConnections()
	if *base != 1 {
		t.Errorf("got %d calls, want 1", *base)
	}
	(&weirhttp.Transport{Base: new(service)}).CloseIdleConnections()
}

type idle int

func (*idle) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("idle") }

func (i *idle) CloseIdleConnections() { *i++ }

// The timer of a store can be earlier than the timer of the context. The turn may be
// reserved then, and is refunded.
func TestTransportEarlyTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1})
		early := wrapped(lim, func(next weir.Decider) weir.Decider {
			return deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
				res, err := next.Decide(ctx, r, each)
				if r.Op == weir.Consume {
					return weir.Result{}, context.DeadlineExceeded
				}
				return res, err
			})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := send(ctx, t, &weirhttp.Transport{Limiter: early, Base: new(service)}, "http://a.test")
		res, peekErr := lim.Peek(t.Context(), "a.test")
		if !errors.Is(err, context.DeadlineExceeded) || peekErr != nil || res.Remaining != 1 {
			t.Errorf("got %v, %+v, %v, want DeadlineExceeded and a full limit", err, res, peekErr)
		}
	})
}

// Only the fields Key, Cost, MaxWait and ID of a request are used.
func TestTransportFields(t *testing.T) {
	lim := newLimiter(t, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 5})
	req := weir.Request{Key: weir.KeyOf("all"), Cost: 2, ID: "one", Metadata: "unused", Actual: weir.ActualCost(3)}
	rt := &weirhttp.Transport{Limiter: lim, Base: new(service), Request: func(*http.Request) (weir.Request, error) { return req, nil }}
	for range 2 { // the ID makes the second request a repetition
		if err := send(t.Context(), t, rt, "http://a.test"); err != nil {
			t.Error(err)
		}
	}
	if res, err := lim.Peek(t.Context(), "all"); err != nil || res.Remaining != 3 {
		t.Errorf("got %+v, %v, want 3 tokens", res, err)
	}
}
