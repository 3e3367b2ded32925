package weir_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
)

// refundable has a limit of 5 tokens for each algorithm that can refund.
var refundable = []algorithm.Algorithm{
	algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 5},
	algorithm.GCRA{Rate: algorithm.Rate{Count: 7, Period: time.Minute}, Burst: 5},
	algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerMinute(1)},
	algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 4},
	weirtest.Window(5, time.Hour),
	algorithm.SlidingCounter{Limit: 5, Window: time.Hour},
	algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: time.Hour, Limit: 5}}},
	algorithm.SlidingLog{Limit: 5, Window: time.Hour},
}

// A repeated request consumes nothing, and is allowed, even if no token is left.
func TestReplay(t *testing.T) {
	t.Parallel()
	for _, a := range refundable {
		c := weirtest.NewClock()
		st := weirtest.NewStore(c)
		l := weirtest.New(t, st, a)
		first := weir.Request{Key: weir.KeyOf("k"), Cost: 3, ID: "first"}
		before := weirtest.Decide(t, l, first)
		if before.Replayed || !before.Allowed {
			t.Fatalf("%+v: got %+v", a, before)
		}
		second := weir.Request{Key: weir.KeyOf("k"), Op: weir.TakeUpTo, Cost: 4, ID: "second"}
		c.Advance(time.Second)
		if _, queues := a.(algorithm.LeakyBucket); queues {
			second.ID = "" // its queue is not empty, so nothing is granted
		} else if res := weirtest.Decide(t, l, second); res.Granted != 2 || res.Replayed {
			t.Errorf("%+v: got %+v, want 2 tokens", a, res)
		}
		state := dump(t, st)
		for range 2 {
			each := make([]weir.Result, 1)
			res := weirtest.Decide(t, l, first, each...)
			if !res.Replayed || !res.Allowed || res.Granted != 3 || res.Delay != 0 || res.RetryAfter != 0 || each[0] != res {
				t.Errorf("%+v: a repeat: got %+v, and of the rule %+v, want it allowed", a, res, each[0])
			}
			now := weirtest.Decide(t, l, weir.Request{Key: first.Key, Op: weir.Peek})
			if res.Remaining != now.Remaining || res.ResetAfter != now.ResetAfter {
				t.Errorf("%+v: a repeat: got %+v, want what a peek says: %+v", a, res, now)
			}
			if second.ID == "" {
				continue
			}
			if res := weirtest.Decide(t, l, second); !res.Replayed || res.Granted != 2 {
				t.Errorf("%+v: a repeated TakeUpTo: got %+v, want 2 tokens", a, res)
			}
		}
		for _, r := range []weir.Request{
			{Op: weir.Consume, Cost: 2, ID: "first"}, {Op: weir.Consume, Cost: 4, ID: "first"},
			{Op: weir.TakeUpTo, Cost: 2, ID: "first"}, {Op: weir.Consume, Cost: 6, ID: "first"},
		} {
			r.Key = first.Key
			if res, err := l.Decide(t.Context(), r, nil); !errors.Is(err, weir.ErrInvalidCost) || res != (weir.Result{}) || !strings.Contains(err.Error(), "Request.ID names a decision that asked for 3") {
				t.Errorf("%+v: %+v: got %+v, %v, want ErrInvalidCost", a, r, res, err)
			}
		}
		if got := dump(t, st); strings.Join(got, "\n") != strings.Join(state, "\n") {
			t.Errorf("%+v: repeats turned\n%q\ninto\n%q", a, state, got)
		}
		if ok, err := l.Refund(t.Context(), first); !ok.Found || err != nil {
			t.Errorf("%+v: Refund = %v, %v", a, ok, err)
		}
		if res := weirtest.Decide(t, l, first); res.Replayed || !res.Allowed {
			t.Errorf("%+v: after a refund: got %+v, want a new decision", a, res)
		}
	}
}

