package outage_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// A step is a request while the store has a fault, and its answer.
type step struct {
	fault weirtest.Fault
	wait  time.Duration // before it
	r     weir.Request
	want  string
}

// follow makes the requests of steps through l, whose store is st. The answer of a step
// is an error, or who decided, whether the request is allowed, and the tokens granted by
// each rule, or "-" if a rule does not know the decision. After it stand the tokens left:
// in the store, or in the share of the process if the store is down. A decision whose
// reply is lost is made in both.
func follow(t *testing.T, st *weirtest.Faulty, l *weir.Limiter, steps []step) {
	t.Helper()
	peek := weir.Request{Key: weir.KeyOf("ann"), Op: weir.Peek}
	if units := l.Units(); units != nil {
		peek.Costs = amounts(0, 0)
	}
	for i, s := range steps {
		time.Sleep(s.wait)
		st.Set(s.fault)
		s.r.Key = peek.Key
		each := slices.Repeat([]weir.Result{{Rule: "of another request"}}, len(l.Rules()))
		res, err := l.Decide(t.Context(), s.r, each)
		got := "store"
		if res.Degraded != nil {
			if got = "share"; s.r.Op == weir.Renew && !strings.Contains(res.Degraded.Error(), "the process holds it") {
				t.Errorf("step %d: the lease is degraded because of %v", i, res.Degraded)
			}
		}
		switch ended := s.r.Op == weir.Finish; {
		case errors.Is(err, store.ErrUnavailable):
			got = "unavailable"
		case errors.Is(err, weir.ErrInvalidCost):
			got = "invalid cost"
		case err != nil:
			got = err.Error()
		case res.Allowed && ended:
			got += " held"
		case res.Replayed && ended:
			got += " found"
		case res.Allowed:
			got += " yes"
		default:
			got += " no"
		}
		for n := range each {
			switch one := each[n]; {
			case one.Rule == "of another request" && err == nil:
				t.Errorf("step %d: the result of rule %d is not set", i, n)
			case err == nil && one.Degraded == nil && one.Allowed && res.Degraded != nil:
				t.Errorf("step %d: %+v is not degraded as %+v is", i, one, res)
			case err == nil && one.Rule != "" && s.r.Op >= weir.Refund && !one.Allowed:
				got += " -"
			case err == nil && one.Rule != "":
				got += fmt.Sprint(" ", one.Granted)
			}
		}
		if err == nil && each[0].Rule == "" {
			got += fmt.Sprint(" ", res.Granted)
		}
		if got += " |"; s.fault == weirtest.Lost {
			st.Set(weirtest.Down)
		}
		weirtest.Decide(t, l, peek, each...)
		for _, one := range each {
			got += fmt.Sprint(" ", one.Remaining)
		}
		if got != s.want {
			t.Errorf("step %d, %v %s:\ngot  %q\nwant %q", i, s.r.Op, s.r.ID, got, s.want)
		}
	}
}

