package weir_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store"
)

// work is a policy with two places, a bucket of 10 tokens and a pause.
var work = weir.Policy{Name: "work", Rules: []weir.Rule{
	{Name: "parallel", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1},
	{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}},
	{Name: "closed", Algorithm: algorithm.Pause{}},
}}

// A site is a limiter of work, and its clock.
type site struct {
	*testing.T
	*weir.Limiter
	clock *weirtest.Clock
	each  [3]weir.Result
}

func newSite(t *testing.T, settles bool) *site {
	t.Helper()
	clock := weirtest.NewClock()
	l, err := weir.NewPolicy(weirtest.NewStore(clock), work, &weir.Options{Settles: settles})
	if err != nil {
		t.Fatal(err)
	}
	return &site{T: t, Limiter: l, clock: clock}
}

// ask sends the request of the work "a", or of the ID of r, at a cost of 3.
func (s *site) ask(r weir.Request) (weir.Result, error) {
	r.Key = weir.KeyOf("ann")
	if r.ID == "" {
		r.ID = "a"
	}
	if r.Op == weir.Consume || r.Op == weir.TakeUpTo {
		r.Cost = 3
	}
	return s.Decide(s.Context(), r, nil)
}

func (s *site) must(r weir.Request) weir.Result {
	s.Helper()
	res, err := s.ask(r)
	if err != nil {
		s.Fatalf("%v: %v", r.Op, err)
	}
	return res
}

// left returns the free places and the remaining tokens.
func (s *site) left() [2]int64 {
	s.Helper()
	if _, err := s.Decide(s.Context(), weir.Request{Op: weir.Peek, Key: weir.KeyOf("ann")}, s.each[:]); err != nil {
		s.Fatal(err)
	}
	return [2]int64{s.each[0].Remaining, s.each[1].Remaining}
}

// An answer is what a request answers, and leaves. If it is an ErrUnsupported, granted is -1.
type answer struct {
	allowed, replayed bool
	granted           int64
	left              [2]int64 // places and tokens, afterwards
}

// String returns a as docs/guide/work.md has it.
func (a answer) String() string {
	switch {
	case a.granted < 0:
		return "ErrUnsupported"
	case a.allowed && a.replayed:
		return "Allowed, Replayed"
	case a.allowed:
		return "Allowed"
	case a.replayed:
		return "Replayed"
	}
	return "–"
}

