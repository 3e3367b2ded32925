package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A postman is a Decider that delivers each Consume late, even if its caller has gone, and
// counts the undos.
type postman struct {
	weir.Decider
	late  []time.Duration // of each Consume
	down  error           // the answer to an undo
	undos int
}

func (p *postman) Unwrap() weir.Decider { return p.Decider }

func (p *postman) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	switch {
	case r.Op == weir.Consume:
		time.AfterFunc(p.late[0], func() { _, _ = p.Decider.Decide(context.WithoutCancel(ctx), r, nil) })
		p.late = p.late[1:]
		<-ctx.Done()
		return weir.Result{}, ctx.Err()
	case r.Op != weir.Peek:
		if p.undos++; p.down != nil {
			return weir.Result{}, p.down
		}
	}
	return p.Decider.Decide(ctx, r, each)
}

// wrap is a [weir.Wrapper].
func (p *postman) wrap(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) {
	p.Decider = next
	return p, nil
}

// A grantCall asks for a grant until ctx ends.
type grantCall func(ctx context.Context, l *weir.Limiter) error

func tryAcquire(ctx context.Context, l *weir.Limiter) error {
	_, err := l.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("k")})
	return err
}

func acquire(id string) grantCall {
	return func(ctx context.Context, l *weir.Limiter) error {
		_, err := l.Acquire(ctx, weir.Request{Key: weir.KeyOf("k"), ID: id})
		return err
	}
}

func wait(ctx context.Context, l *weir.Limiter) error { _, err := l.Wait(ctx, "k"); return err }

func reserve(within time.Duration, id string) grantCall {
	return func(ctx context.Context, l *weir.Limiter) error {
		_, err := l.Reserve(ctx, weir.Request{Key: weir.KeyOf("k"), MaxWait: within, ID: id})
		return err
	}
}

// A grant under an ID that weir made, and that reaches the store after its undo, is undone
// by a later one, unless it has ended by then. An ID of the caller is not undone.
func TestLateGrant(t *testing.T) {
	t.Parallel()
	const s = time.Second
	jobs := func(name string, lease time.Duration) weir.Rule {
		return weir.Rule{Name: name, Algorithm: algorithm.Concurrency{Limit: 1, Lease: lease}, Shadow: name == "shadow"}
	}
	job, other := jobs("job", time.Minute), costing(window("other", 9), 1)
	turn := weir.Rule{Name: "turn", Algorithm: algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}}
	place, token := costing(jobs("place", 3*s), 1), window("token", 1)
	fast := weir.Rule{Name: "fast", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 4}}
	for name, tt := range map[string]struct {
		rules []weir.Rule
		call  grantCall
		late  time.Duration
		down  error
		undos int
		held  bool // in the end
	}{
		"Acquire, later":         {[]weir.Rule{job}, acquire(""), 5 * s, nil, 3, false},
		"Reserve, late":          {[]weir.Rule{turn}, reserve(0, ""), 2 * s, nil, 2, false},
		"TryAcquire fails":       {[]weir.Rule{job}, tryAcquire, 0, store.ErrUnavailable, 4, true},
		"an ID of the caller":    {[]weir.Rule{turn}, reserve(0, "mine"), 2 * s, nil, 0, true},
		"a short lease":          {[]weir.Rule{jobs("job", 3*s), other}, tryAcquire, 20 * s, nil, 2, false},
		"a very short lease":     {[]weir.Rule{jobs("job", s/2), other}, tryAcquire, 20 * s, nil, 1, false},
		"a longer shadow lease":  {[]weir.Rule{jobs("job", 3*s), jobs("shadow", 6*s)}, tryAcquire, 20 * s, nil, 3, false},
		"a bill":                 {[]weir.Rule{place, token}, tryAcquire, 20 * s, nil, 4, false},
		"a bill of a caller":     {[]weir.Rule{place, token}, acquire("mine"), 2 * s, nil, 0, true},
		"a fast rate":            {[]weir.Rule{fast, pauseRule}, reserve(s/2, ""), 20 * s, nil, 2, false},
		"a fast rate, longer":    {[]weir.Rule{fast}, reserve(s, ""), 20 * s, nil, 3, false},
		"a fast rate, and other": {[]weir.Rule{fast, other}, reserve(s, ""), 40 * s, nil, 4, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			plain, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "t", Rules: tt.rules}, &weir.Options{Settles: strings.HasPrefix(name, "a bill")})
			if err != nil {
				t.Fatal(err)
			}
			p := &postman{late: []time.Duration{tt.late}, down: tt.down}
			l := weirtest.Wrap(t, plain, p.wrap)
			ctx, cancel := context.WithTimeout(t.Context(), s)
			defer cancel()
			if err := tt.call(ctx, l); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) != (tt.down != nil) {
				t.Errorf("%s: got %v", name, err)
			}
			time.Sleep(55 * s)
			synctest.Wait()
			if res := weirtest.Left(t, plain, "k"); p.undos != tt.undos || (res.Remaining < res.Limit) != tt.held {
				t.Errorf("%s: %d undos, and %+v; want %d undos, held: %t", name, p.undos, res, tt.undos, tt.held)
			}
		})
	}
}