// Refund, Settle, Finish, Renew and Release find what was decided in the share, in the
// store or in both, even after the outage. What the store decided can be settled later. A
// Reset clears both.
func TestVerbs(t *testing.T) {
	const Up, Down, Lost = weirtest.Up, weirtest.Down, weirtest.Lost
	do := func(op weir.Op, id string, cost int64) weir.Request { return weir.Request{Op: op, ID: id, Cost: cost} }
	end := func(op weir.Op, id string, actual weir.Actual) weir.Request {
		return weir.Request{Op: op, ID: id, Actual: actual}
	}
	costs := func(op weir.Op, id string, in, out int64) weir.Request {
		return weir.Request{Op: op, ID: id, Costs: amounts(in, out)}
	}
	settle := func(id string, actual map[string]int64) weir.Request {
		return end(weir.Settle, id, weir.ActualCosts(weir.CostsOf(actual)))
	}
	n := weir.ActualCost
	for name, tt := range map[string]struct {
		policy    weir.Policy
		opts      weir.Options
		processes int
		steps     []step
	}{
		"decisions": {weirtest.Rules(weir.Rule{Algorithm: weirtest.Window(40, 24*time.Hour)}), weir.Options{}, 4, []step{
			{Up, 0, do(weir.Consume, "before", 7), "store yes 7 | 33"},
			{Lost, 0, do(weir.Consume, "both", 2), "share yes 2 | 8"},
			{Down, 0, do(weir.Consume, "during", 7), "share yes 7 | 1"},
			{Down, 0, do(weir.Refund, "during", 6), "invalid cost | 1"},
			{Down, 0, do(weir.Refund, "during", 7), "share yes 0 | 8"},
			{Down, 0, do(weir.Refund, "during", 7), "unavailable | 8"},
			{Down, 0, do(weir.Refund, "before", 7), "unavailable | 8"},
			{Up, 0, do(weir.Refund, "during", 7), "store no 0 | 31"},
			{Up, 0, do(weir.Refund, "before", 7), "store yes 0 | 38"},
			{Up, 0, do(weir.Refund, "both", 2), "store yes 0 | 40"},
			{Up, 0, do(weir.Refund, "both", 2), "store no 0 | 40"},
			{Down, 0, do(weir.Peek, "", 0), "share yes 0 | 10"},
			{Up, 0, do(weir.Consume, "store's", 4), "store yes 4 | 36"},
			{Down, 0, do(weir.Consume, "share's", 2), "share yes 2 | 8"},
			{Down, 0, end(weir.Settle, "store's", n(1)), "unavailable | 8"},
			{Down, 0, end(weir.Settle, "share's", n(5)), "share yes 5 | 5"},
			{Up, 0, end(weir.Settle, "store's", n(1)), "store yes 1 | 39"},
			{Up, 0, do(weir.Force, "", 3), "store yes 3 | 36"},
			{Down, 0, do(weir.Reset, "", 0), "unavailable | 5"},
			{Up, 0, do(weir.Reset, "", 0), "store yes 0 | 40"},
			{Down, 0, do(weir.Peek, "", 0), "share yes 0 | 10"},
		}},
		"units": {weir.Policy{Units: []string{"in", "out"}, Rules: []weir.Rule{
			{Name: "in", Unit: "in", Algorithm: algorithm.TokenBucket{Capacity: 100, Refill: algorithm.PerMinute(100)}},
			{Name: "out", Unit: "out", Algorithm: weirtest.Window(60, 24*time.Hour)},
			{Name: "requests", Algorithm: weirtest.Window(1000, 24*time.Hour), Cost: 1},
		}}, weir.Options{Settles: true}, 2, []step{
			{Up, 0, costs(weir.Consume, "before", 40, 10), "store yes 40 10 1 | 60 50 999"},
			{Down, 0, costs(weir.Consume, "during", 20, 5), "share yes 20 5 1 | 30 25 499"}, // of a share of 50 and 30
			{Down, 0, costs(weir.Consume, "", 31, 0), "share no 0 0 0 | 30 25 499"},
			{Down, 0, costs(weir.Force, "", 150, 0), "unavailable | 30 25 499"},
			{Down, 0, settle("before", map[string]int64{"in": 1}), "unavailable | 30 25 499"},
			{Down, 0, settle("during", map[string]int64{"in": 10}), "share yes 10 5 1 | 40 25 499"},
			{Down, 0, costs(weir.Refund, "during", 19, 5), "invalid cost | 40 25 499"},
			{Lost, 0, costs(weir.Consume, "both", 10, 20), "share yes 10 20 1 | 30 5 498"},
			// In the store, a bucket is full after a minute, and its decision can be
			// settled for 9 more.
			{Up, 9 * time.Minute, settle("both", map[string]int64{"in": 30, "out": 10}), "store yes 30 10 1 | 80 40 998"},
			{Down, 0, costs(weir.Consume, "", 0, 0), "share yes 0 0 1 | 30 15 497"},
			{Up, 0, settle("during", map[string]int64{"in": 14, "out": 1}), "store yes 14 1 1 | 80 40 998"},
			{Down, 0, costs(weir.Consume, "", 0, 0), "share yes 0 0 1 | 26 19 496"},
			{Up, 0, costs(weir.Refund, "during", 0, 0), "invalid cost | 80 40 998"},
			{Up, 0, costs(weir.Refund, "during", 20, 5), "store yes 0 0 0 | 80 40 998"},
			{Up, 0, costs(weir.Refund, "during", 20, 5), "store no - - - | 80 40 998"},
			{Up, 0, costs(weir.Refund, "both", 10, 20), "store yes 0 0 0 | 100 50 999"},
			{Up, 0, settle("before", map[string]int64{"out": 60}), "store yes 40 60 1 | 100 0 999"},
			{Up, 0, costs(weir.Force, "", 150, 0), "store yes 150 0 1 | 0 0 998"},
			{Down, time.Minute, costs(weir.Consume, "", 0, 0), "share yes 0 0 1 | 50 30 497"},
		}},
		"leases": {weirtest.Rules(weir.Rule{Algorithm: algorithm.Concurrency{Limit: 4, Lease: time.Minute}}), weir.Options{}, 2, []step{
			{Up, 0, do(weir.Consume, "kept", 0), "store yes 1 | 3"},
			{Up, 0, do(weir.Consume, "released", 0), "store yes 1 | 2"},
			{Down, 0, do(weir.Consume, "one", 0), "share yes 1 | 1"},
			{Down, 0, do(weir.Consume, "two", 0), "share yes 1 | 0"},
			{Down, 0, do(weir.Consume, "three", 0), "share no 0 | 0"},
			{Down, 0, do(weir.Renew, "kept", 0), "unavailable | 0"},
			{Down, 0, do(weir.Release, "released", 0), "unavailable | 0"},
			{Down, 30 * time.Second, do(weir.Renew, "one", 0), "share yes 0 | 0"},
			{Down, 0, do(weir.Release, "two", 0), "share yes 0 | 1"},
			{Up, 20 * time.Second, do(weir.Renew, "one", 0), "share yes 0 | 2"},
			{Up, 0, do(weir.Renew, "kept", 0), "store yes 0 | 2"},
			{Up, 0, do(weir.Release, "released", 0), "store yes 0 | 3"},
			{Up, 0, do(weir.Release, "one", 0), "store yes 0 | 3"},
			{Up, 0, do(weir.Release, "one", 0), "store no 0 | 3"},
			{Up, 0, do(weir.Renew, "one", 0), "store no - | 3"},
			{Down, 0, do(weir.Consume, "four", 0), "share yes 1 | 1"},
			{Down, time.Minute, do(weir.Consume, "five", 0), "share yes 1 | 1"}, // a lease that nobody releases expires
		}},
		"work": {weir.Policy{Rules: []weir.Rule{
			{Name: "parallel", Algorithm: algorithm.Concurrency{Limit: 20, Lease: time.Minute}, Cost: 1},
			{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 100, Refill: algorithm.PerDay(100)}},
		}}, weir.Options{Settles: true}, 2, []step{
			{Up, 0, end(weir.Finish, "nowhere", n(1)), "store no 0 | 20 100"},
			{Up, 0, do(weir.Consume, "store's", 3), "store yes 1 3 | 19 97"},
			{Down, 0, end(weir.Finish, "store's", n(1)), "unavailable | 10 50"},
			{Up, 0, end(weir.Finish, "store's", n(1)), "store held 1 | 20 99"},
			{Down, 0, do(weir.Consume, "share's", 3), "share yes 1 3 | 9 47"},
			{Up, 0, end(weir.Finish, "share's", n(1)), "store held 1 | 20 99"},
			{Down, 0, do(weir.Consume, "share's again", 3), "share yes 1 3 | 9 46"},
			{Down, 0, end(weir.Finish, "share's again", n(1)), "share held 1 | 10 48"},
			{Down, 0, do(weir.Consume, "share's late", 3), "share yes 1 3 | 9 45"},
			{Down, 2 * time.Minute, end(weir.Finish, "share's late", weir.Actual{}), "share found 3 | 10 45"},
			{Lost, 0, do(weir.Consume, "both", 3), "share yes 1 3 | 9 42"},
			{Down, 0, end(weir.Finish, "both", n(1)), "share held 1 | 10 44"}, // and again, when the store is back
			{Up, 0, end(weir.Finish, "both", n(1)), "store held 1 | 20 98"},
			{Lost, 0, do(weir.Consume, "both again", 3), "share yes 1 3 | 9 41"},
			{Up, 0, end(weir.Finish, "both again", weir.ActualRefund()), "store held 0 | 20 98"},
			{Lost, 0, do(weir.Consume, "both late", 3), "share yes 1 3 | 9 41"},
			{Up, 2 * time.Minute, end(weir.Finish, "both late", n(2)), "store found 2 | 20 96"},
			{Lost, 0, do(weir.Consume, "above the share's bound", 3), "share yes 1 3 | 9 39"},
			{Up, 0, end(weir.Finish, "above the share's bound", n(3_000_000)), "store held 3000000 | 20 0"},
			{Down, 0, do(weir.Peek, "", 0), "share yes 0 0 | 10 39"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := weirtest.NewFaulty()
				tt.policy.Name = "t"
				l, err := weir.NewPolicy(st, tt.policy, &tt.opts)
				if err != nil {
					t.Fatal(err)
				}
				follow(t, st, onOutage(t, l, outage.Options{Fallback: outage.Local, Processes: tt.processes, Failures: 1 << 30}), tt.steps)
			})
		})
	}
}