// A denied request has no marker, so it is decided again.
func TestReplayOfADenial(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l := weirtest.New(t, weirtest.NewStore(c), weirtest.PerSecond)
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Cost: 5})
	r := weir.Request{Key: weir.KeyOf("k"), Cost: 2, ID: "x"}
	for i, want := range []weir.Result{{}, {Allowed: true, Granted: 2}, {Allowed: true, Granted: 2, Replayed: true}} {
		if res := weirtest.Decide(t, l, r); res.Allowed != want.Allowed || res.Granted != want.Granted || res.Replayed != want.Replayed {
			t.Errorf("try %d: got %+v, want %+v", i, res, want)
		}
		c.Advance(2 * time.Second * time.Duration(1-min(i, 1)))
	}
	c.Advance(5 * time.Second) // all tokens have been refilled
	if res := weirtest.Decide(t, l, r); res.Replayed || !res.Allowed {
		t.Errorf("after all tokens were refilled: got %+v, want a new decision", res)
	}
}

// The markers of several rules expire at different times. While one is left, the decision
// is repeated, even if the only one is of a rule with a Cost.
func TestReplayOfSeveralRules(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	l := weirtest.NewPolicy(t, st, weirtest.Rules(
		weir.Rule{Name: "fast", Algorithm: weirtest.PerSecond},
		weir.Rule{Name: "slow", Algorithm: weirtest.Window(10, time.Hour), Cost: 4}))
	r := weir.Request{Key: weir.KeyOf("k"), Op: weir.TakeUpTo, Cost: 9, ID: "x"}
	each := make([]weir.Result, 2)
	if res := weirtest.Decide(t, l, r, each...); res.Granted != 5 {
		t.Fatalf("got %+v, want 5 tokens", res)
	}
	c.Advance(time.Minute)
	if res := weirtest.Decide(t, l, r, each...); !res.Replayed || res.Granted != 5 || each[0].Granted != 5 || each[1].Granted != 4 ||
		each[0].Remaining != 5 || each[1].Remaining != 6 {
		t.Errorf("got %+v, and of the rules %+v, want 5 and 4 tokens", res, each)
	}
	c.Advance(time.Hour)
	if res := weirtest.Decide(t, l, r); res.Replayed || res.Granted != 5 {
		t.Errorf("after an hour: got %+v, want a new decision", res)
	}
}

// A repeated reservation still waits for the same time.
func TestReplayOfAReservation(t *testing.T) {
	t.Parallel()
	for _, a := range refundable[:4] {
		c := weirtest.NewClock()
		l := weirtest.New(t, weirtest.NewStore(c), a)
		key := weir.KeyOf("k")
		r := weir.Request{Key: key, Cost: 3, MaxWait: weir.Never, ID: "x"}
		if _, queues := a.(algorithm.LeakyBucket); queues {
			r.Cost = 2
		}
		weirtest.Decide(t, l, weir.Request{Key: key, Cost: r.Cost})
		first := weirtest.Decide(t, l, r)
		if first.Delay < time.Second {
			t.Fatalf("%+v: got %+v, want a reservation", a, first)
		}
		weirtest.Decide(t, l, weir.Request{Key: key, MaxWait: weir.Never})
		for _, pause := range []time.Duration{0, time.Second, first.Delay - time.Second - time.Microsecond, time.Microsecond, time.Second} {
			c.Advance(pause)
			want := max(first.Delay-c.Now().Sub(weirtest.Epoch), 0)
			if res := weirtest.Decide(t, l, r); !res.Replayed || res.Delay != want {
				t.Errorf("%+v: after %v: got %+v, want a Delay of %v", a, c.Now().Sub(weirtest.Epoch), res, want)
			}
		}
	}
}

