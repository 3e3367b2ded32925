package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fault is what a faulty store does with a call.
type fault int32

const (
	up   fault = iota
	down       // it is unavailable
	hang       // it does not answer until the context ends
	lost       // it makes the call, and does not answer until the context ends
	slow       // it answers after 2 s, whatever the context does
)

// A faulty is a store with a fault.
type faulty struct {
	store.Store
	fault atomic.Int32
	asked atomic.Int64 // calls
}

func newFaulty() *faulty { return &faulty{Store: memory.New(nil)} }

func (f *faulty) set(to fault) { f.fault.Store(int32(to)) }

func (f *faulty) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	f.asked.Add(1)
	switch fault(f.fault.Load()) {
	case down:
		return reply, fmt.Errorf("faulty: %w", store.ErrUnavailable)
	case hang:
		<-ctx.Done()
		return reply, fmt.Errorf("faulty: %w", ctx.Err())
	case lost:
		_, _ = f.Store.Eval(ctx, s, keys, args, nil)
		<-ctx.Done()
		return reply, fmt.Errorf("faulty: %w", ctx.Err())
	case slow:
		time.Sleep(2 * time.Second)
		return f.Store.Eval(context.WithoutCancel(ctx), s, keys, args, reply)
	}
	return f.Store.Eval(ctx, s, keys, args, reply)
}