// What each op does to a piece of work whose lease is held or not, and whose bill is found or not.
// docs/guide/work.md has the same table.
func TestWork(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("docs"); err != nil {
		t.Skip("docs is another module, which a copy of this one lacks")
	}
	page, err := os.ReadFile("docs/guide/work.md")
	if err != nil {
		t.Fatal(err)
	}
	const heldLost, freeFound, free, without = 1, 2, 3, 4 // columns
	names := [...]string{"held, found", "held, not found", "not held, found", "not held, not found", "without the option"}
	five, zero := weir.ActualCost(5), weir.ActualCost(0)
	yes, unsupported := true, answer{granted: -1}
	for _, tt := range []struct {
		name   string
		r      weir.Request
		full   bool // others hold all other places
		paused bool
		want   [5]answer
	}{
		{"Consume", weir.Request{}, false, false, [5]answer{
			{yes, yes, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 7}}, {yes, yes, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 4}}}},
		{"TakeUpTo", weir.Request{Op: weir.TakeUpTo}, false, false, [5]answer{
			{yes, yes, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 7}}, {yes, yes, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 7}}, {yes, false, 3, [2]int64{1, 4}}}},
		{"Consume, no lease is free", weir.Request{}, true, false, [5]answer{
			{yes, yes, 3, [2]int64{0, 7}}, {yes, false, 3, [2]int64{0, 7}}, {false, yes, 0, [2]int64{0, 7}}, {false, false, 0, [2]int64{0, 10}}, {yes, false, 3, [2]int64{0, 4}}}},
		{"Consume, in a pause", weir.Request{}, false, true, [5]answer{
			{false, yes, 0, [2]int64{1, 7}}, {false, false, 0, [2]int64{1, 10}}, {false, yes, 0, [2]int64{2, 7}}, {false, false, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{1, 7}}}},
		{"Renew", weir.Request{Op: weir.Renew}, false, false, [5]answer{
			{yes, false, 0, [2]int64{1, 7}}, {yes, false, 0, [2]int64{1, 10}}, {false, false, 0, [2]int64{2, 7}}, {false, false, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{1, 7}}}},
		{"Release; the bill stays", weir.Request{Op: weir.Release}, false, false, [5]answer{
			{yes, false, 0, [2]int64{2, 7}}, {yes, false, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{2, 7}}, {false, false, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{2, 7}}}},
		{"Settle; the lease stays", weir.Request{Op: weir.Settle, Actual: five}, false, false, [5]answer{
			{yes, false, 5, [2]int64{1, 5}}, {false, false, 0, [2]int64{1, 10}}, {yes, false, 5, [2]int64{2, 5}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Refund; the lease stays", weir.Request{Op: weir.Refund}, false, true, [5]answer{
			{yes, false, 0, [2]int64{1, 10}}, {false, false, 0, [2]int64{1, 10}}, {yes, false, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Finish", weir.Request{Op: weir.Finish}, false, true, [5]answer{
			{yes, yes, 3, [2]int64{2, 7}}, {yes, false, 0, [2]int64{2, 10}}, {false, yes, 3, [2]int64{2, 7}}, {false, false, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{2, 7}}}},
		{"Finish with amounts", weir.Request{Op: weir.Finish, Actual: five, Cost: 1}, false, true, [5]answer{
			{yes, yes, 5, [2]int64{2, 5}}, {yes, false, 0, [2]int64{2, 10}}, {false, yes, 5, [2]int64{2, 5}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Finish at 0", weir.Request{Op: weir.Finish, Actual: zero}, false, false, [5]answer{
			{yes, yes, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{2, 10}}, {false, yes, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Finish that refunds", weir.Request{Op: weir.Finish, Actual: weir.ActualRefund(), Cost: 1}, false, true, [5]answer{
			{yes, yes, 0, [2]int64{2, 10}}, {yes, false, 0, [2]int64{2, 10}}, {false, yes, 0, [2]int64{2, 10}}, {false, false, 0, [2]int64{2, 10}}, unsupported}},
		{"Force of other work", weir.Request{Op: weir.Force, ID: "b", Cost: 2}, true, false, [5]answer{
			{yes, false, 2, [2]int64{0, 5}}, {yes, false, 2, [2]int64{0, 8}}, {yes, false, 2, [2]int64{0, 5}}, {yes, false, 2, [2]int64{0, 8}}, unsupported}},
	} {
		row := "| " + tt.name + " |"
		for column, want := range tt.want {
			row += " " + want.String() + " |"
			t.Run(tt.name+": "+names[column], func(t *testing.T) {
				s := newSite(t, column != without)
				if column != free {
					s.must(weir.Request{})
				}
				switch column {
				case heldLost:
					s.must(weir.Request{Op: weir.Refund})
				case freeFound:
					s.must(weir.Request{Op: weir.Release})
				}
				for i := 0; tt.full && s.left()[0] > 0; i++ {
					s.must(weir.Request{ID: fmt.Sprint(i)})
					if column == without {
						want.left[1] -= 3
					} else {
						s.must(weir.Request{Op: weir.Refund, ID: fmt.Sprint(i)})
					}
				}
				pause := ""
				if tt.paused {
					var err error
					if pause, err = s.Limiter.Pause(t.Context(), time.Hour, "ann"); err != nil {
						t.Fatal(err)
					}
				}
				res, err := s.ask(tt.r)
				if tt.paused {
					if _, err := s.Limiter.Resume(t.Context(), pause, "ann"); err != nil {
						t.Fatal(err)
					}
				}
				if want.granted < 0 {
					if !errors.Is(err, weir.ErrUnsupported) {
						t.Errorf("got %+v, %v, want an ErrUnsupported", res, err)
					}
					return
				}
				got := answer{res.Allowed, res.Replayed, res.Granted, s.left()}
				if err != nil || got != want {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
			})
		}
		if !strings.Contains(string(page), row+"\n") && tt.name != "Finish at 0" && tt.name != "Force of other work" {
			t.Errorf("docs/guide/work.md lacks the row %s", row)
		}
	}
}

// After a Finish without an error, a Lease sends nothing more. Before it, Finish can be retried.
func TestLeaseFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		l, err := weir.NewPolicy(st, work, &weir.Options{Settles: true})
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		l = weirtest.Wrap(t, l, observe.Observer(func(context.Context, observe.Decision) { calls++ }).Wrap)
		lease, err := l.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("ann"), ID: "a", Cost: 3})
		if err != nil || lease.ID() != "a" || lease.Granted != 3 {
			t.Fatalf("got %+v, %v", lease, err)
		}
		kept := make(chan error, 1)
		go func() {
			lease.KeepAlive(t.Context(), func(err error) { kept <- err })
			close(kept)
		}()
		st.Set(weirtest.Down)
		if done, err := lease.Finish(t.Context(), weir.ActualCost(5)); !errors.Is(err, store.ErrUnavailable) || done != (weir.Settlement{}) {
			t.Errorf("in an outage: got %+v, %v", done, err)
		}
		if err := <-kept; err != nil {
			t.Errorf("KeepAlive: %v, want it to return without an error", err)
		}
		st.Set(weirtest.Up)
		if done, err := lease.Finish(t.Context(), weir.ActualCost(5)); err != nil || done != (weir.Settlement{Found: true, Held: true, Cost: 5}) {
			t.Errorf("after it: got %+v, %v", done, err)
		}
		calls = 0
		released, err := lease.Release(t.Context())
		done, err2 := lease.Finish(t.Context(), weir.ActualRefund())
		if err3 := lease.Renew(t.Context()); released || err != nil || done != (weir.Settlement{}) || err2 != nil || !errors.Is(err3, weir.ErrLeaseLost) || calls != 0 {
			t.Errorf("finished: Release %v, %v, Finish %+v, %v, Renew %v, %d calls", released, err, done, err2, err3, calls)
		}
		lease.KeepAlive(t.Context(), func(err error) { t.Errorf("KeepAlive: %v", err) })
		if left := weirtest.Left(t, l, "ann"); left.Rule != "parallel" || left.Remaining != 2 {
			t.Errorf("got %+v, want all places free", left)
		}
	})
}

