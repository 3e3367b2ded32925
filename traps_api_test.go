package weir_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// The tests of this file continue traps_test.go.

// A refund of a part is an error: it would refund the whole decision.
func TestTrapRefundOfAPart(t *testing.T) {
	t.Parallel()
	ctx, l := t.Context(), weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Window(10, time.Hour))
	job := weir.Request{Key: weir.KeyOf("u"), Cost: 5, ID: "job"}
	if _, err := l.Decide(ctx, job, nil); err != nil {
		t.Fatal(err)
	}
	part := job
	part.Cost = 3
	for range 2 {
		gave, err := l.Refund(ctx, part)
		wantError(t, err, weir.ErrInvalidCost, "Request.Cost is 3: the decision asked for more")
		if res, _ := l.Peek(ctx, "u"); gave != (weir.Settlement{}) || res.Remaining != 5 {
			t.Errorf("refunded: %v, remaining %d, want 5", gave, res.Remaining)
		}
	}
	job.Cost = 0 // any
	gave, err := l.Refund(ctx, job)
	if res, _ := l.Peek(ctx, "u"); err != nil || !gave.Found || res.Remaining != 10 {
		t.Errorf("refunded: %v, error %v, remaining %d, want 10", gave, err, res.Remaining)
	}
}

// Zero values and nil pointers return errors that say what to call.
func TestTrapZeroValuesReturnErrors(t *testing.T) {
	t.Parallel()
	ctx, st := t.Context(), weirtest.NewStore(weirtest.NewClock())
	u := weir.KeyOf("u")
	for _, l := range []*weir.Limiter{nil, {}} {
		for name, call := range map[string]func() error{
			"Valid":      l.Valid,
			"Allow":      func() error { _, err := l.Allow(ctx, "u"); return err },
			"AllowN":     func() error { _, err := l.AllowN(ctx, 1, "u"); return err },
			"Peek":       func() error { _, err := l.Peek(ctx, "u"); return err },
			"TakeUpTo":   func() error { _, err := l.TakeUpTo(ctx, 1, "u"); return err },
			"Decide":     func() error { _, err := l.Decide(ctx, weir.Request{}, nil); return err },
			"DoMany":     func() error { return l.DoMany(ctx, make([]weir.Request, 1))[0].Err },
			"Reset":      func() error { return l.Reset(ctx, "u") },
			"Refund":     func() error { _, err := l.Refund(ctx, weir.Request{}); return err },
			"Entries":    func() error { _, err := l.Entries(ctx, "u"); return err },
			"Wait":       func() error { _, err := l.Wait(ctx, "u"); return err },
			"Reserve":    func() error { _, err := l.Reserve(ctx, weir.Request{Key: u, MaxWait: 1}); return err },
			"Acquire":    func() error { _, err := l.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")}); return err },
			"TryAcquire": func() error { _, err := l.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")}); return err },
			"With":       func() error { _, err := l.With(); return err },
			"Only":       func() error { _, err := l.Only(""); return err },
			"Wrap":       func() error { _, err := l.Wrap(weirtest.Pass); return err },
			"Share":      func() error { _, err := l.Share(2, st); return err },
			"Check":      func() error { return l.Check(weir.Request{Key: u}, nil) },
		} {
			t.Run(name, func(t *testing.T) { wantError(t, call(), nil, "make one with New or NewPolicy") })
		}
	}
	for _, l := range []*weir.Limiter{nil, {}} {
		if l.Rules() != nil || l.Store() != nil || l.Digest() != [32]byte{} {
			t.Errorf("got %+v, %v, %x, want nothing", l.Rules(), l.Store(), l.Digest())
		}
	}
	for _, r := range []*weir.Reservation{nil, {}} {
		_, err := r.Cancel(ctx)
		wantError(t, err, nil, "Limiter.Reserve")
		wantError(t, r.Wait(ctx), nil, "Limiter.Reserve")
	}
	for _, lease := range []*weir.Lease{nil, {}} {
		_, err := lease.Release(ctx)
		wantError(t, err, nil, "Acquire")
		wantError(t, lease.Renew(ctx), nil, "Acquire")
		lease.KeepAlive(ctx, func(err error) { wantError(t, err, nil, "Acquire") })
		lease.KeepAlive(ctx, nil)
		if lease.ID() != "" {
			t.Errorf("ID is %q", lease.ID())
		}
	}
	_, err := weir.New("t", st, (*algorithm.GCRA)(nil), nil)
	wantError(t, err, weir.ErrInvalidRule, "Algorithm is nil")
	_, err = weir.New("t", st, algorithm.GCRA{}, nil)
	wantError(t, err, weir.ErrInvalidLimit, "Count is 0")
	l := weirtest.New(t, st, weirtest.PerSecond)
	if err := l.Valid(); err != nil {
		t.Errorf("Valid: %v", err)
	}
	_, err = l.Decide(ctx, weir.Request{}, nil)
	wantError(t, err, weir.ErrInvalidKey, "0 segments")
	_, err = l.With(weir.Rule{Algorithm: (*algorithm.GCRA)(nil)})
	wantError(t, err, weir.ErrInvalidRule, "Algorithm is nil")
	if l, err := weir.New("t", st, &weirtest.PerSecond, nil); err != nil || !weirtest.Left(t, l, "u").Allowed {
		t.Errorf("a pointer to an algorithm: %v", err)
	}
}

// A result has the numbers for RateLimit headers: the limit, its window, the remaining
// tokens and the time until the reset.
func TestTrapResultCarriesLimitAndWindow(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, tt := range []struct {
		a    algorithm.Algorithm
		want string
	}{
		{algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, "20 in 2s"},
		{algorithm.TokenBucket{Refill: algorithm.PerMinute(10), Capacity: 20}, "20 in 2m0s"},
		{algorithm.TokenBucket{Refill: algorithm.PerMinute(10), Capacity: 10, AtOnce: true}, "10 in 1m0s"},
		{algorithm.FixedWindow{Limit: 7, Window: 30 * s}, "7 in 30s"},
		{algorithm.SlidingCounter{Limit: 7, Window: 30 * s}, "7 in 30s"},
		{algorithm.SlidingLog{Limit: 7, Window: 30 * s}, "7 in 30s"},
		{algorithm.MetadataWindow{Limit: 7, Window: 30 * s}, "7 in 30s"},
		{algorithm.SlidingBuckets{Width: s, Spans: []algorithm.Span{{Window: 30 * s, Limit: 7}, {Window: 2 * s, Limit: 3}}}, "3 in 2s"},
		{algorithm.Concurrency{Limit: 7, Lease: 30 * s}, "7 in 0s"},
	} {
		res := weirtest.Left(t, weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), tt.a), "u")
		if got := fmt.Sprint(res.Limit, " in ", res.Window); got != tt.want {
			t.Errorf("%T: got %s, want %s", tt.a, got, tt.want)
		}
	}
}

