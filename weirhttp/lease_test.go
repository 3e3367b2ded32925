package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/weirhttp"
)

// The lease is held until the request is over, whatever its end is, and then it is free.
func TestTransportLease(t *testing.T) {
	broken := errors.New("broken")
	hello := func() io.ReadCloser { return &closeable{Reader: strings.NewReader("hello")} }
	var written strings.Builder
	upgrade := struct { // the body of a response with status 101 can be written
		io.ReadCloser
		io.Writer
	}{hello(), &written}
	answer := func(body io.ReadCloser, err error) func(int, *http.Request) (*http.Response, error) {
		return func(int, *http.Request) (*http.Response, error) {
			if err != nil {
				return nil, err
			}
			return response(200, body), nil
		}
	}
	for _, tt := range []struct {
		name   string
		answer func(int, *http.Request) (*http.Response, error)
		during bool // the lease is held after RoundTrip
		end    func(res *http.Response, cancel func())
	}{
		{"closed", answer(hello(), nil), true, func(res *http.Response, _ func()) { _ = res.Body.Close() }},
		{"read to its end", answer(hello(), nil), true, func(res *http.Response, _ func()) { _, _ = io.ReadAll(res.Body) }},
		{"a read fails", answer(io.NopCloser(iotest.ErrReader(broken)), nil), true, func(res *http.Response, _ func()) { _, _ = res.Body.Read(make([]byte, 1)) }},
		{"closed twice, and read", answer(hello(), nil), true, func(res *http.Response, _ func()) {
			_, _ = res.Body.Close(), res.Body.Close()
			_, _ = io.ReadAll(res.Body)
		}},
		{"an upgrade", answer(upgrade, nil), true, func(res *http.Response, _ func()) {
			_, err := io.WriteString(res.Body.(io.Writer), "hi")
			if got, readErr := io.ReadAll(res.Body); err != nil || readErr != nil || written.String() != "hi" || string(got) != "hello" {
				t.Errorf("wrote %q, read %q, %v", written.String(), got, err)
			}
		}},
		{"the context ends", answer(hello(), nil), true, func(_ *http.Response, cancel func()) { cancel() }},
		{"no body", answer(http.NoBody, nil), false, nil},
		{"an error", answer(nil, broken), false, nil},
		{"a panic", func(int, *http.Request) (*http.Response, error) { panic("base") }, false, nil},
		{"no response", func(int, *http.Request) (*http.Response, error) { return nil, nil }, false, nil}, // a broken base
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: 10 * time.Second})
				free := func() bool {
					t.Helper()
					synctest.Wait()
					return weirtest.Left(t, leases, "a.test").Remaining == 1
				}
				held := false
				rt := &weirhttp.Transport{Leases: leases, Limiter: pace(t), Base: &service{answer: func(n int, r *http.Request) (*http.Response, error) {
					held = !free()
					return tt.answer(n, r)
				}}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://a.test", nil)
				if err != nil {
					t.Fatal(err)
				}
				var res *http.Response
				func() {
					defer func() { _ = recover() }()
					res, _ = rt.RoundTrip(r)
				}()
				if !held || free() == tt.during {
					t.Errorf("held during RoundTrip: %v, want true; free after it: %v, want %v", held, free(), !tt.during)
				}
				if tt.during {
					time.Sleep(time.Minute) // longer than a lease: it is renewed
					if free() {
						t.Error("the lease is free after a minute, want it to be renewed")
					}
					tt.end(res, cancel)
				}
				if !free() {
					t.Error("the lease is held after the end, want it to be free")
				}
			})
		})
	}
}

// A request waits for a lease, within its MaxWait and its deadline, and its turn comes
// after.
func TestTransportLeaseWait(t *testing.T) {
	for _, tt := range []struct {
		name             string
		maxWait, timeout time.Duration
		want             error
		most             time.Duration
	}{
		{"long enough", 0, time.Hour, nil, 5500 * time.Millisecond},
		{"long enough, by MaxWait", time.Minute, time.Hour, nil, 5500 * time.Millisecond},
		{"MaxWait", time.Second, time.Hour, weir.ErrDenied, time.Second},
		{"a MaxWait that is too short for a second try", 1, time.Hour, weir.ErrDenied, time.Microsecond},
		{"deadline", 0, time.Second, context.DeadlineExceeded, time.Second},
		{"deadline before MaxWait", time.Minute, time.Second, context.DeadlineExceeded, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leases := newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Minute})
				other, err := leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("all")})
				if err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(5*time.Second, func() { _, _ = other.Release(context.Background()) })
				s := &service{start: time.Now()}
				rt := &weirhttp.Transport{Leases: leases, Limiter: pace(t), Base: s, Request: asking(weir.Request{MaxWait: tt.maxWait})}
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				err = send(ctx, t, rt, "http://a.test")
				if took := time.Since(s.start); !errors.Is(err, tt.want) || took > tt.most || errors.Is(tt.want, weir.ErrDenied) && errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v after %v, want %v within %v", err, took, tt.want, tt.most)
				}
				if left := remaining(t, rt.Limiter); (left == 4) == (tt.want == nil) {
					t.Errorf("%d turns are left of 4: want a turn to be taken only after the lease", left)
				}
			})
		})
	}
}

// If the store answers no more after a denial, the wait ends with MaxWait, and the error
// is not the error of a context that the caller does not know.
func TestTransportLeaseHangs(t *testing.T) {
	for _, early := range []bool{false, true} { // the client of the store notices the deadline first
		synctest.Test(t, func(t *testing.T) {
			var hangs bool
			leases := weirtest.Wrap(t, newLimiter(t, algorithm.Concurrency{Limit: 1, Lease: time.Hour}), weirtest.Around(func(next weir.Decider) deciderFunc {
				return func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
					switch {
					case hangs && early:
						end, _ := ctx.Deadline()
						time.Sleep(time.Until(end))
						return weir.Result{}, fmt.Errorf("early: %w", context.DeadlineExceeded)
					case hangs:
						<-ctx.Done()
						return weir.Result{}, ctx.Err()
					}
					res, err := next.Decide(ctx, r, each)
					hangs = err == nil && !res.Allowed
					return res, err
				}
			}))
			if _, err := leases.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("all")}); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			err := send(t.Context(), t, &weirhttp.Transport{Leases: leases, Base: new(service), Request: asking(weir.Request{MaxWait: time.Second})}, "http://a.test")
			if !errors.Is(err, weir.ErrDenied) || errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 2*time.Second {
				t.Errorf("early %v: got %v after %v, want an ErrDenied alone", early, err, time.Since(start))
			}
		})
	}
}