// A bill is kept for at least 10 minutes or the lease time after the decision. Renewals and
// repeats do not move its end, and a Settle never shortens it. A limiter that lost its lease, or
// gained one, reads the markers of the other.
func TestWorkEnds(t *testing.T) {
	t.Parallel()
	fast := weir.Rule{Name: "fast", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)}}
	list := weir.Rule{Name: "list", Algorithm: algorithm.SlidingLog{Limit: 10, Window: time.Second}, Cost: 2}
	for _, tt := range []struct {
		lease, want time.Duration
		through     func(work, without *weir.Limiter) *weir.Limiter // makes the later calls
	}{
		{time.Minute, 10 * time.Minute, nil},
		{time.Hour, time.Hour, nil},
		{time.Minute, 10 * time.Minute, func(_, without *weir.Limiter) *weir.Limiter { return without }},
	} {
		clock := weirtest.NewClock()
		st := weirtest.NewStore(clock)
		rules := []weir.Rule{fast, list, {Name: "place", Algorithm: algorithm.Concurrency{Limit: 9, Lease: tt.lease}, Cost: 1}}
		limiter := func(rules []weir.Rule) *weir.Limiter {
			l, err := weir.NewPolicy(st, weir.Policy{Name: "l", Rules: rules}, &weir.Options{Settles: true})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := limiter(rules)
		later := l
		if tt.through != nil {
			later = tt.through(l, limiter(rules[:2]))
		}
		ask := func(l *weir.Limiter, r weir.Request) weir.Result {
			t.Helper()
			r.Key, r.ID = weir.KeyOf("k"), "a"
			res, err := l.Decide(t.Context(), r, nil)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		ask(l, weir.Request{Cost: 3})
		clock.Advance(5 * time.Minute)
		ask(l, weir.Request{Cost: 3})
		ask(l, weir.Request{Op: weir.Renew})
		ask(later, weir.Request{Op: weir.Settle, Actual: weir.ActualCost(2)})
		clock.Advance(tt.want - 5*time.Minute - 1*time.Microsecond)
		if res := ask(later, weir.Request{Cost: 3}); !res.Replayed || res.Granted != 2 {
			t.Errorf("%v: before the end: got %+v, want a repeat at 2", tt.lease, res)
		}
		clock.Advance(time.Microsecond)
		if res := ask(later, weir.Request{Op: weir.Settle, Actual: weir.ActualCost(1)}); res.Allowed {
			t.Errorf("%v: at the end: got %+v, want it not found", tt.lease, res)
		}
		if res := ask(later, weir.Request{Cost: 3}); res.Replayed || !res.Allowed {
			t.Errorf("%v: at the end: got %+v, want a new decision", tt.lease, res)
		}
		// A decision of the limiter without leases is found by the other, and the reverse.
		clock.Advance(time.Hour)
		ask(limiter(rules[:2]), weir.Request{Cost: 3})
		if res := ask(l, weir.Request{Op: weir.Finish}); res.Allowed || !res.Replayed || res.Granted != 3 {
			t.Errorf("%v: without a lease: got %+v, want it found", tt.lease, res)
		}
	}
}

// Of another cost, a repeat is an error, and neither takes nor renews a lease.
func TestWorkOfAnotherCost(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	s.must(weir.Request{})
	s.must(weir.Request{Op: weir.Release})
	if _, err := s.Decide(t.Context(), weir.Request{Key: weir.KeyOf("ann"), ID: "a", Cost: 4}, nil); !errors.Is(err, weir.ErrInvalidCost) {
		t.Errorf("got %v, want an ErrInvalidCost", err)
	}
	if left := s.left(); left != [2]int64{2, 7} {
		t.Errorf("%v are left, want 2 places and 7 tokens", left)
	}
}

// What a limiter with leases and Options.Settles cannot have is an error of construction, or says
// what to set.
func TestWorkMisuse(t *testing.T) {
	t.Parallel()
	place := algorithm.Concurrency{Limit: 1, Lease: time.Minute}
	window := weirtest.Window(5, time.Hour)
	st := weirtest.NewStore(weirtest.NewClock())
	for says, rules := range map[string][]weir.Rule{
		`rule "place" holds leases: with Options.Settles, set its Cost to 1`: {{Name: "place", Algorithm: place}, {Name: "w", Algorithm: window}},
		`rule "try" holds leases: with Options.Settles, set its Cost to 1`:   {{Name: "place", Algorithm: place, Cost: 1}, {Name: "w", Algorithm: window}, {Name: "try", Algorithm: place, Shadow: true}},
		"Settle: every rule has a Cost":                                      {{Name: "place", Algorithm: place, Cost: 1}, {Name: "w", Algorithm: window, Cost: 1}},
		"a lease needs an ID, and metadata cannot be refunded":               {{Name: "place", Algorithm: place, Cost: 1}, {Name: "m", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Hour}}},
	} {
		if _, err := weir.NewPolicy(st, weir.Policy{Name: "l", Rules: rules}, &weir.Options{Settles: true}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	with, without := newSite(t, true), newSite(t, false)
	for _, tt := range []struct {
		s    *site
		r    weir.Request
		is   error
		says string
	}{
		{without, weir.Request{Op: weir.Settle, Actual: weir.ActualCost(1)}, weir.ErrUnsupported, "Settle: a rule holds leases: set Options.Settles"},
		{without, weir.Request{Op: weir.Finish, Actual: weir.ActualCost(1)}, weir.ErrUnsupported, "Finish: a rule holds leases: set Options.Settles"},
		{with, weir.Request{Op: weir.Settle}, weir.ErrInvalidCost, "Settle: Request.Actual is not set"},
		{with, weir.Request{Op: weir.Settle, Actual: weir.ActualCosts(weir.Costs{})}, weir.ErrInvalidCost, "Settle: Request.Actual is not set"},
		{with, weir.Request{Op: weir.Settle, Actual: weir.ActualRefund()}, weir.ErrInvalidCost, "which is for a Finish: call Refund"},
		{with, weir.Request{Op: weir.Finish, Actual: weir.ActualRefund().With(weir.CostsOf(map[string]int64{"u": 1}))}, weir.ErrInvalidCost, "a refund and amounts"},
		{with, weir.Request{Op: weir.Finish, Actual: weir.ActualCost(-1)}, weir.ErrInvalidCost, "Finish: the actual cost is -1"},
		{with, weir.Request{Op: weir.Finish, ID: strings.Repeat("x", algorithm.MaxLease+1)}, weir.ErrInvalidLease, "129 bytes"},
		{with, weir.Request{Op: weir.Finish, Actual: weir.ActualCosts(weir.CostsOf(map[string]int64{"u": 1}))}, weir.ErrInvalidCost, "Policy.Units must declare it"},
	} {
		tt.s.must(weir.Request{})
		if _, err := tt.s.ask(tt.r); !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v: got %v, want %q", tt.r.Op, err, tt.says)
		}
		if left := tt.s.left(); left[0] != 1 {
			t.Errorf("%v: %d places are left, want the lease to be held", tt.r.Op, left[0])
		}
	}
	if with.Digest() == without.Digest() {
		t.Error("limiters with and without Options.Settles have one Digest")
	}
	refund := weir.Request{Op: weir.Finish, Cost: -4, Costs: weir.CostsOf(map[string]int64{"u": 1}), Actual: weir.ActualRefund().With(weir.Costs{})}
	if res := with.must(refund); !res.Allowed || !res.Replayed {
		t.Errorf("a Finish with a Cost and Costs: got %+v, want them ignored", res)
	}
	if kept, err := with.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann")}); err != nil {
		t.Error(err)
	} else if _, err := kept.Finish(t.Context(), weir.ActualCost(-1)); !errors.Is(err, weir.ErrInvalidCost) || kept.Renew(t.Context()) != nil {
		t.Errorf("an invalid Finish: got %v, want the lease to be held", err)
	}
	var lease *weir.Lease
	if _, err := lease.Finish(t.Context(), weir.Actual{}); err == nil {
		t.Error("Finish of a nil Lease: got no error")
	}
	if _, err := with.TryAcquire(t.Context(), weir.Request{Op: weir.TakeUpTo}); !errors.Is(err, weir.ErrUnsupported) {
		t.Errorf("TryAcquire of a TakeUpTo: %v", err)
	}
}