// onOutage returns l.OnOutage(o).
func onOutage(t testing.TB, l *weir.Limiter, o weir.Outage) *weir.Limiter {
	t.Helper()
	l, err := l.OnOutage(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fail makes enough calls to open the breaker of l, with the default settings.
func fail(t testing.TB, l *weir.Limiter) {
	t.Helper()
	for range weir.DefaultFailures {
		if res, err := l.Peek(t.Context(), "someone"); err != nil || res.Degraded == nil {
			t.Fatalf("got %+v, %v, want a degraded answer", res, err)
		}
	}
}

// degraded fails the test unless res is the answer of a fallback.
func degraded(t testing.TB, res weir.Result, err error) weir.Result {
	t.Helper()
	if err != nil || !errors.Is(res.Degraded, store.ErrUnavailable) {
		t.Fatalf("got %+v, %v, want a degraded answer", res, err)
	}
	return res
}

// healthy fails the test unless the store made the decision res.
func healthy(t testing.TB, res weir.Result, err error) weir.Result {
	t.Helper()
	if err != nil || res.Degraded != nil {
		t.Fatalf("got %+v, %v, want an answer of the store", res, err)
	}
	return res
}

// An outage costs its first calls the budget. Then the store is asked once in each interval,
// until it answers.
func TestOutage(t *testing.T) {
	for _, f := range []fault{hang, down} {
		synctest.Test(t, func(t *testing.T) {
			st := newFaulty()
			l := onOutage(t, mustNew(t, st, window(10, 24*time.Hour)), weir.Outage{Fallback: weir.FailOpen})
			allow := func() (weir.Result, time.Duration) {
				start := time.Now()
				res, err := l.Allow(t.Context(), "ann")
				if err != nil {
					t.Fatal(err)
				}
				return res, time.Since(start)
			}
			if res, took := allow(); res.Degraded != nil || res.Remaining != 9 || took != 0 {
				t.Errorf("healthy: got %+v after %v", res, took)
			}
			st.set(f)
			cost := time.Duration(0)
			if f == hang {
				cost = weir.DefaultBudget
			}
			for i := range weir.DefaultFailures {
				if res, took := allow(); res.Degraded == nil || !res.Allowed || took != cost {
					t.Errorf("failure %d: got %+v after %v, want a degraded answer after %v", i, res, took, cost)
				}
			}
			opened := time.Now()
			for time.Since(opened) < 3*weir.DefaultProbe {
				asked, since := st.asked.Load(), time.Since(opened)
				due := since > 0 && since%weir.DefaultProbe == 0
				res, took := allow()
				if got := st.asked.Load() > asked; got != due || res.Degraded == nil || !due && took != 0 {
					t.Errorf("%v after the breaker opened: got %+v after %v, asked the store: %v, want %v", since, res, took, got, due)
				}
				time.Sleep(weir.DefaultProbe/4 - took)
			}
			st.set(up)
			if res, _ := allow(); res.Degraded != nil || res.Remaining != 8 {
				t.Errorf("back: got %+v, want the second token of the store's limit consumed", res)
			}
			for range 3 {
				if res, _ := allow(); res.Degraded != nil {
					t.Errorf("after the outage: got %+v", res)
				}
			}
		})
	}
}

// Each fallback has its own answers.
func TestFallbacks(t *testing.T) {
	const day = 24 * time.Hour
	policy := weir.Policy{Name: "t", Segments: []string{"a", "b"}, Rules: []weir.Rule{
		{Name: "wide", By: []string{"a"}, Algorithm: window(40, time.Hour)},
		{Name: "deep", Algorithm: window(80, day), Cost: 2},
	}}
	key := weir.KeyOf("x", "y")
	each := make([]weir.Result, 2)
	for _, tt := range []struct {
		name    string
		outage  weir.Outage
		request weir.Request
		want    weir.Result
		each    [2]weir.Result
	}{
		{"closed", weir.Outage{}, weir.Request{Key: key, Cost: 3},
			weir.Result{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: time.Second, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: time.Second, Delay: weir.Never},
				{Rule: "deep", Limit: 80, Window: day, RetryAfter: time.Second, Delay: weir.Never},
			}},
		{"closed, too much", weir.Outage{}, weir.Request{Key: key, Cost: 41},
			weir.Result{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
				{Rule: "deep", Limit: 80, Window: day, RetryAfter: time.Second, Delay: weir.Never},
			}},
		{"open", weir.Outage{Fallback: weir.FailOpen}, weir.Request{Key: key, Cost: 3},
			weir.Result{Allowed: true, Granted: 3, Rule: "wide", Limit: 40, Window: time.Hour},
			[2]weir.Result{
				{Allowed: true, Granted: 3, Rule: "wide", Limit: 40, Window: time.Hour},
				{Allowed: true, Granted: 2, Rule: "deep", Limit: 80, Window: day},
			}},
		{"open, peek", weir.Outage{Fallback: weir.FailOpen}, weir.Request{Key: key, Op: weir.Peek},
			weir.Result{Allowed: true, Rule: "wide", Limit: 40, Window: time.Hour},
			[2]weir.Result{
				{Allowed: true, Rule: "wide", Limit: 40, Window: time.Hour},
				{Allowed: true, Rule: "deep", Limit: 80, Window: day},
			}},
		{"open, up to more than the limit", weir.Outage{Fallback: weir.FailOpen}, weir.Request{Key: key, Op: weir.TakeUpTo, Cost: 100},
			weir.Result{Allowed: true, Granted: 40, Rule: "wide", Limit: 40, Window: time.Hour},
			[2]weir.Result{
				{Allowed: true, Granted: 40, Rule: "wide", Limit: 40, Window: time.Hour},
				{Allowed: true, Granted: 2, Rule: "deep", Limit: 80, Window: day},
			}},
		{"open, too much", weir.Outage{Fallback: weir.FailOpen}, weir.Request{Key: key, Cost: 41},
			weir.Result{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
				{Allowed: true, Rule: "deep", Limit: 80, Window: day},
			}},
		{"local", weir.Outage{Fallback: weir.FailLocal, Processes: 4}, weir.Request{Key: key, Cost: 3},
			weir.Result{Allowed: true, Granted: 3, Rule: "wide", Limit: 10, Window: time.Hour, Remaining: 7, ResetAfter: time.Hour},
			[2]weir.Result{
				{Allowed: true, Granted: 3, Rule: "wide", Limit: 10, Window: time.Hour, Remaining: 7, ResetAfter: time.Hour},
				{Allowed: true, Granted: 2, Rule: "deep", Limit: 20, Window: day, Remaining: 18, ResetAfter: day},
			}},
		{"local, above the share", weir.Outage{Fallback: weir.FailLocal, Processes: 4}, weir.Request{Key: key, Cost: 11},
			weir.Result{Rule: "wide", Limit: 10, Window: time.Hour, Remaining: 10, RetryAfter: time.Second, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 10, Window: time.Hour, Remaining: 10, RetryAfter: time.Second, Delay: weir.Never},
				{Allowed: true, Rule: "deep", Limit: 20, Window: day, Remaining: 20},
			}},
		{"local, too much", weir.Outage{Fallback: weir.FailLocal, Processes: 4}, weir.Request{Key: key, Cost: 41},
			weir.Result{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
				{Rule: "deep", Limit: 80, Window: day, RetryAfter: time.Second, Delay: weir.Never},
			}},
		{"local, up to more than the share", weir.Outage{Fallback: weir.FailLocal, Processes: 3}, weir.Request{Key: key, Op: weir.TakeUpTo, Cost: 100},
			weir.Result{Allowed: true, Granted: 13, Rule: "wide", Limit: 13, Window: time.Hour, ResetAfter: time.Hour},
			[2]weir.Result{
				{Allowed: true, Granted: 13, Rule: "wide", Limit: 13, Window: time.Hour, ResetAfter: time.Hour},
				{Allowed: true, Granted: 2, Rule: "deep", Limit: 26, Window: day, Remaining: 24, ResetAfter: day},
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newFaulty()
				st.set(down)
				l := onOutage(t, mustPolicy(t, st, policy), tt.outage)
				res, err := l.Decide(t.Context(), tt.request, each)
				res = degraded(t, res, err)
				for i := range each {
					degraded(t, each[i], nil)
					if each[i].Degraded = nil; each[i] != tt.each[i] {
						t.Errorf("rule %d:\ngot  %+v\nwant %+v", i, each[i], tt.each[i])
					}
				}
				if res.Degraded = nil; res != tt.want {
					t.Errorf("got  %+v\nwant %+v", res, tt.want)
				}
			})
		})
	}
}