// If the client of the store sends a script again because the reply was lost, the
// decision is charged once, and the second try has the result.
func TestReplayOfALostReply(t *testing.T) {
	t.Parallel()
	lossy := &weirtest.Hooked{Store: weirtest.NewStore(weirtest.NewClock())}
	l := weirtest.New(t, lossy, weirtest.Window(10, time.Hour))
	lossy.Lose = store.ErrUnavailable
	r := weir.Request{Key: weir.KeyOf("k"), Cost: 3, ID: "x"}
	if _, err := l.Decide(t.Context(), r, nil); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	lossy.Lose = nil
	if res := weirtest.Decide(t, l, r); !res.Replayed || res.Granted != 3 || res.Remaining != 7 {
		t.Errorf("got %+v, want 7 of 10 left", res)
	}
}

// A repeated reservation with a shorter MaxWait is denied until its turn is within
// MaxWait: it does not go ahead of its turn. The denial consumes nothing, and is not
// remembered.
func TestReplayBeforeTheTurn(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 10},
		algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 1},
		algorithm.TokenBucket{Capacity: 1, Refill: algorithm.PerMinute(1)},
	} {
		c := weirtest.NewClock()
		l := weirtest.Wrap(t, weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(
			weir.Rule{Name: "turns", Algorithm: a},
			weir.Rule{Name: "many", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(100), Burst: 100}},
		)), denycache.New(&denycache.Options{Now: c.Now}).Wrap)
		r := weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never, ID: "x"}
		for range 5 {
			weirtest.Decide(t, l, weir.Request{Key: r.Key, MaxWait: weir.Never})
		}
		if first := weirtest.Decide(t, l, r); first.Delay != 5*time.Minute {
			t.Fatalf("%+v: got %+v, want a turn in 5m", a, first)
		}
		for _, left := range []time.Duration{5 * time.Minute, 90 * time.Second, time.Microsecond, 0} {
			c.Advance(weirtest.Epoch.Add(5*time.Minute - left).Sub(c.Now()))
			for _, wait := range []time.Duration{0, time.Second, 2 * time.Minute} {
				r.MaxWait = wait
				each := make([]weir.Result, 2)
				res := weirtest.Decide(t, l, r, each...)
				switch {
				case !res.Replayed:
					t.Errorf("%+v, %v before its turn, MaxWait %v: got %+v, want it replayed", a, left, wait, res)
				case left <= wait:
					if !res.Allowed || res.Delay != left || res.Granted != 1 {
						t.Errorf("%+v, %v before its turn, MaxWait %v: got %+v, want it allowed, with that Delay", a, left, wait, res)
					}
				case res.Allowed || res.Granted != 0 || res.RetryAfter != left-wait || res.Delay != weir.Never || res.Rule != "turns":
					t.Errorf("%+v, %v before its turn, MaxWait %v: got %+v, want it denied by turns until its turn", a, left, wait, res)
				}
			}
		}
	}
}

// After Settles, a repeat has no Delay, even if the tokens are as many as before.
func TestReplayAfterSettles(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.LeakyBucket{Rate: algorithm.PerMinute(1), Queue: 20},
		algorithm.GCRA{Rate: algorithm.PerMinute(1), Burst: 5},
		algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerMinute(1)},
	} {
		for _, settles := range [][]int64{{1, 4}, {4, 3}, {9, 3}, {0, 3}} {
			l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), a)
			job := weir.Request{Key: weir.KeyOf("k"), Cost: 3, MaxWait: weir.Never, ID: "x"}
			weirtest.Decide(t, l, job)
			for _, n := range settles {
				if ok, err := l.Settle(t.Context(), job, n); !ok.Found || err != nil {
					t.Fatal(ok, err)
				}
				if n == 0 { // the tokens go to somebody else
					weirtest.Decide(t, l, weir.Request{Key: job.Key, Cost: 5, MaxWait: weir.Never})
				}
				for _, wait := range []time.Duration{0, weir.Never} {
					job.MaxWait = wait
					if res := weirtest.Decide(t, l, job); !res.Replayed || !res.Allowed || res.Delay != 0 || res.Granted != n {
						t.Errorf("%+v: settled at %v, now %d: got %+v, want it replayed without a Delay", a, settles, n, res)
					}
				}
			}
		}
	}
}

