package weir_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store/memory"
)

// Each of these tests is a plausible program that an earlier API allowed and that
// silently did the wrong thing.

// Two limiters with the same algorithm and store have different names, so they share no
// state.
func TestTrapTwoLimitersShareNothing(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	daily := algorithm.FixedWindow{Limit: 1, Window: 24 * time.Hour}
	limiter := func(name string) *weir.Limiter {
		l, err := weir.New(name, st, daily, nil)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, name := range []string{"mails", "calls"} {
		if res, err := limiter(name).Allow(t.Context(), "ann"); err != nil || !res.Allowed {
			t.Errorf("%s: got %+v, %v, want it allowed", name, res, err)
		}
	}
	if res := weirtest.Left(t, limiter("mails"), "ann"); res.Allowed {
		t.Errorf("the same name: got %+v, want the state to be shared", res)
	}
	_, err := weir.New("", st, daily, nil)
	wantError(t, err, weir.ErrInvalidRule, "name is empty: give each limiter its own name")
}

// A request without a cost costs 1. A cost of 0 does not make a Peek.
func TestTrapForgottenCostCostsOne(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.New(t, st, weirtest.Window(2, time.Hour))
	jobs, err := weir.New("jobs", st, oneJob, nil)
	if err != nil {
		t.Fatal(err)
	}
	u := weir.KeyOf("u")
	allowed, held := 0, 0
	for i := range 1000 {
		if res, err := l.Decide(t.Context(), weir.Request{Key: u}, nil); err == nil && res.Allowed {
			allowed++
		}
		if res, err := jobs.Decide(t.Context(), weir.Request{Key: u, ID: weirtest.Number(i)}, nil); err == nil && res.Allowed {
			held++
		}
	}
	if allowed != 2 || held != 1 {
		t.Errorf("%d of 2 requests and %d of 1 lease allowed", allowed, held)
	}
	if err := l.Reset(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	peek, err := l.Decide(t.Context(), weir.Request{Key: u, Op: weir.Peek}, nil)
	if want := weirtest.Left(t, l, "u"); err != nil || peek != want || peek.Remaining != 2 {
		t.Errorf("the op Peek: got %+v, %v, and Peek says %+v", peek, err, want)
	}
	for _, cost := range []int64{0, -1} {
		_, err := l.AllowN(t.Context(), cost, "u")
		wantError(t, err, weir.ErrInvalidCost, "at least 1")
	}
}

// In every method, MaxWait 0 means that no token is reserved ahead. An unbounded
// reservation needs Never.
func TestTrapMaxWaitZeroMeansNow(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1})
	r := weir.Request{Key: weir.KeyOf("u")}
	_, err := l.Reserve(t.Context(), r)
	wantError(t, err, nil, "weir.Never")
	weirtest.Allow(t, l, r)
	if res, err := l.Decide(t.Context(), r, nil); err != nil || res.Allowed {
		t.Errorf("got %+v, %v, want it denied", res, err)
	}
	r.MaxWait = weir.Never
	if res, err := l.Reserve(t.Context(), r); err != nil || res.Delay != time.Second {
		t.Errorf("any time: got %+v, %v, want it in 1s", res, err)
	}
}

// A reservation that can never be allowed is an error, so no caller sleeps for its Delay.
func TestTrapReserveThatNeverFits(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	r := weir.Request{Key: weir.KeyOf("u"), Cost: 6, MaxWait: weir.Never}
	got, err := l.Reserve(t.Context(), r)
	var denied *weir.DeniedError
	if got != nil || !errors.Is(err, weir.ErrDenied) || !errors.As(err, &denied) || denied.Result.RetryAfter != weir.Never {
		t.Errorf("Reserve: got %+v, %v, want ErrDenied", got, err)
	}
	if res, err := l.Decide(t.Context(), r, nil); err != nil || res.Delay != weir.Never {
		t.Errorf("Decide: got %+v, %v, want a Delay of Never", res, err)
	}
}

