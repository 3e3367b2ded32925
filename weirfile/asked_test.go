package weirfile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// asker is a function of Options.Override, for a test.
type asker struct {
	mu    sync.Mutex
	calls []string
	next  func(key string) (Override, bool, error)
}

func (a *asker) override(_ context.Context, policy string, key weir.Key) (Override, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := policy + " " + strings.Join(key.Segments(), " ")
	a.calls = append(a.calls, name)
	return a.next(name)
}

func TestOverrideFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		a := &asker{next: func(string) (Override, bool, error) {
			return Override{Key: weir.KeyOf("acme", ""), Plan: "pro"}, true, nil
		}}
		var reported []error
		l := limitsOfText(t, shop, &Options{Override: a.override, OnError: func(err error) { reported = append(reported, err) }})
		expect := func(user, want string, calls, failures int) {
			t.Helper()
			if got := wordsOf(limiter(t, l, "api", "", "acme", user)); got != want || len(a.calls) != calls || len(reported) != failures || l.Status().OverrideFailures != int64(failures) {
				t.Errorf("got %s after %d calls, %v, %+v: want %s, %d, %d", got, len(a.calls), reported, l.Status(), want, calls, failures)
			}
		}
		const policy, pro = "tenant 100, user 10", "tenant 500, user 50"
		expect("ann", pro, 1, 0) // the file has one for the whole key, and the function one for the tenant
		expect("dan", pro, 2, 0)
		expect("dan", pro, 2, 0)
		time.Sleep(time.Minute)
		expect("dan", pro, 2, 0)
		// After a minute, the function is called again. If it fails, the last result
		// stays.
		a.next = func(string) (Override, bool, error) { return Override{}, false, boom }
		time.Sleep(time.Nanosecond)
		expect("dan", pro, 3, 1)
		expect("dan", pro, 3, 1)
		if err := l.Status().OverrideErr; !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Second + 1)
		expect("dan", pro, 4, 2)
		// Without a last result, the limits are those of the plan or the policy.
		expect("eve", policy, 5, 3)
		expect("eve", policy, 5, 3)
		// An invalid override is an error too.
		a.next = func(string) (Override, bool, error) { return Override{Plan: "prp"}, true, nil }
		time.Sleep(time.Second + 1)
		expect("eve", policy, 6, 4)
		a.next = func(string) (Override, bool, error) {
			return Override{Rules: []weir.Rule{{Name: "user", Algorithm: algorithm.FixedWindow{Limit: 3, Window: time.Hour}}}}, true, nil
		}
		time.Sleep(time.Second + 1)
		expect("eve", "tenant 100, user 3", 7, 4)
		if err := l.Status().OverrideErr; err != nil {
			t.Errorf("got %v", err)
		}
		// The key has none any more.
		a.next = func(string) (Override, bool, error) { return Override{}, false, nil }
		time.Sleep(time.Minute + 1)
		expect("eve", policy, 8, 4)
		if s, err := l.Source(t.Context(), "api", "", weir.KeyOf("acme", "eve")); err != nil || s.Asked {
			t.Errorf("got %v, %v", s, err)
		}
		// It is not asked about a key that no decision accepts.
		if _, err := l.For(t.Context(), "api", "", weir.KeyOf("acme")); !errors.Is(err, weir.ErrInvalidKey) || len(a.calls) != 8 {
			t.Errorf("got %v after %d calls", err, len(a.calls))
		}
	})
}

// No more than MaxOverrides results are kept, and keys in use are among them.
func TestMaxOverrides(t *testing.T) {
	t.Parallel()
	a := &asker{next: func(string) (Override, bool, error) { return Override{}, false, nil }}
	l := limitsOfText(t, shop, &Options{Override: a.override, MaxOverrides: 10})
	for i := range 100 {
		limiter(t, l, "api", "", "acme", fmt.Sprint("u", i))
		limiter(t, l, "api", "", "acme", "busy")
		if n := len(l.asked.recent) + len(l.asked.older); n > 10 {
			t.Fatalf("%d results are kept, want at most 10", n)
		}
	}
	if len(a.calls) != 101 {
		t.Errorf("the function was called %d times, want 101", len(a.calls))
	}
}