// Shadow rules keep the ID with the option: a Finish settles them, and releases a shadow lease.
func TestWorkShadows(t *testing.T) {
	t.Parallel()
	p := work
	p.Rules = append(slices.Clip(p.Rules),
		weir.Rule{Name: "tokens2", Algorithm: weirtest.Window(10, time.Hour), Shadow: true},
		weir.Rule{Name: "parallel2", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Minute}, Cost: 1, Shadow: true})
	l, err := weir.NewPolicy(weirtest.NewStore(weirtest.NewClock()), p, &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	left := func(rule string) int64 {
		t.Helper()
		only, err := l.Only(rule)
		if err != nil {
			t.Fatal(err)
		}
		return weirtest.Left(t, only, "ann").Remaining
	}
	lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("ann"), Cost: 3})
	if err != nil || left("tokens2") != 7 || left("parallel2") != 0 {
		t.Fatalf("got %v, want 7 tokens and no place in the shadow rules", err)
	}
	if _, err := lease.Finish(t.Context(), weir.ActualCost(5)); err != nil || left("tokens2") != 5 || left("parallel2") != 1 {
		t.Errorf("got %v, and %d tokens and %d places, want 5 and 1", err, left("tokens2"), left("parallel2"))
	}
	bill := weir.Request{Key: weir.KeyOf("ann"), ID: lease.ID(), Costs: weir.CostsOf(map[string]int64{"u": 1})}
	if _, err := l.Finish(t.Context(), bill, weir.ActualRefund()); err != nil || left("tokens2") != 10 {
		t.Errorf("got %v, and %d tokens, want 10", err, left("tokens2"))
	}
}

