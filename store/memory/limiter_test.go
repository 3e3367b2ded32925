package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// The default clock follows the clock of a synctest bubble.
func TestSynctest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, err := weir.New("t", memory.New(nil), algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []struct {
			wait time.Duration // virtual
			want bool
		}{{0, true}, {0, false}, {time.Second - time.Microsecond, false}, {time.Microsecond, true}, {time.Hour, true}} {
			time.Sleep(step.wait)
			res, err := lim.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if res.Allowed != step.want {
				t.Errorf("step %d: got %v, want %v", i, res.Allowed, step.want)
			}
		}
	})
}

// Concurrent requests on one key are allowed exactly up to the limit.
func TestConcurrentLimit(t *testing.T) {
	t.Parallel()
	const burst, callers = 100, 8
	lim, err := weir.New("t", memory.New(nil), algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: burst}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var allowed [callers]int
	within(t, time.Minute, func() {
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for range burst {
					res, err := lim.Allow(context.Background(), "hot")
					if err != nil {
						t.Error(err)
						return
					}
					if res.Allowed {
						allowed[caller]++
					}
				}
			})
		}
		wg.Wait()
	})
	sum := 0
	for _, n := range allowed {
		sum += n
	}
	if sum != burst {
		t.Errorf("%d requests were allowed, want %d", sum, burst)
	}
}

// A flood of new keys does not evict keys that have consumed more than the new keys.
func TestFloodEvictsNoUsedUpKeys(t *testing.T) {
	t.Parallel()
	c := newClock()
	st := memory.New(&memory.Options{MaxKeys: 100, Now: c.now})
	lim, err := weir.New("t", st, algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 60}, nil)
	if err != nil {
		t.Fatal(err)
	}
	allow := func(key string, cost int64) (bool, error) {
		res, err := lim.AllowN(t.Context(), cost, key)
		return res.Allowed, err
	}
	for i := range 100 { // each uses up its burst, which is refilled in an hour
		if ok, err := allow(fmt.Sprint("denied", i), 60); !ok || err != nil {
			t.Fatalf("caller %d: %v, %v", i, ok, err)
		}
	}
	rejected := 0
	for i := range 20_000 {
		if _, err := allow(fmt.Sprint("new", i), 1); errors.Is(err, store.ErrUnavailable) {
			rejected++
		} else if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			denied := fmt.Sprint("denied", i/100%100)
			if ok, err := allow(denied, 60); ok || err != nil {
				t.Fatalf("after %d new keys, %s got %v, %v", i, denied, ok, err)
			}
		}
	}
	if rejected != 20_000 {
		t.Errorf("%d of 20000 new keys were rejected, want all", rejected)
	}
	c.advance(time.Hour + 2*time.Second) // a TTL is rounded up by about a second
	for i := range 100 {
		if ok, err := allow(fmt.Sprint("new", i), 1); !ok || err != nil {
			t.Fatalf("after all keys have expired, new key %d got %v, %v", i, ok, err)
		}
	}
}

// New keys that expire later do not evict a key whose last request was denied. They evict
// each other. If a request of that key is allowed again, the key can be evicted.
func TestFloodOfLongerLived(t *testing.T) {
	t.Parallel()
	c := newClock()
	st := memory.New(&memory.Options{MaxKeys: 100, Now: c.now})
	lim, err := weir.New("t", st, algorithm.FixedWindow{Limit: 1, Window: time.Hour}, nil)
	if err != nil {
		t.Fatal(err)
	}
	allow := func(caller string) bool {
		t.Helper()
		res, err := lim.Allow(t.Context(), caller)
		if err != nil {
			t.Fatal(err)
		}
		return res.Allowed
	}
	if !allow("bad") || allow("bad") {
		t.Fatal("want the first request of bad allowed and the second denied")
	}
	for i := range 5000 {
		c.advance(time.Millisecond)
		if !allow(fmt.Sprint("new", i)) {
			t.Fatalf("new key %d was denied", i)
		}
		if i%50 == 0 && allow("bad") {
			t.Fatalf("bad was allowed after %d new keys", i)
		}
	}
	c.advance(time.Hour)
	if !allow("bad") {
		t.Error("bad was denied after its window")
	}
	for i := range 5000 {
		c.advance(time.Millisecond)
		allow(fmt.Sprint("later", i))
	}
	if !allow("bad") {
		t.Error("bad was allowed last, and its key survived 5000 new keys in a store of 100")
	}
}

