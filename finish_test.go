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
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// work is a policy with two places, a bucket of 10 tokens and a pause.
var work = weir.Policy{Name: "work", Rules: []weir.Rule{
	{Name: "parallel", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}, Cost: 1},
	{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}},
	{Name: "closed", Algorithm: algorithm.Pause{}},
}}

// newWork returns a limiter of work over st.
func newWork(t *testing.T, st store.Store, settles bool) *weir.Limiter {
	t.Helper()
	l, err := weir.NewPolicy(st, work, &weir.Options{Settles: settles})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// What each op does to a piece of work, "a" at a cost of 3, whose lease is held or not, and whose
// bill is found or not. docs/guide/work.md has the same table.
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
	const unsupported = "ErrUnsupported"
	columns := [...]string{"held, found", "held, not found", "not held, found", "not held, not found", "without the option"}
	five := weir.ActualCost(5)
	for _, tt := range []struct {
		name   string // of the row in the page; with a "-", the page does not have it
		r      weir.Request
		full   bool      // others hold all other places
		paused bool      // while the request is made
		want   [5]string // the answer as the page has it, Granted, and the places, the tokens and the pause afterwards
	}{
		{"Consume", ask(3, "a"), false, false, [5]string{
			"Allowed, Replayed: 3, 1 7 open", "Allowed: 3, 1 7 open", "Allowed, Replayed: 3, 1 7 open", "Allowed: 3, 1 7 open", "Allowed: 3, 1 4 open"}},
		{"TakeUpTo", do(weir.TakeUpTo, 3, "a"), false, false, [5]string{
			"Allowed, Replayed: 3, 1 7 open", "Allowed: 3, 1 7 open", "Allowed, Replayed: 3, 1 7 open", "Allowed: 3, 1 7 open", "Allowed: 3, 1 4 open"}},
		{"Consume, no lease is free", ask(3, "a"), true, false, [5]string{
			"Allowed, Replayed: 3, 0 7 open", "Allowed: 3, 0 7 open", "Replayed: 0, 0 7 open", "–: 0, 0 10 open", "Allowed: 3, 0 1 open"}},
		{"Consume, in a pause", ask(3, "a"), false, true, [5]string{
			"Replayed: 0, 1 7 closed", "–: 0, 1 10 closed", "Replayed: 0, 2 7 closed", "–: 0, 2 10 closed", "–: 0, 1 7 closed"}},
		{"-Consume at another cost", ask(4, "a"), false, false, [5]string{
			"ErrInvalidCost", "Allowed: 4, 1 6 open", "ErrInvalidCost", "Allowed: 4, 1 6 open", "Allowed: 4, 1 3 open"}},
		{"Renew", do(weir.Renew, 0, "a"), false, false, [5]string{
			"Allowed: 0, 1 7 open", "Allowed: 0, 1 10 open", "–: 0, 2 7 open", "–: 0, 2 10 open", "Allowed: 0, 1 7 open"}},
		{"Release; the bill stays", do(weir.Release, 0, "a"), false, false, [5]string{
			"Allowed: 0, 2 7 open", "Allowed: 0, 2 10 open", "–: 0, 2 7 open", "–: 0, 2 10 open", "Allowed: 0, 2 7 open"}},
		{"Settle; the lease stays", settle(5, "a"), false, false, [5]string{
			"Allowed: 5, 1 5 open", "–: 0, 1 10 open", "Allowed: 5, 2 5 open", "–: 0, 2 10 open", unsupported}},
		{"Refund; the lease stays", do(weir.Refund, 0, "a"), false, true, [5]string{
			"Allowed: 0, 1 10 closed", "–: 0, 1 10 closed", "Allowed: 0, 2 10 closed", "–: 0, 2 10 closed", unsupported}},
		{"Finish", do(weir.Finish, 0, "a"), false, true, [5]string{
			"Allowed, Replayed: 3, 2 7 closed", "Allowed: 0, 2 10 closed", "Replayed: 3, 2 7 closed", "–: 0, 2 10 closed", "Allowed: 0, 2 7 closed"}},
		{"Finish with amounts", weir.Request{Op: weir.Finish, ID: "a", Actual: five, Cost: 1}, false, true, [5]string{
			"Allowed, Replayed: 5, 2 5 closed", "Allowed: 0, 2 10 closed", "Replayed: 5, 2 5 closed", "–: 0, 2 10 closed", unsupported}},
		{"-Finish at 0", weir.Request{Op: weir.Finish, ID: "a", Actual: weir.ActualCost(0)}, false, false, [5]string{
			"Allowed, Replayed: 0, 2 10 open", "Allowed: 0, 2 10 open", "Replayed: 0, 2 10 open", "–: 0, 2 10 open", unsupported}},
		{"Finish that refunds", weir.Request{Op: weir.Finish, ID: "a", Actual: weir.ActualRefund(), Cost: -4, Costs: weir.CostsOf(map[string]int64{"u": 1})}, false, true, [5]string{
			"Allowed, Replayed: 0, 2 10 closed", "Allowed: 0, 2 10 closed", "Replayed: 0, 2 10 closed", "–: 0, 2 10 closed", unsupported}},
		{"-Force of other work", do(weir.Force, 2, "b"), true, false, [5]string{
			"Allowed: 2, 0 5 open", "Allowed: 2, 0 8 open", "Allowed: 2, 0 5 open", "Allowed: 2, 0 8 open", unsupported}},
	} {
		row := "| " + tt.name + " |"
		for column, want := range tt.want {
			says, _, _ := strings.Cut(want, ":")
			row += " " + says + " |"
			t.Run(tt.name+": "+columns[column], func(t *testing.T) {
				l := newWork(t, weirtest.NewStore(weirtest.NewClock()), column != without)
				send := func(r weir.Request) (weir.Result, error) {
					r.Key = weir.KeyOf("ann")
					return l.Decide(t.Context(), r, nil)
				}
				if column != free {
					_, _ = send(ask(3, "a"))
				}
				switch column {
				case heldLost:
					_, _ = send(do(weir.Refund, 0, "a"))
				case freeFound:
					_, _ = send(do(weir.Release, 0, "a"))
				}
				for i := 0; tt.full && !strings.HasPrefix(leftOf(t, l, weir.KeyOf("ann")), "0"); i++ {
					_, _ = send(ask(3, fmt.Sprint(i)))
					_, _ = send(do(weir.Refund, 0, fmt.Sprint(i))) // without the option, its tokens stay consumed
				}
				if tt.paused {
					pause(t, l, time.Hour, "ann")
				}
				res, err := send(tt.r)
				var got []string
				if res.Allowed {
					got = append(got, "Allowed")
				}
				if res.Replayed {
					got = append(got, "Replayed")
				}
				if len(got) == 0 {
					got = []string{"–"}
				}
				switch text := fmt.Sprintf("%s: %d, %s", strings.Join(got, ", "), res.Granted, leftOf(t, l, weir.KeyOf("ann"))); {
				case want == unsupported || want == "ErrInvalidCost":
					is := map[string]error{unsupported: weir.ErrUnsupported, "ErrInvalidCost": weir.ErrInvalidCost}[want]
					if !errors.Is(err, is) {
						t.Errorf("got %s, %v, want %v", text, err, is)
					}
				case err != nil || text != want:
					t.Errorf("got %s, %v, want %s", text, err, want)
				}
			})
		}
		if !strings.HasPrefix(tt.name, "-") && !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/guide/work.md lacks the row %s", row)
		}
	}
}