// A repeated Force says that it took no lease.
func TestWorkForceEach(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	for _, replayed := range []bool{false, true} {
		res, err := s.Decide(t.Context(), weir.Request{Op: weir.Force, Key: weir.KeyOf("ann"), ID: "f", Cost: 2}, s.each[:])
		if err != nil || res.Replayed != replayed || s.each[0].Granted != 0 || s.each[0].Remaining != 2 || s.each[1].Granted != 2 {
			t.Errorf("got %+v, %v, %+v", res, err, s.each)
		}
	}
}

// A repeat that has taken a place is allowed, even if the clock stepped back to a time at
// which its tokens would not be available.
func TestWorkRepeatAfterStepBack(t *testing.T) {
	t.Parallel()
	clock := weirtest.NewClock()
	pace := weir.Rule{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}}
	l, err := weir.NewPolicy(weirtest.NewStore(clock), weir.Policy{Name: "work", Rules: []weir.Rule{work.Rules[0], pace}},
		&weir.Options{Settles: true, Clock: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	r := weir.Request{Key: weir.KeyOf("ann"), ID: "a"}
	for _, replayed := range []bool{false, true} {
		if res, err := l.Decide(t.Context(), r, nil); err != nil || !res.Allowed || res.Replayed != replayed {
			t.Errorf("got %+v, %v, want it allowed, replayed %v", res, err, replayed)
		}
		clock.Advance(-time.Hour)
	}
}
