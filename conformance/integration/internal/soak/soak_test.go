package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// run runs rounds on a memory store: one for each fault, and healthy ones until enough is true,
// or 20. wrap and around can be nil, and so can enough: then one is.
func run(wrap func(weir.Decider) weir.Decider, around func(store.Store) store.Store, enough func(*Soak) bool, faults ...*Fault) *Soak {
	var st store.Store = memory.New(nil)
	if around != nil {
		st = around(st)
	}
	var w weir.Wrapper
	if wrap != nil {
		w = func(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) { return wrap(next), nil }
	}
	s := New(Config{Seed: 1, Prefix: "soak", Clients: 3, Wrap: w, Open: func(int) (Client, error) {
		return Client{Name: "memory", Store: st, Close: func() {}}, nil
	}})
	const length = 500 * time.Millisecond
	for _, f := range faults {
		s.Round(length, f)
	}
	for range 20 {
		if s.Round(length, nil); enough == nil || enough(s) {
			break
		}
	}
	s.Leave()
	return s
}

// TestHealthy checks that a soak finds nothing where nothing is wrong, and makes calls of every
// verb.
func TestHealthy(t *testing.T) {
	t.Parallel()
	s := run(nil, nil, func(s *Soak) bool {
		few := func(verb string) bool { return s.Report.Calls(verb) == 0 }
		return s.Err() != nil || s.Report.Retried > 0 && !slices.ContainsFunc(Verbs(), few)
	})
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	for _, verb := range Verbs() {
		if s.Report.Calls(verb) == 0 {
			t.Errorf("no call is a %s", verb)
		}
	}
	for _, k := range kinds(plans[0], time.Now()) {
		if !strings.Contains(s.Report.Markdown(), "| "+k.name+" |") {
			t.Errorf("no call is of %s", k.name)
		}
	}
	if r := &s.Report; r.Judged == 0 || r.Paced+r.Unpaced == 0 || r.Retried == 0 {
		t.Errorf("nothing was compared: %+v", r)
	}
}

// every returns a function that is true at every nth call.
func every(n int64) func() bool {
	var calls atomic.Int64
	return func() bool { return calls.Add(1)%n == 0 }
}

// A wrapper is a Decider that asks next, and then changes the answer or what was done.
type wrapper struct {
	next   weir.Decider
	decide func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error)
}

func (w wrapper) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return w.decide(ctx, w.next, r, each)
}

// TestSabotage checks that a soak finds what is wrong with the answers of a limiter.
func TestSabotage(t *testing.T) {
	type decide = func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error)
	// ignored answers some requests of an op as if the store had done what they ask.
	ignored := func(op weir.Op) func(func() bool) decide {
		return func(now func() bool) decide {
			return func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
				if r.Op == op && now() {
					n, _ := r.Actual.Cost()
					return weir.Result{Allowed: true, Granted: n}, nil
				}
				return next.Decide(ctx, r, each)
			}
		}
	}
	for name, tt := range map[string]struct {
		n    int64 // one in n requests is sabotaged
		make func(now func() bool) decide
		want Promise
	}{
		"a denied request is allowed": {30, func(now func() bool) decide {
			return func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
				res, err := next.Decide(ctx, r, each)
				if r.Op == weir.Consume && err == nil && !res.Allowed && now() {
					res.Allowed, res.Granted = true, max(r.Cost, 1)
				}
				return res, err
			}
		}, More},
		"a request that has room is denied": {30, func(now func() bool) decide {
			return func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
				if r.Op != weir.Consume || !now() {
					return next.Decide(ctx, r, each)
				}
				r.Op = weir.Peek
				res, err := next.Decide(ctx, r, each)
				res.Allowed = false
				return res, err
			}
		}, Fewer},
		"a request consumes more than it says": {50, func(now func() bool) decide {
			return func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
				if r.Op == weir.Consume && r.ID == "" && now() {
					_, _ = next.Decide(ctx, r, each)
				}
				return next.Decide(ctx, r, each)
			}
		}, Answer},
		"tokens come back by themselves": {200, func(now func() bool) decide {
			return func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
				res, err := next.Decide(ctx, r, each)
				if now() {
					_, _ = next.Decide(ctx, weir.Request{Key: r.Key, Op: weir.Reset}, nil)
				}
				return res, err
			}
		}, More},
		"a repeated ID consumes again": {1, func(func() bool) decide {
			return func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
				res, err := next.Decide(ctx, r, each)
				if res.Replayed {
					_, _ = next.Decide(ctx, weir.Request{Key: r.Key, Cost: r.Cost}, each)
				}
				return res, err
			}
		}, Answer},
		"a denied caller must retry later than RetryAfter": {1, func(func() bool) decide {
			return func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
				res, err := next.Decide(ctx, r, each)
				res.RetryAfter /= 2
				return res, err
			}
		}, Retry},
		"a call fails":           {30, failing(store.ErrUnavailable), Failed},
		"an error is unexpected": {30, failing(store.ErrScript), Failed},
		"refunds are lost":       {3, ignored(weir.Refund), Answer},
		"settlements are lost":   {3, ignored(weir.Settle), Answer},
		"releases are lost":      {3, ignored(weir.Release), Answer},
		"resets are lost":        {1, ignored(weir.Reset), Fewer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := every(tt.n)
			s := run(func(next weir.Decider) weir.Decider { return wrapper{next, tt.make(now)} }, nil, func(s *Soak) bool {
				return s.Report.Broken[tt.want] > 0
			})
			if s.Report.Broken[tt.want] == 0 {
				t.Errorf("got %v, want that %s", s.Err(), tt.want)
			}
		})
	}
}

// failing makes some requests fail that the store has answered.
func failing(with error) func(func() bool) func(context.Context, weir.Decider, weir.Request, []weir.Result) (weir.Result, error) {
	return func(now func() bool) func(context.Context, weir.Decider, weir.Request, []weir.Result) (weir.Result, error) {
		return func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
			res, err := next.Decide(ctx, r, each)
			if now() {
				return weir.Result{}, fmt.Errorf("sabotage: %w", with)
			}
			return res, err
		}
	}
}

// TestUnknown checks that calls without a reply, of which some were made, are no violations.
func TestUnknown(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	made := every(2)
	s := run(func(next weir.Decider) weir.Decider {
		return wrapper{next, func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
			if !down.Load() {
				return next.Decide(ctx, r, each)
			}
			if made() {
				_, _ = next.Decide(ctx, r, each)
			}
			return weir.Result{}, store.ErrUnavailable
		}}
	}, nil, nil, &Fault{Name: "down", Begin: func() { down.Store(true) }, End: func() { down.Store(false) }})
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.Report.Markdown(), "| down | 1 |") {
		t.Error("there was no fault")
	}
}