// FailOpen grants what the limiter would grant if rules have a Cost.
func TestFailOpenOwnCosts(t *testing.T) {
	t.Parallel()
	type costs [2]struct{ limit, cost int64 }
	for _, tt := range []struct {
		costs   costs
		r       weir.Request
		rule    string
		granted int64
	}{
		{costs{{9, 3}, {9, 5}}, weir.Request{}, "0", 3},
		{costs{{9, 3}, {9, 0}}, weir.Request{Cost: 7}, "0", 7},
		{costs{{40, 0}, {30, 2}}, weir.Request{Op: weir.TakeUpTo, Cost: 35}, "0", 35},
		{costs{{40, 0}, {30, 0}}, weir.Request{Op: weir.TakeUpTo, Cost: 35}, "0", 30},
		{costs{{40, 0}, {30, 0}}, weir.Request{Cost: 35}, "1", 0},
	} {
		st := newFaulty()
		st.set(down)
		p := rules()
		for i, c := range tt.costs {
			p.Rules = append(p.Rules, weir.Rule{Name: fmt.Sprint(i), Algorithm: window(c.limit, time.Hour), Cost: c.cost})
		}
		l := onOutage(t, mustPolicy(t, st, p), weir.Outage{Fallback: weir.FailOpen})
		tt.r.Key = weir.KeyOf("ann")
		res, err := l.Decide(t.Context(), tt.r, nil)
		if res = degraded(t, res, err); res.Rule != tt.rule || res.Granted != tt.granted || res.Allowed != (tt.granted > 0) {
			t.Errorf("%+v: got %+v, want %d granted, rule %s", tt, res, tt.granted, tt.rule)
		}
	}
}

// A denied answer of FailClosed can be retried when the next probe is due.
func TestFailClosedRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.set(down)
		l := onOutage(t, mustNew(t, st, perSecond), weir.Outage{Probe: 3 * time.Second})
		fail(t, l)
		time.Sleep(time.Second + time.Nanosecond)
		res, err := l.Allow(t.Context(), "ann")
		if res = degraded(t, res, err); res.Allowed || res.RetryAfter != 2*time.Second {
			t.Errorf("got %+v, want it denied for 2 s", res)
		}
		st.set(up)
		time.Sleep(res.RetryAfter - time.Microsecond)
		res, err = l.Allow(t.Context(), "ann")
		degraded(t, res, err)
		time.Sleep(time.Microsecond)
		res, err = l.Allow(t.Context(), "ann")
		if res = healthy(t, res, err); !res.Allowed {
			t.Errorf("got %+v", res)
		}
	})
}