// If the replies of two tries of an Acquire are lost, both can be granted late.
func TestLateGrantTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := weirtest.New(t, memory.New(nil), oneJob)
		p := &postman{late: []time.Duration{2 * time.Second, 10 * time.Second}}
		breaker := outage.New(&outage.Options{Budget: 100 * time.Millisecond, Failures: 1000})
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		if err := acquire("")(ctx, weirtest.Wrap(t, plain, breaker.Wrap, p.wrap)); !errors.Is(err, context.DeadlineExceeded) || len(p.late) > 0 {
			t.Fatalf("got %v, and %d tries were not made", err, len(p.late))
		}
		if time.Sleep(40 * time.Second); weirtest.Left(t, plain, "k").Remaining != 1 {
			t.Error("a lease is held")
		}
	})
}

// Nothing is repeated if no reply of a grant was lost, or if Acquire gets the lease in the
// end.
func TestNoLateGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		undos := 0
		count := observe.Observer(func(_ context.Context, d observe.Decision) {
			if d.Request.Op != weir.Consume {
				undos++
			}
		})
		check := func(what string, want int, call func(context.Context) error) error {
			t.Helper()
			undos = 0
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			err := call(ctx)
			time.Sleep(50 * time.Second)
			if synctest.Wait(); undos != want {
				t.Errorf("%s: %d undos after %v, want %d", what, undos, err, want)
			}
			return err
		}
		jobs := weirtest.Wrap(t, weirtest.New(t, st, oneJob), count.Wrap)
		pace := weirtest.Wrap(t, weirtest.New(t, st, algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 5}), count.Wrap)
		slow := weirtest.Wrap(t, jobs, outage.New(&outage.Options{Budget: 50 * time.Millisecond, Failures: 1000}).Wrap)
		st.Set(weirtest.Lost)
		time.AfterFunc(80*time.Millisecond, func() { st.Set(weirtest.Up) })
		var lease *weir.Lease
		_ = check("Acquire, after a lost reply", 0, func(ctx context.Context) (err error) {
			lease, err = slow.Acquire(ctx, weir.Request{Key: weir.KeyOf("k")})
			return err
		})
		weirtest.Allow(t, pace, weir.Request{Key: weir.KeyOf("k")})
		turn, err := pace.Reserve(t.Context(), weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never})
		if err != nil || lease == nil || lease.Renew(t.Context()) != nil {
			t.Fatal(err, lease)
		}
		st.Set(weirtest.Down)
		_ = check("Release", 1, func(ctx context.Context) error { _, err := lease.Release(ctx); return err })
		if err := check("Wait of a turn", 1, turn.Wait); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Wait of a turn: got %v, want both errors", err)
		}
		for l, call := range map[*weir.Limiter]grantCall{jobs: tryAcquire, pace: wait} {
			open := weirtest.Wrap(t, weirtest.Wrap(t, l, outage.New(&outage.Options{Failures: 1, Probe: time.Hour}).Wrap), count.Wrap)
			for i, want := range []int{4, 0} { // the first request opens the circuit
				if err := check(fmt.Sprint("in an outage ", i), want, func(ctx context.Context) error { return call(ctx, open) }); !errors.Is(err, weir.ErrDenied) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("in an outage: got %v, want a denial alone", err)
				}
			}
		}
	})
}