// If several rules deny a request, all fields of the result describe one rule: the rule
// with the longest RetryAfter.
func TestTrapDenialDescribesOneRule(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.Window(10, time.Minute)},
		weir.Rule{Name: "b", Algorithm: weirtest.Window(20, time.Hour)},
		weir.Rule{Name: "c", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 30}},
	))
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Cost: 9})
	each := make([]weir.Result, 3)
	res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Cost: 30}, each)
	if err != nil || res.Rule != "a" || res.RetryAfter != weir.Never || res != each[0] {
		t.Errorf("got %+v, %v, want all of the first rule: %+v", res, err, each)
	}
	res, err = l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Cost: 2}, each)
	if err != nil || res != each[0] || res.RetryAfter != time.Minute {
		t.Errorf("got %+v, %v, want all of a: %+v", res, err, each)
	}
	_ = weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	bigger := weirtest.With(t, l, weir.Rule{Name: "b", Algorithm: weirtest.Window(11, time.Hour)})
	res, err = bigger.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Cost: 2}, each)
	if err != nil || res != each[1] || res.Rule != "b" || res.RetryAfter != time.Hour || res.ResetAfter != time.Hour || res.Limit != 11 {
		t.Errorf("got %+v, %v, want all of b: %+v", res, err, each)
	}
	if _, err := bigger.Wait(t.Context(), "u"); !errors.Is(err, weir.ErrUnsupported) {
		t.Errorf("Wait: %v, want ErrUnsupported", err)
	}
}

// A policy names the segments once, and errors use the names.
func TestTrapSegmentsHaveNames(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weir.Policy{Segments: []string{"action", "ip", "account"}, Rules: []weir.Rule{
		{Name: "ip", By: []string{"action", "ip"}, Algorithm: weirtest.PerSecond},
		{Name: "account", By: []string{"account", "action"}, Algorithm: weirtest.PerSecond},
	}})
	_, err := l.Allow(t.Context(), "login", "10.0.0.1")
	wantError(t, err, weir.ErrInvalidKey, `"action", "ip", "account"`)
	_, err = l.Allow(t.Context(), "login", "10.0.0.1", "")
	wantError(t, err, weir.ErrInvalidKey, `"account" is empty`)
}

// Refund takes the request that it undoes. It finds the decision by the whole key and the
// ID, under any limits.
func TestTrapRefundTakesTheRequest(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weir.Policy{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "tenant", By: []string{"tenant"}, Algorithm: weirtest.Window(100, time.Hour)},
		{Name: "user", Algorithm: weirtest.Window(90, time.Hour)},
	}})
	plan := weirtest.With(t, l, weir.Rule{Name: "tenant", Algorithm: weirtest.Window(200, time.Hour)})
	ctx := t.Context()
	ann := weir.Request{Key: weir.KeyOf("acme", "ann"), Cost: 1, ID: "order-17"}
	bob := weir.Request{Key: weir.KeyOf("acme", "bob"), Cost: 90, ID: "order-17"}
	weirtest.Allow(t, l, ann)
	weirtest.Allow(t, l, bob)
	for i, tt := range []struct {
		l    *weir.Limiter
		r    weir.Request
		want bool
	}{
		{l, weir.Request{Key: weir.KeyOf("acme", "eve"), ID: "order-17"}, false},
		{l, weir.Request{Key: weir.KeyOf("order-17", "acme"), ID: "ann"}, false},
		{plan, ann, true},
		{l, ann, false},
		{plan, ann, false},
	} {
		if gave, err := tt.l.Refund(ctx, tt.r); err != nil || gave.Found != tt.want {
			t.Errorf("refund %d: got %v, %v, want %v", i, gave, err, tt.want)
		}
	}
	each := make([]weir.Result, 2)
	if _, err := l.Decide(ctx, weir.Request{Key: bob.Key, Op: weir.Peek}, each); err != nil || each[0].Remaining != 10 || each[1].Remaining != 0 {
		t.Errorf("got %+v, %v, want that ann's token is back alone", each, err)
	}
}