// TestWorkEnds has how long a bill is kept: for at least 10 minutes or the lease time after the
// decision. Renewals and repeats do not move its end, and a Settle never shortens it. A limiter
// that lost its lease, or gained one, reads the markers of the other.
func TestWorkEnds(t *testing.T) {
	t.Parallel()
	fast := weir.Rule{Name: "fast", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerSecond(10)}}
	list := weir.Rule{Name: "list", Algorithm: algorithm.SlidingLog{Limit: 10, Window: second}, Cost: 2}
	var traces []trace
	for _, tt := range []struct {
		lease, want time.Duration
		by          int // the limiter that makes the later calls
	}{{time.Minute, 10 * time.Minute, 0}, {time.Hour, time.Hour, 0}, {time.Minute, 10 * time.Minute, 1}} {
		place := weir.Rule{Name: "place", Algorithm: algorithm.Concurrency{Limit: 9, Lease: tt.lease}, Cost: 1}
		traces = append(traces, trace{fmt.Sprint(tt), []weir.Policy{weirtest.Rules(fast, list, place), weirtest.Rules(fast, list)}, true, []step{
			{0, 0, ask(3, "a"), "3", "7 8 8"},
			{5 * time.Minute, 0, ask(3, "a"), "repeat, 3", "10 10 8"},
			{0, 0, do(weir.Renew, 0, "a"), "true", "10 10 8"},
			{0, tt.by, settle(2, "a"), "found true, cost 2", "10 10 8"},
			{tt.want - 5*time.Minute - time.Microsecond, tt.by, ask(3, "a"), "repeat, 2", ""},
			{time.Microsecond, tt.by, settle(1, "a"), "found false, cost 0", ""},
			{0, tt.by, ask(3, "a"), "3", ""},
			{time.Hour, 1, ask(3, "a"), "3", "7 8 9"},
			{0, 0, do(weir.Finish, 0, "a"), "held false, found true, cost 3", "7 8 9"},
		}})
	}
	pace := weir.Rule{Name: "pace", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}}
	play(t, append(traces, trace{"a repeat after the clock stepped back", rules(work.Rules[0], pace), true, []step{
		{0, 0, ask(1, "a"), "1", "1 0"},
		{-time.Hour, 0, ask(1, "a"), "repeat, 1", ""},
	}}, trace{"shadow rules are settled and released too", rules(append(slices.Clip(work.Rules),
		shadow(window("tokens2", 10)), shadow(costing(weir.Rule{Name: "parallel2", Algorithm: oneJob}, 1)))...), true, []step{
		{0, 0, ask(3, "a"), "3", "1 7 open 7 0"},
		{0, 0, weir.Request{Op: weir.Finish, ID: "a", Actual: weir.ActualCost(5)}, "held true, found true, cost 5", "2 5 open 5 1"},
		{0, 0, weir.Request{Op: weir.Finish, ID: "a", Actual: weir.ActualRefund(), Costs: weir.CostsOf(map[string]int64{"u": 1})}, "held false, found true, cost 0", "2 10 open 10 1"},
		{0, 0, do(weir.Force, 2, "f"), "2", "2 8 open 8 1"}, // which takes no lease
		{0, 0, do(weir.Force, 2, "f"), "repeat, 2", "2 8 open 8 1"},
	}}))
}