// The marker of a rule can end before another rule's. If a Settle comes in between, and
// the clock then steps back, the same Settle changes nothing.
func TestSettleAndClockBack(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{false, true} {
		c := weirtest.NewClock()
		list := []weir.Rule{
			{Name: "window", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
			{Name: "bucket", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 10}},
		}
		if first {
			slices.Reverse(list)
		}
		l := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(list...))
		job := weir.Request{Key: weir.KeyOf("k"), Cost: 4, ID: "x"}
		weirtest.Decide(t, l, job)
		c.Advance(4 * time.Second)
		for range 2 {
			if ok, err := l.Settle(t.Context(), job, 1); !ok.Found || err != nil {
				t.Fatal(ok, err)
			}
			c.Advance(-time.Second)
		}
		if res := weirtest.Left(t, weirtest.Only(t, l, "window"), "k"); res.Remaining != 9 {
			t.Errorf("bucket first %v: got %+v, want 9 remaining in the window", first, res)
		}
	}
}

// A repeated Force says how much a rule gave that had less left than its Cost.
func TestReplayOfAForce(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(
		weir.Rule{Name: "window", Algorithm: weirtest.Window(100, time.Hour)},
		weir.Rule{Name: "bucket", Algorithm: algorithm.GCRA{Rate: algorithm.Every(20 * year), Burst: 6}, Cost: 3}))
	for i, want := range []int64{3, 3, 1} {
		r := weir.Request{Key: weir.KeyOf("k"), Op: weir.Force, Cost: 2, ID: weirtest.Number(i)}
		for range 2 {
			each := make([]weir.Result, 2)
			if res := weirtest.Decide(t, l, r, each...); res.Granted != 2 || each[1].Granted != want {
				t.Errorf("Force %d: got %+v, and the bucket gave %d, want %d", i, res, each[1].Granted, want)
			}
		}
	}
}

// If every rule has a Cost, the Cost of a request is only in the markers. A server cannot
// keep an integer above 2^53-1 in them.
func TestReplayOfAHugeCost(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "calls", Cost: 1, Algorithm: weirtest.Window(10, time.Hour)}))
	for _, op := range []weir.Op{weir.Consume, weir.Force} {
		r := weir.Request{Key: weir.KeyOf("k"), Op: op, Cost: 1 << 60, ID: op.String()}
		weirtest.Decide(t, l, r)
		if res := weirtest.Decide(t, l, r); !res.Replayed {
			t.Errorf("%v: got %+v, want it replayed", op, res)
		}
	}
	for _, line := range dump(t, st) {
		if strings.Contains(line, strconv.FormatInt(algorithm.MaxTokens+1, 10)) {
			t.Errorf("%s: an integer is above 2^53-1", line)
		}
	}
}

// A repeated Force answers what it consumed from a rule with a Cost, which can be a part.
func TestReplayOfAPartOfACost(t *testing.T) {
	t.Parallel()
	const debt = 5
	most := int64(algorithm.MaxLogTokens - debt)
	for _, a := range []algorithm.Algorithm{
		algorithm.SlidingLog{Limit: most, Window: time.Hour},
		weirtest.Window(algorithm.MaxTokens-debt, time.Hour),
	} {
		cost := most
		if w, ok := a.(algorithm.FixedWindow); ok {
			cost = w.Limit
		}
		l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(weir.Rule{Name: "own", Algorithm: a, Cost: cost}))
		for _, want := range []int64{cost, debt} {
			r := weir.Request{Key: weir.KeyOf("u"), Op: weir.Force, ID: strconv.FormatInt(want, 10)}
			first := weirtest.Decide(t, l, r)
			if again := weirtest.Decide(t, l, r); first.Granted != want || again.Granted != want || !again.Replayed {
				t.Errorf("%T: got %+v and then %+v, want %d tokens", a, first, again, want)
			}
		}
	}
}