// A plan is a limiter on the same keys, so every method uses the limits of the plan.
func TestTrapPlansWorkWithEveryVerb(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	free := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "rate", Algorithm: weirtest.Window(3, time.Minute)}, weir.Rule{Name: "jobs", Algorithm: oneJob, Cost: 1}))
	pro := weirtest.With(t, free, weir.Rule{Name: "rate", Algorithm: weirtest.Window(5, time.Minute)}, weir.Rule{Name: "jobs", Algorithm: algorithm.Concurrency{Limit: 5, Lease: time.Hour}, Cost: 1})
	ctx := t.Context()
	lease, err := pro.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")})
	if err != nil {
		t.Fatal(err)
	}
	c.Advance(40 * time.Minute)
	if err := lease.Renew(ctx); err != nil {
		t.Errorf("Renew within the lease of the plan: %v", err)
	}
	c.Advance(40 * time.Minute)
	if err := lease.Renew(ctx); err != nil {
		t.Errorf("Renew after it was prolonged: %v", err)
	}
	for i := range 3 {
		weirtest.Allow(t, pro, weir.Request{Key: weir.KeyOf("u"), ID: weirtest.Number(i)})
	}
	if pro, free := weirtest.Left(t, pro, "u"), weirtest.Left(t, free, "u"); !pro.Allowed || free.Allowed {
		t.Errorf("got %+v, and free %+v, want one more allowed by pro alone", pro, free)
	}
	if err := pro.Reset(ctx, "u"); err != nil {
		t.Fatal(err)
	}
	if keys := keysIn(st); len(keys) > 0 {
		t.Errorf("after Reset: %q", keys)
	}
}

// If a rule gets another algorithm, its earlier state has no effect, and Reset works.
func TestTrapChangedAlgorithmStartsAfresh(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	before := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}))
	after := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.Window(5, time.Minute)}))
	for _, l := range []*weir.Limiter{before, after, before} {
		if res, err := l.Allow(t.Context(), "u"); err != nil || !res.Allowed {
			t.Errorf("got %+v, %v, want it allowed", res, err)
		}
	}
	if res := weirtest.Left(t, after, "u"); res.Remaining != 4 {
		t.Errorf("got %+v, want 4 left", res)
	}
	if err := after.Reset(t.Context(), "u"); err != nil {
		t.Error(err)
	}
}

// Granted is the number of tokens consumed, even if rules have a Cost.
func TestTrapGrantedIsWhatWasConsumed(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.Window(10, time.Hour), Cost: 1}))
	_, err := l.TakeUpTo(t.Context(), 1e6, "u")
	wantError(t, err, weir.ErrUnsupported, "every rule has a Cost")
	if res, err := l.AllowN(t.Context(), 1e6, "u"); err != nil || res.Granted != 1 || res.Remaining != 9 {
		t.Errorf("got %+v, %v, want 1 granted", res, err)
	}
}

// Without MaxWait, a LeakyBucket denies every request that would have to wait.
func TestTrapLeakyBucketWithoutMaxWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := weirtest.New(t, memory.New(nil), algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 100})
		allowed := 0
		for range 101 {
			if res, err := l.Allow(t.Context(), "u"); err == nil && res.Allowed && res.Delay == 0 {
				allowed++
			}
		}
		if allowed != 1 {
			t.Errorf("%d of 101 at once, want 1", allowed)
		}
		for want := range time.Duration(3) {
			if res, err := l.Reserve(t.Context(), weir.Request{Key: weir.KeyOf("u"), MaxWait: weir.Never}); err != nil || res.Delay != (want+1)*time.Second {
				t.Errorf("Reserve: got %+v, %v, want it in %d s", res, err, want+1)
			}
		}
		start := time.Now()
		if _, err := l.Wait(t.Context(), "u"); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("Wait: %v after %v, want 4s", err, time.Since(start))
		}
	})
}