// After a Finish without an error, a Lease sends nothing more. Before it, Finish can be retried.
func TestLeaseFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		calls := 0
		l := weirtest.Wrap(t, newWork(t, st, true), observe.Observer(func(context.Context, observe.Decision) { calls++ }).Wrap)
		lease, err := l.Acquire(t.Context(), weir.Request{Key: weir.KeyOf("ann"), ID: "a", Cost: 3})
		if err != nil || lease.ID() != "a" || lease.Granted != 3 {
			t.Fatalf("got %+v, %v", lease, err)
		}
		if _, err := lease.Finish(t.Context(), weir.ActualCost(-1)); !errors.Is(err, weir.ErrInvalidCost) || lease.Renew(t.Context()) != nil {
			t.Errorf("an invalid Finish: got %v, want the lease to be held", err)
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
		if left := leftOf(t, l, weir.KeyOf("ann")); left != "2 5 open" {
			t.Errorf("got %s, want all places free", left)
		}
	})
}

// The methods Settle, SettleCosts, Refund and Finish return a Settlement.
func TestSettlement(t *testing.T) {
	t.Parallel()
	l := newWork(t, memory.New(nil), true)
	ctx, r := t.Context(), weir.Request{Key: keyU.Key, ID: "a", Cost: 3, Actual: weir.ActualCost(4)}
	weirtest.Allow(t, l, r)
	for i, want := range []weir.Settlement{{Found: true, Cost: 5}, {Found: true, Cost: 4}, {Found: true, Held: true, Cost: 4}, {Found: true}, {}} {
		got, err := [...]func() (weir.Settlement, error){
			func() (weir.Settlement, error) { return l.Settle(ctx, r, 5) },
			func() (weir.Settlement, error) { return l.SettleCosts(ctx, r, weir.Costs{}) }, // which keeps r.Actual
			func() (weir.Settlement, error) { return l.Finish(ctx, r, weir.Actual{}) },
			func() (weir.Settlement, error) { return l.Refund(ctx, r) },
			func() (weir.Settlement, error) { return l.Refund(ctx, r) },
		}[i]()
		if got != want || err != nil {
			t.Errorf("call %d: got %+v, %v, want %+v", i, got, err, want)
		}
	}
}