// A concurrency limit gives out Leases. The error of Allow says so.
func TestTrapLeasesAreHandles(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), oneJob)
	_, err := l.Allow(t.Context(), "u")
	wantError(t, err, weir.ErrInvalidLease, "call TryAcquire or Acquire")
	lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
	if err != nil {
		t.Fatal(err)
	}
	if other, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")}); other != nil || !errors.Is(err, weir.ErrDenied) {
		t.Errorf("got %+v, %v, want ErrDenied", other, err)
	}
	if held, err := lease.Release(t.Context()); !held || err != nil {
		t.Errorf("Release: got %v, %v", held, err)
	}
}

// New takes options too.
func TestTrapNewTakesOptions(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l, err := weir.New("t", st, weirtest.PerSecond, &weir.Options{Prefix: "p", Clock: func() time.Time { return weirtest.Epoch }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Allow(t.Context(), "u"); err != nil || !slices.Equal(keysIn(st), []string{"p:t:{u}:g2"}) {
		t.Errorf("got %q, %v", keysIn(st), err)
	}
}

// DoMany is the only batch method. Peeks and decisions get the same type of answer.
func TestTrapOneBatchVerb(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: weirtest.NewStore(weirtest.NewClock())}
	l := weirtest.New(t, st, weirtest.PerSecond)
	u, v := weir.KeyOf("u"), weir.KeyOf("v")
	for i, a := range l.DoMany(t.Context(), []weir.Request{{Key: u}, {Key: v, Cost: 6}}) {
		if a.Err != nil || a.Result.Allowed != (i == 0) {
			t.Errorf("answer %d: %+v", i, a)
		}
	}
	*st = recorder{Store: st.Store}
	for i, a := range l.DoMany(t.Context(), []weir.Request{{Key: u, Op: weir.Peek}, {Key: v, Op: weir.Peek}}) {
		if a.Err != nil || a.Result.Remaining != int64(4+i) {
			t.Errorf("peek %d: %+v", i, a)
		}
	}
	if st.evals != 0 || st.mgets != 1 || st.times != 1 {
		t.Errorf("peeks: %d Evals, %d MGets, %d Times, want one MGet and one Time", st.evals, st.mgets, st.times)
	}
}

// The results of the rules are a separate argument of Decide. So requests are comparable,
// and wrappers can use them as keys of maps.
func TestTrapEachIsAnArgument(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), by(1, "all", "all"))
	each := make([]weir.Result, 2)
	r := weir.Request{Key: weir.KeyOf("u")}
	if _, err := l.Decide(t.Context(), r, each); err != nil || each[0].Rule != "a" || each[1].Rule != "b" {
		t.Errorf("got %+v, %v", each, err)
	}
	if seen := map[weir.Request]bool{r: true}; !seen[weir.Request{Key: weir.KeyOf("u")}] {
		t.Error("two equal requests differ")
	}
}

// Every sentinel error has the prefix. ErrUnsupported is also errors.ErrUnsupported.
func TestTrapErrorsHaveAPrefix(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		weir.ErrInvalidLimit, weir.ErrInvalidCost, weir.ErrInvalidRule, weir.ErrInvalidKey, weir.ErrInvalidMetadata,
		weir.ErrInvalidLease, weir.ErrUnsupported, weir.ErrDenied, weir.ErrLeaseLost,
	} {
		if !strings.HasPrefix(err.Error(), "weir: ") {
			t.Errorf("%q has no prefix", err)
		}
	}
	_, err := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Window(1, time.Hour)).Wait(t.Context(), "u")
	if !errors.Is(err, weir.ErrUnsupported) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported of both packages", err)
	}
}

// The store holds only a hash of a secret segment.
func TestTrapSecretsAreHashed(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, weir.Policy{Segments: []string{"tenant", "token"}, Secret: []string{"token"}, Rules: []weir.Rule{
		{Name: "tenant", By: []string{"tenant"}, Algorithm: weirtest.Window(5, time.Hour)}, {Name: "token", Algorithm: weirtest.Window(5, time.Hour)},
	}})
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("acme", "s3cret"), ID: "x"})
	if all := strings.Join(dump(t, st), "\n"); strings.Contains(all, "s3cret") || !strings.Contains(all, "acme") {
		t.Errorf("the store holds\n%s", all)
	}
	if gave, err := l.Refund(t.Context(), weir.Request{Key: weir.KeyOf("acme", "s3cret"), ID: "x"}); !gave.Found || err != nil {
		t.Errorf("Refund: got %v, %v", gave, err)
	}
}