// Calls about a new key wait for the first one, at most until their own context ends. If
// its context ends, the next one asks. One call replaces an old result, which the others use
// meanwhile. A panic counts as a failure.
func TestOverrideAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var l *Limits
		l = limitsOfText(t, shop, &Options{Override: func(ctx context.Context, _ string, key weir.Key) (Override, bool, error) {
			calls.Add(1)
			select {
			case <-ctx.Done():
				return Override{}, false, ctx.Err()
			case <-time.After(time.Minute):
			}
			if key.Segments()[1] == "mad" {
				panic("mad")
			}
			return Override{Key: weir.KeyOf("acme", ""), Plan: "pro"}, true, nil
		}, OnError: func(error) {
			if calls.Load() > 2 { // the panic: the key can be asked for meanwhile
				_, _ = l.For(t.Context(), "api", "", weir.KeyOf("acme", "mad"))
			}
		}})
		var wg sync.WaitGroup
		get := func(ctx context.Context, user, want string, after time.Duration) {
			wg.Go(func() {
				defer func() { _ = recover() }()
				start := time.Now()
				if lim, err := l.For(ctx, "api", "", weir.KeyOf("acme", user)); err != nil || wordsOf(lim) != want || time.Since(start) != after {
					t.Errorf("got %v, %v after %v, want %s after %v", wordsOf(lim), err, time.Since(start), want, after)
				}
			})
			synctest.Wait()
		}
		const plain, pro = "tenant 100, user 10", "tenant 500, user 50"
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		get(short, "dan", plain, time.Second)
		get(short, "dan", plain, time.Second)
		for range 100 {
			get(t.Context(), "dan", pro, time.Second+time.Minute)
		}
		get(t.Context(), "mad", "a panic", 0)
		get(t.Context(), "mad", plain, time.Minute)
		wg.Wait()
		time.Sleep(time.Hour)
		get(t.Context(), "dan", pro, time.Minute)
		for range 10 {
			get(t.Context(), "dan", pro, 0)
		}
		wg.Wait()
		if s := l.Status(); calls.Load() != 4 || s.OverrideFailures != 2 {
			t.Errorf("%d calls, want 4, and %d failures, want 2: %v", calls.Load(), s.OverrideFailures, s.OverrideErr)
		}
	})
}

// The results about long keys are kept too, each under its own key, without the text of
// the key. A key is valid even where a request needs amounts or a lease.
func TestOverrideOfLongKeys(t *testing.T) {
	long, asks := strings.Repeat("x", 1<<20), 0
	opts := &Options{Override: func(_ context.Context, _ string, key weir.Key) (Override, bool, error) {
		asks++
		return Override{Plan: "pro"}, key.Segments()[0] == "acme", nil
	}}
	limits := limitsOfText(t, "policies: {api: {segments: [tenant, user], units: [input], rules: {user: {algorithm: fixed window, limit: 1, window: 1s, unit: input}, seats: {algorithm: concurrency, limit: 1, lease: 1s}}, plans: {pro: {user: {limit: 2}}}}}\n", opts)
	for range 2 {
		for tenant, want := range map[string]bool{"acme": true, "acme" + long: false} {
			s, err := limits.Source(t.Context(), "api", "", weir.KeyOf(tenant, long))
			if err != nil || s.Override != want {
				t.Errorf("%.8s: got %+v, %v", tenant, s, err)
			}
		}
	}
	if asks != 2 {
		t.Errorf("%d calls of Override for 2 keys", asks)
	}
	a, b := weir.KeyOf("a"+long, "c"), weir.KeyOf("a", long+"c")
	if askedOf("api", &a) == askedOf("api", &b) {
		t.Error("two long keys are kept as one")
	}
	for k := range limits.asked.recent {
		if k.key.Size() > 0 {
			t.Errorf("a key of %d bytes is kept", k.key.Size())
		}
	}
}