// Force, Reset, Pause and Resume are errors with every fallback, and change nothing in
// the process.
func TestVerbsOfTheStore(t *testing.T) {
	t.Parallel()
	key := weir.KeyOf("ann")
	for _, o := range []outage.Options{{}, {Fallback: outage.Open}, {Fallback: outage.Local, Processes: 1}} {
		st := weirtest.NewFaulty()
		l := onOutage(t, weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}, weir.Rule{Name: "rate", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Hour}})), o)
		weirtest.Allow(t, l, weir.Request{Key: key})
		st.Set(weirtest.Down)
		weirtest.Decide(t, l, weir.Request{Key: key})
		for _, r := range []weir.Request{{Op: weir.Force, Cost: 4}, {Op: weir.Reset}, {Op: weir.Pause, ID: "p", For: time.Hour}, {Op: weir.Resume, ID: "p"}} {
			r.Key = key
			if res, err := l.Decide(t.Context(), r, nil); !errors.Is(err, store.ErrUnavailable) || res != (weir.Result{}) {
				t.Errorf("%v: %v: got %+v, %v, want ErrUnavailable", o.Fallback, r.Op, res, err)
			}
		}
		if _, err := l.Entries(t.Context(), "ann"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%v: Entries: %v", o.Fallback, err)
		}
		if res := weirtest.Decide(t, l, weir.Request{Key: key}); res.Allowed != (o.Fallback != outage.Closed) || res.Degraded == nil || o.Processes > 0 && res.Remaining != 3 {
			t.Errorf("%v: got %+v", o.Fallback, res)
		}
	}
}