// An overdue context has a deadline that has passed, and does not know it yet.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// If a call ends and its reply is lost, the grant is undone, unless another request can use it. A
// client can notice a deadline before ctx does. After an outage, nothing is undone.
func TestLostReply(t *testing.T) {
	t.Parallel()
	canceled, late, down := context.Canceled, context.DeadlineExceeded, store.ErrUnavailable
	for _, tt := range []struct {
		name       string
		id         string
		ends       bool // ctx ends during the call
		lost, want error
		held       bool
	}{
		{"cancelled", "", true, canceled, canceled, false},
		{"cancelled, and unavailable", "", true, down, canceled, false},
		{"past the deadline", "", false, late, late, false},
		{"an outage", "", false, down, down, true},
		{"cancelled, and another error", "", true, store.ErrScript, store.ErrScript, true}, // nothing is known of the grant
		{"cancelled, with an ID", "x", true, canceled, canceled, true},
		{"past the deadline, with an ID", "x", false, late, late, true},
	} {
		for method, call := range map[string]grantCall{"TryAcquire": tryAcquire, "Acquire": acquire(tt.id), "Wait": wait, "Reserve": reserve(time.Hour, tt.id)} {
			if tt.id != "" && (method == "Wait" || method == "TryAcquire") {
				continue
			}
			mem := memory.New(nil)
			st := &weirtest.Hooked{Store: mem}
			l := weirtest.New(t, st, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1})
			if strings.HasSuffix(method, "cquire") {
				l = weirtest.New(t, st, oneJob)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			calls := 0
			st.Before = func(context.Context, *store.Script) error {
				st.Lose = nil
				if calls++; calls == 1 {
					st.Lose = fmt.Errorf("store: %w", tt.lost)
					if tt.ends {
						cancel()
					}
				}
				return nil
			}
			err := call(ctx, l)
			if res := weirtest.Left(t, l, "k"); !errors.Is(err, tt.want) && !errors.Is(err, tt.lost) || res.Allowed == tt.held {
				t.Errorf("%s, %s: got %v and left %+v, want %v, held %t", tt.name, method, err, res, tt.want, tt.held)
			}
			if r := (weir.Request{Key: weir.KeyOf("k"), ID: "x"}); tt.id != "" && method == "Reserve" { // the caller can refund it
				if gave, err := l.Refund(t.Context(), r); !gave.Found || err != nil {
					t.Errorf("%s: Refund = %v, %v", tt.name, gave, err)
				}
			}
		}
	}
}

// If a client or a wrapper repeats the call, and the repeat is denied, the tokens are refunded:
// only this request knows the ID. With an ID of the caller, they stay.
func TestDeniedRepeat(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 10})
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k")})
	twice := weirtest.Wrap(t, l, around(func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
		if r.Op == weir.Consume {
			_, _ = next.Decide(ctx, r, each)
			r.MaxWait = time.Second
		}
		return next.Decide(ctx, r, each)
	}))
	for _, tt := range []struct {
		call grantCall
		want time.Duration // until a full reset
	}{{reserve(time.Hour, ""), time.Minute}, {wait, time.Minute}, {reserve(time.Hour, "mine"), 2 * time.Minute}} {
		if err := tt.call(t.Context(), twice); !errors.Is(err, weir.ErrDenied) {
			t.Errorf("got %v, want ErrDenied", err)
		}
		if res := weirtest.Left(t, l, "k"); res.ResetAfter != tt.want {
			t.Errorf("left %+v, want a full reset in %v", res, tt.want)
		}
	}
}
