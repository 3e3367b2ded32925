package soak

import (
	"context"
	"fmt"
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
// verb to every limit.
func TestHealthy(t *testing.T) {
	t.Parallel()
	s := run(nil, nil, func(s *Soak) bool {
		return s.Err() != nil || s.Report.Count(Retried) > 0 && len(s.Report.Missing()) == 0
	})
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	if missing := s.Report.Missing(); len(missing) > 0 {
		t.Errorf("no call is a %s", missing)
	}
	for _, k := range kinds(plans[0], time.Now()) {
		if s.Report.Count(limits+k.name) == 0 {
			t.Errorf("no call is of %s", k.name)
		}
	}
	if r := &s.Report; r.Count(Judged) == 0 || r.Count(Paced)+r.Count(unpaced) == 0 || r.Count(Retried) == 0 {
		t.Errorf("nothing was compared:\n%s", r.Markdown())
	}
}

// every returns a function that is true at every nth call.
func every(n int64) func() bool {
	var calls atomic.Int64
	return func() bool { return calls.Add(1)%n == 0 }
}

// An ask makes a request to a limiter.
type ask func(r weir.Request) (weir.Result, error)

// A sabotage answers a request to a limiter.
type sabotage func(next ask, r weir.Request) (weir.Result, error)

// around returns a wrapper that does the sabotage.
func around(do sabotage) func(weir.Decider) weir.Decider {
	return func(next weir.Decider) weir.Decider { return sabotaged{next, do} }
}

type sabotaged struct {
	next weir.Decider
	do   sabotage
}

func (s sabotaged) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	return s.do(func(r weir.Request) (weir.Result, error) { return s.next.Decide(ctx, r, each) }, r)
}

// TestSabotage checks that a soak finds what is wrong with the answers of a limiter.
func TestSabotage(t *testing.T) {
	// ignored answers one in n requests of an op as if the store had done what they ask.
	ignored := func(op weir.Op, n int64) sabotage {
		now := every(n)
		return func(next ask, r weir.Request) (weir.Result, error) {
			if r.Op == op && now() {
				n, _ := r.Actual.Cost()
				return weir.Result{Allowed: true, Granted: n}, nil
			}
			return next(r)
		}
	}
	// spoiled does something after one in n answers, which it can change.
	spoiled := func(n int64, of func(r weir.Request, res weir.Result) bool, do func(next ask, r weir.Request, res *weir.Result) error) sabotage {
		now := every(n)
		return func(next ask, r weir.Request) (weir.Result, error) {
			res, err := next(r)
			if err == nil && of(r, res) && now() {
				err = do(next, r, &res)
			}
			return res, err
		}
	}
	// extra makes a request more.
	extra := func(f func(weir.Request) weir.Request) func(ask, weir.Request, *weir.Result) error {
		return func(next ask, r weir.Request, _ *weir.Result) error {
			_, _ = next(f(r))
			return nil
		}
	}
	failing := func(with error) sabotage {
		return spoiled(30, always, func(ask, weir.Request, *weir.Result) error { return fmt.Errorf("sabotage: %w", with) })
	}
	consumes := func(r weir.Request, _ weir.Result) bool { return r.Op == weir.Consume && r.ID == "" }
	deny := every(30)
	for name, tt := range map[string]struct {
		do   sabotage
		want Promise
	}{
		"a denied request is allowed": {spoiled(30, func(r weir.Request, res weir.Result) bool { return r.Op == weir.Consume && !res.Allowed },
			func(_ ask, r weir.Request, res *weir.Result) error {
				res.Allowed, res.Granted = true, max(r.Cost, 1)
				return nil
			}), More},
		"a request that has room is denied": {func(next ask, r weir.Request) (weir.Result, error) {
			if r.Op != weir.Consume || !deny() {
				return next(r)
			}
			r.Op = weir.Peek
			res, err := next(r)
			res.Allowed = false
			return res, err
		}, Fewer},
		"a request consumes more than it says": {spoiled(50, consumes, extra(func(r weir.Request) weir.Request { return r })), Answer},
		"tokens come back by themselves":       {spoiled(200, always, extra(func(r weir.Request) weir.Request { return weir.Request{Key: r.Key, Op: weir.Reset} })), More},
		"a repeated ID consumes again": {spoiled(1, func(_ weir.Request, res weir.Result) bool { return res.Replayed },
			extra(func(r weir.Request) weir.Request { return weir.Request{Key: r.Key, Cost: r.Cost} })), Answer},
		"a denied caller must retry later than RetryAfter": {spoiled(1, always, func(_ ask, _ weir.Request, res *weir.Result) error {
			res.RetryAfter /= 2
			return nil
		}), Retry},
		"a call fails":           {failing(store.ErrUnavailable), Failed},
		"an error is unexpected": {failing(store.ErrScript), Failed},
		"refunds are lost":       {ignored(weir.Refund, 3), Answer},
		"settlements are lost":   {ignored(weir.Settle, 3), Answer},
		"releases are lost":      {ignored(weir.Release, 3), Answer},
		"resets are lost":        {ignored(weir.Reset, 1), Fewer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := run(around(tt.do), nil, func(s *Soak) bool { return s.Report.Broken[tt.want] > 0 })
			if s.Report.Broken[tt.want] == 0 {
				t.Errorf("got %v, want that %s", s.Err(), tt.want)
			}
		})
	}
}

func always(weir.Request, weir.Result) bool { return true }

// TestUnknown checks that calls without a reply, of which some were made, are no violations.
func TestUnknown(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	made := every(2)
	s := run(around(func(next ask, r weir.Request) (weir.Result, error) {
		if !down.Load() {
			return next(r)
		}
		if made() {
			_, _ = next(r)
		}
		return weir.Result{}, store.ErrUnavailable
	}), nil, nil, &Fault{Name: "down", Begin: func() { down.Store(true) }, End: func() { down.Store(false) }})
	if err := s.Err(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(s.Report.Markdown(), "| Faults | 1: down |") {
		t.Error("there was no fault")
	}
}