// A decision of a limiter on a key that the store holds allocates nothing, whether the
// request is allowed or denied.
func TestLimiterAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	st := memory.New(nil)
	hour := algorithm.FixedWindow{Limit: 1 << 40, Window: time.Hour}
	fast := algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 1 << 40}
	slow := algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}
	ctx, user := t.Context(), "user:1000"
	allow := func(l *weir.Limiter) (weir.Result, error) { return l.Allow(ctx, user) }
	for _, tt := range []struct {
		name      string
		algorithm algorithm.Algorithm
		call      func(*weir.Limiter) (weir.Result, error)
		want      bool
	}{
		{"GCRA", fast, allow, true},
		{"GCRA of 7 tokens", fast, func(l *weir.Limiter) (weir.Result, error) { return l.AllowN(ctx, 7, user) }, true},
		{"GCRA denied", slow, allow, false},
		{"GCRA peek", fast, func(l *weir.Limiter) (weir.Result, error) { return l.Peek(ctx, user) }, true},
		{"FixedWindow", hour, allow, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := weir.New(tt.name, st, tt.algorithm, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tt.call(l); err != nil {
				t.Fatal(err)
			}
			var res weir.Result
			if got := testing.AllocsPerRun(1000, func() { res, err = tt.call(l) }); got != 0 {
				t.Errorf("%v allocations, want 0", got)
			}
			if err != nil || res.Allowed != tt.want {
				t.Errorf("got %+v, %v, want allowed: %v", res, err, tt.want)
			}
		})
	}
}

// A key whose last request was denied is not evicted before it expires. A Peek does not
// mark a key.
func TestPeekMarksNoKey(t *testing.T) {
	for _, tt := range []struct {
		op      weir.Op
		evicted bool
	}{{weir.Peek, true}, {weir.Consume, false}} {
		st := memory.New(&memory.Options{MaxKeys: 1, Now: newClock().now})
		lim, err := weir.New("t", st, algorithm.FixedWindow{Limit: 1, Window: time.Hour}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lim.Allow(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		res, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf("ann"), Op: tt.op}, nil)
		if err != nil || res.Allowed {
			t.Fatalf("%v: allowed %t, error %v: want a denial", tt.op, res.Allowed, err)
		}
		if _, err := lim.Allow(t.Context(), "bob"); (err == nil) != tt.evicted {
			t.Errorf("after a denied %v a new key ends with %v: want the old one evicted: %t", tt.op, err, tt.evicted)
		}
	}
}

// A repeat of an allowed request, and a Settle that changes nothing, do not protect keys
// from eviction as a denial does.
func TestRepeatsAreEvicted(t *testing.T) {
	for what, again := range map[string]func(l *weir.Limiter, r weir.Request) error{
		"repeat": func(l *weir.Limiter, r weir.Request) error {
			_, err := l.Decide(t.Context(), r, nil)
			return err
		},
		"Settle": func(l *weir.Limiter, r weir.Request) error {
			_, err := l.Settle(t.Context(), r, 1)
			return err
		},
	} {
		l, err := weir.New("api", memory.New(&memory.Options{MaxKeys: 64}), algorithm.FixedWindow{Limit: 10, Window: time.Hour}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 { // each has a key and a marker
			r := weir.Request{Key: weir.KeyOf(strconv.Itoa(i)), ID: "x"}
			if _, err := l.Decide(t.Context(), r, nil); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if err := again(l, r); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

// The release of a lease that is not held changes nothing: the key of a limit whose last
// request was denied is still not evicted.
func TestReleaseKeepsTheProtection(t *testing.T) {
	t.Parallel()
	c := newClock()
	st := memory.New(&memory.Options{MaxKeys: 1, Now: c.now})
	lim, err := weir.New("t", st, algorithm.Concurrency{Limit: 1, Lease: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(op weir.Op, key, id string) (bool, error) {
		res, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf(key), Op: op, ID: id}, nil)
		return res.Allowed, err
	}
	if ok, err := ask(weir.Consume, "a", "1"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := ask(weir.Consume, "a", "2"); ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := ask(weir.Release, "a", "2"); ok || err != nil {
		t.Fatal(ok, err)
	}
	c.advance(time.Second)
	if ok, err := ask(weir.Consume, "b", "3"); ok || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a new key: got %v, %v, want that the store is full", ok, err)
	}
	if ok, err := ask(weir.Consume, "a", "4"); ok || err != nil {
		t.Errorf("the held lease was forgotten: %v, %v", ok, err)
	}
}

// A decision without a script reads the clock that scripts read, even if its keys are in several
// shards. So a repeated call reads no earlier time.
func TestClockWithoutScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		p := weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1000}},
			{Name: "user", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 10}},
		}}
		direct, err := weir.NewPolicy(st, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		script, err := weir.NewPolicy(struct{ store.Store }{st}, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		st.Skew(time.Second)
		for i := range 200 {
			user := fmt.Sprint("user", i)
			if _, err := script.Allow(t.Context(), "acme", user); err != nil {
				t.Fatal(err)
			}
			got, err := direct.Peek(t.Context(), "acme", user)
			if err != nil {
				t.Fatal(err)
			}
			if want, err := script.Peek(t.Context(), "acme", user); got != want || err != nil {
				t.Fatalf("%s: direct %+v, script %+v, %v", user, got, want, err)
			}
		}
	})
}