// Misuse is an error, does not count as a failure, and takes no probe's place.
func TestOutageMisuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		l := onOutage(t, mustNew(t, st, algorithm.SlidingLog{Limit: 5000, Window: time.Hour}), weir.Outage{Fallback: weir.FailOpen})
		misuse := func() {
			t.Helper()
			for _, tt := range []struct {
				r    weir.Request
				each int
				want error
			}{
				{weir.Request{Key: weir.KeyOf("")}, 0, weir.ErrInvalidKey},
				{weir.Request{Key: weir.KeyOf("a", "b"), Op: weir.Peek}, 0, weir.ErrInvalidKey},
				{weir.Request{Key: weir.KeyOf("a"), Cost: -1}, 0, weir.ErrInvalidCost},
				{weir.Request{Key: weir.KeyOf("a"), Cost: 1001}, 0, weir.ErrInvalidCost},
				{weir.Request{Key: weir.KeyOf("a"), MaxWait: 1}, 0, weir.ErrUnsupported},
				{weir.Request{Key: weir.KeyOf("a"), Metadata: "m"}, 0, weir.ErrUnsupported},
				{weir.Request{Key: weir.KeyOf("a"), Op: weir.Renew, ID: "i"}, 0, weir.ErrUnsupported},
				{weir.Request{Key: weir.KeyOf("a"), Op: weir.Refund}, 0, weir.ErrInvalidKey},
				{weir.Request{Key: weir.KeyOf("a"), Op: 99}, 0, weir.ErrUnsupported},
			} {
				res, err := l.Decide(t.Context(), tt.r, make([]weir.Result, tt.each))
				if !errors.Is(err, tt.want) || errors.Is(err, store.ErrUnavailable) || res != (weir.Result{}) {
					t.Errorf("%+v: got %+v, %v, want %v", tt.r, res, err, tt.want)
				}
			}
		}
		for range weir.DefaultFailures {
			misuse()
		}
		res, err := l.Allow(t.Context(), "ann")
		healthy(t, res, err)
		st.set(down)
		fail(t, l)
		misuse()
		st.set(up)
		time.Sleep(weir.DefaultProbe)
		misuse()
		res, err = l.Allow(t.Context(), "ann")
		healthy(t, res, err)
	})
}

// A foreign value is an error of the store, which has answered.
func TestOutageForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		plant(t, st.Store, "weir:t:{bad}:f2", store.Tag{'x', '1'}, 1)
		l := onOutage(t, mustNew(t, st, window(9, time.Hour)), weir.Outage{Fallback: weir.FailOpen})
		foreign := func() {
			t.Helper()
			if res, err := l.Allow(t.Context(), "bad"); !errors.Is(err, store.ErrForeign) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want ErrForeign", res, err)
			}
		}
		for range 2 * weir.DefaultFailures {
			foreign()
		}
		st.set(down)
		fail(t, l)
		st.set(up)
		time.Sleep(weir.DefaultProbe)
		foreign()
		res, err := l.Allow(t.Context(), "ann")
		healthy(t, res, err)
	})
}

// The end of a caller's context is the caller's error, and no failure of the store.
func TestOutageCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.set(hang)
		l := onOutage(t, mustNew(t, st, perSecond), weir.Outage{Fallback: weir.FailOpen})
		cancelled := func() {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(weir.DefaultBudget/2, cancel)
			if res, err := l.Allow(ctx, "ann"); !errors.Is(err, context.Canceled) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want %v", res, err, context.Canceled)
			}
		}
		expired := func(after time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if res, err := l.Allow(ctx, "ann"); !errors.Is(err, context.DeadlineExceeded) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want %v", res, err, context.DeadlineExceeded)
			}
		}
		for range 2 * weir.DefaultFailures {
			cancelled()
			expired(weir.DefaultBudget / 2)
			expired(weir.DefaultBudget)
			expired(0)
		}
		st.set(up)
		res, err := l.Allow(t.Context(), "ann")
		healthy(t, res, err)
		st.set(hang)
		fail(t, l)
		expired(0) // also while the breaker is open
		time.Sleep(weir.DefaultProbe)
		expired(0) // this takes no probe's place
		st.set(up)
		res, err = l.Allow(t.Context(), "ann")
		healthy(t, res, err)
		// A probe whose caller goes says nothing, and the next probe is due an interval later.
		st.set(hang)
		fail(t, l)
		time.Sleep(weir.DefaultProbe)
		cancelled()
		st.set(up)
		res, err = l.Allow(t.Context(), "ann")
		degraded(t, res, err)
		time.Sleep(weir.DefaultProbe)
		res, err = l.Allow(t.Context(), "ann")
		healthy(t, res, err)
	})
}

// An unavailable store whose caller has gone returns the context's error too.
func TestOutageUnavailableAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &hooked{Store: memory.New(nil), eval: func(ctx context.Context, _ *store.Script) error {
			<-ctx.Done()
			return fmt.Errorf("i/o timeout: %w", store.ErrUnavailable)
		}}
		l := onOutage(t, mustNew(t, st, perSecond), weir.Outage{Failures: 1})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), weir.DefaultBudget/2)
			res, err := l.Allow(ctx, "ann")
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) || res != (weir.Result{}) {
				t.Errorf("got %+v, %v, want %v", res, err, context.DeadlineExceeded)
			}
		}
		res, err := l.Allow(t.Context(), "ann") // with the budget
		degraded(t, res, err)
	})
}

// An answer after the budget is the store's, and counts as a failure.
func TestOutageLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.set(slow)
		const probe = 10 * time.Second
		l := onOutage(t, mustNew(t, st, window(10, time.Hour)), weir.Outage{Fallback: weir.FailOpen, Probe: probe})
		for i := range weir.DefaultFailures {
			res, err := l.Allow(t.Context(), "ann")
			if res = healthy(t, res, err); res.Remaining != int64(9-i) {
				t.Errorf("got %+v", res)
			}
		}
		res, err := l.Allow(t.Context(), "ann")
		degraded(t, res, err)
		time.Sleep(probe)
		res, err = l.Allow(t.Context(), "ann") // a probe that answers too late
		healthy(t, res, err)
		res, err = l.Allow(t.Context(), "ann")
		if degraded(t, res, err); !strings.Contains(res.Degraded.Error(), "budget of 50ms") {
			t.Errorf("got %v", res.Degraded)
		}
	})
}

// If the caller goes, and the store answers all the same, the store works.
func TestOutageAnswerAfterTheCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newFaulty()
		st.set(slow)
		l := onOutage(t, mustNew(t, st, perSecond), weir.Outage{Failures: 1})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(weir.DefaultBudget/2, cancel)
			res, err := l.Allow(ctx, "ann")
			healthy(t, res, err)
		}
		st.set(up)
		res, err := l.Allow(t.Context(), "ann")
		healthy(t, res, err)
	})
}

// An inner wrapper can return any error. Only ErrUnavailable and the end of the budget are
// outages, and misuse is misuse in any case.
func TestOutageInnerErrors(t *testing.T) {
	t.Parallel()
	own := errors.New("an error of a wrapper")
	short, cancel := context.WithTimeout(t.Context(), weir.DefaultBudget)
	defer cancel()
	for _, tt := range []struct {
		ctx        context.Context
		key        string
		inner      error
		want       error
		isDegraded bool
	}{
		{t.Context(), "ann", own, own, false},
		{t.Context(), "ann", context.Canceled, context.Canceled, false},
		{short, "ann", context.DeadlineExceeded, context.DeadlineExceeded, false},
		{t.Context(), "ann", context.DeadlineExceeded, nil, true},
		{t.Context(), "ann", store.ErrUnavailable, nil, true},
		{t.Context(), "", store.ErrUnavailable, weir.ErrInvalidKey, false},
	} {
		inner := failing{tt.inner}
		l := mustNew(t, newFaulty(), perSecond).Wrap(func(weir.Decider) weir.Decider { return inner })
		res, err := onOutage(t, l, weir.Outage{Fallback: weir.FailOpen}).Allow(tt.ctx, tt.key)
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || (res.Degraded != nil) != tt.isDegraded {
			t.Errorf("%+v: got %+v, %v", tt, res, err)
		}
	}
}

// A failing is a Decider that returns its error.
type failing struct{ err error }

func (f failing) Decide(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
	return weir.Result{}, f.err
}
