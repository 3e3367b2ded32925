package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

func explained(t *testing.T, lim *weir.Limiter, key ...string) *explain.Document {
	t.Helper()
	doc, err := explain.Explain(t.Context(), lim, key...)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// A rule has its limit in words, and the name of its algorithm.
func TestWords(t *testing.T) {
	t.Parallel()
	spans := []algorithm.Span{{Limit: 3, Window: 2 * time.Second}, {Limit: 9, Window: 10 * time.Second}}
	for want, a := range map[string]algorithm.Algorithm{
		"gcra: 10 tokens per second, burst 20":                                                  algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20},
		"tokenbucket: a bucket of 4 tokens, refilled at 2 tokens per minute, at once":           algorithm.TokenBucket{Capacity: 4, Refill: algorithm.PerMinute(2), AtOnce: true},
		"leakybucket: a queue that 10 requests per second leave, and in which up to 9 wait":     algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 9},
		"fixedwindow: 1 token in each window of 1 h, aligned to the clock":                      algorithm.FixedWindow{Limit: 1, Window: time.Hour, Aligned: true},
		"slidinglog: 3 tokens in any 1 min":                                                     algorithm.SlidingLog{Limit: 3, Window: time.Minute},
		"slidingcounter: 3 tokens in any 1 min, estimated":                                      algorithm.SlidingCounter{Limit: 3, Window: time.Minute},
		"slidingbuckets: 3 tokens in any 2 s and 9 tokens in any 10 s":                          algorithm.SlidingBuckets{Width: time.Second, Spans: spans},
		"metadatawindow: 3 tokens in each window of 1 min":                                      algorithm.MetadataWindow{Limit: 3, Window: time.Minute},
		"concurrency: 2 leases at once, each for up to 30 s":                                    algorithm.Concurrency{Limit: 2, Lease: 30 * time.Second},
		"pause: no limit, unless the key is paused":                                             algorithm.Pause{},
		"calendar: 10 tokens in each week, which starts on Monday at 06:00:00 in Europe/Berlin": algorithm.Calendar{Limit: 10, Every: algorithm.Week, Day: 1, At: 6 * time.Hour, Zone: "Europe/Berlin"},
		"calendar: 1 token in each month, and up to 1 more left over from the previous month":   algorithm.Calendar{Limit: 1, Every: algorithm.Month, Carry: 1},
	} {
		r := explained(t, weirtest.New(t, memory.New(nil), a), "ann").Rules[0]
		if got := r.Algorithm + ": " + r.Words; got != want || r.Name != r.Algorithm {
			t.Errorf("got %q of %q, want %q", got, r.Name, want)
		}
	}
}

// The sentences of each type of rule, untouched, in use, and at the limit or beyond.
func TestStates(t *testing.T) {
	t.Parallel()
	type step struct {
		request weir.Request
		pass    time.Duration // after it
	}
	cost := func(n int64) step { return step{request: weir.Request{Cost: n}} }
	force := func(n int64) step { return step{request: weir.Request{Op: weir.Force, Cost: n}} }
	for _, c := range []struct {
		a     algorithm.Algorithm
		steps []step
		want  []string // before each step, and at the end
		used  int64
	}{
		{
			algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20},
			[]step{cost(17), cost(3), force(30)},
			[]string{
				"all of 20 tokens left", "3 of 20 tokens left; full again in 1.7 s",
				"0 of 20 tokens left; full again in 2 s; the next request is allowed in 100 ms",
				"0 of 20 tokens left; full again in 5 s; the next request is allowed in 3.1 s",
			}, 20,
		},
		{
			algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 9},
			[]step{cost(1), {request: weir.Request{MaxWait: time.Second}}},
			[]string{
				"the queue of 10 turns is empty",
				"1 of 10 turns taken; the queue is empty in 100 ms; the next request is allowed in 100 ms without waiting",
				"2 of 10 turns taken; the queue is empty in 200 ms; the next request is allowed in 200 ms without waiting",
			}, 2,
		},
		{
			algorithm.FixedWindow{Limit: 1, Window: time.Hour, Aligned: true},
			[]step{{weir.Request{}, 59 * time.Minute}},
			[]string{"all of 1 token left", "0 of 1 token left; full again in 1 min; the next request is allowed in 1 min"}, 1,
		},
		{
			algorithm.Concurrency{Limit: 2, Lease: 30 * time.Second},
			[]step{{weir.Request{ID: "a"}, 10 * time.Second}, {request: weir.Request{ID: "b"}}},
			[]string{
				"none of 2 leases held", "1 of 2 leases held; the last one expires in 20 s unless it is renewed",
				"2 of 2 leases held; the next request is allowed when one is released, or in 20 s when one expires; the last one expires in 30 s unless it is renewed",
			}, 2,
		},
		{
			algorithm.Pause{},
			[]step{{weir.Request{Op: weir.Pause, ID: "a", For: time.Minute}, time.Second}},
			[]string{"not paused", "paused: the next request is allowed in 59 s"}, algorithm.MaxTokens,
		},
	} {
		t.Run(fmt.Sprintf("%T", c.a), func(t *testing.T) {
			t.Parallel()
			clock := weirtest.NewClock()
			lim := weirtest.New(t, weirtest.NewStore(clock), c.a)
			for i, want := range c.want {
				doc := explained(t, lim, "ann")
				r := doc.Rules[0]
				if r.State != want {
					t.Errorf("after %d steps: got  %q\nwant %q", i, r.State, want)
				}
				if !strings.HasSuffix(doc.Why, want) || doc.Allowed != strings.HasPrefix(doc.Why, "allowed: ") || doc.Allowed != r.Allowed || (doc.DeniedBy == "") != doc.Allowed {
					t.Errorf("got %q, allowed %v, denied by %q", doc.Why, doc.Allowed, doc.DeniedBy)
				}
				if i < len(c.steps) {
					request := c.steps[i].request
					request.Key = weir.KeyOf("ann")
					weirtest.Allow(t, lim, request)
					clock.Advance(c.steps[i].pass)
				} else if r.Used != c.used || r.Share() != float64(c.used)/float64(r.Limit) {
					t.Errorf("got %d used, a share of %v, want %d of %d", r.Used, r.Share(), c.used, r.Limit)
				}
			}
		})
	}
}

// A denied request is explained by the rule with the longest RetryAfter, and so is what a
// shadow rule would have done. Secret segments are nowhere in clear.
func TestExplainSeveralRules(t *testing.T) {
	t.Parallel()
	second := func(n int64) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: n, Window: time.Duration(n) * time.Second}
	}
	lim := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weir.Policy{
		Segments: []string{"tenant", "token"}, Secret: []string{"token"},
		Rules: []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: second(3)},
			{Name: "trial", By: []string{"token"}, Algorithm: second(1), Shadow: true},
			{Name: "token", Algorithm: second(2)},
			{Name: "five", Algorithm: second(100), Cost: 50},
		},
	})
	for range 2 {
		weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf("acme", "hunter2")})
	}
	doc := explained(t, lim, "acme", "hunter2")
	want := `denied by rule "five": 0 of 100 tokens left; full again in 1 min 40 s; the next request, of 50 tokens, is allowed in 1 min 40 s` +
		`; the shadow rule "trial" would deny it: 0 of 1 token left; full again in 1 s; the next request is allowed in 1 s`
	if doc.Why != want || doc.DeniedBy != "five" || doc.RetryAfter != explain.Duration(100*time.Second) {
		t.Errorf("got  %q\nwant %q, and RetryAfter %v of %q", doc.Why, want, doc.RetryAfter, doc.DeniedBy)
	}
	for i, name := range []string{"tenant", "token", "five", "trial"} {
		r := doc.Rules[i]
		if r.Name != name || r.Shadow != (name == "trial") || r.Allowed != (name == "tenant") || len(r.Keys) != 1 || r.Slot != store.Slot(r.Keys[0]) || !r.Shadow && r.Slot != doc.Slot {
			t.Errorf("rule %d: got %+v, want %q", i, r, name)
		}
	}
	text, err := json.Marshal(doc)
	if err != nil || strings.Contains(string(text), "hunter2") {
		t.Errorf("%v, or the secret is in clear: %s", err, text)
	}
	if !doc.Key[1].Hashed || !strings.Contains(doc.Rules[1].Keys[0], doc.Key[1].Value) || doc.Key[0] != (explain.Segment{Name: "tenant", Value: "acme"}) {
		t.Errorf("got the key %+v, of %q", doc.Key, doc.Rules[1].Keys)
	}
	var back explain.Document
	if err := json.Unmarshal(text, &back); err != nil || back.RetryAfter != doc.RetryAfter || back.Rules[0].State != doc.Rules[0].State {
		t.Errorf("the document in JSON reads as %+v, %v", back, err)
	}
	k, ok := lim.ParseStoreKey(doc.Rules[1].Keys[0])
	if !ok {
		t.Fatal("the key is not parsed")
	}
	if again, err := explain.ExplainKey(t.Context(), lim, k.Key); err != nil || fmt.Sprint(again) != fmt.Sprint(doc) {
		t.Errorf("by the key of the store: got %+v, %v", again, err)
	}
}

// A rule that counts a unit is asked about 1 of it, and its amounts have the unit's name.
func TestExplainUnits(t *testing.T) {
	t.Parallel()
	cents := algorithm.FixedWindow{Limit: 10, Window: time.Hour}
	lim := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weir.Policy{
		Units: []string{"input", "cents"},
		Rules: []weir.Rule{{Name: "calls", Algorithm: cents, Cost: 2}, {Name: "month", Algorithm: cents, Unit: "cents"}, {Name: "trial", Algorithm: cents, Unit: "input", Shadow: true}},
	})
	weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf("ann"), Costs: weir.CostsOf(map[string]int64{"input": 10, "cents": 9})})
	doc := explained(t, lim, "ann")
	const month, trial = "1 of 10 cents left; full again in 1 h", "0 of 10 input left; full again in 1 h; the next request is allowed in 1 h"
	want := `allowed; the rule with the fewest tokens is "month": ` + month + `; the shadow rule "trial" would deny it: ` + trial
	if r := doc.Rules[1]; doc.Why != want || r.Unit != "cents" || r.Cost != 1 || r.Words != "10 tokens in each window of 1 h, counted in cents" || doc.Rules[0].Unit != "" {
		t.Errorf("got %q and %+v, want %q", doc.Why, r, want)
	}
	limited := weirtest.With(t, lim, weir.Rule{Name: "month", Algorithm: weirtest.Window(9, time.Hour)})
	for want, opts := range map[string]*explain.ListOptions{"trial " + trial: nil, "month 0 of 9 cents left; full again in 1 h; the next request is allowed in 1 h": {Rule: "month", Limiter: func(*explain.Caller) *weir.Limiter { return limited }}} {
		top, err := explain.Top(t.Context(), lim, 9, opts)
		if err != nil || len(top.Callers) == 0 || top.Callers[0].Rule+" "+top.Callers[0].State != want {
			t.Errorf("got %+v, %v, want %q", top, err, want)
		}
	}
}

// A Duration is a number of seconds, exact to the microsecond.
func TestDurationJSON(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", time.Second: "1", 250 * time.Millisecond: "0.25", time.Microsecond: "0.000001", 1700 * time.Millisecond: "1.7",
		weir.Never: "null", 142*366*24*time.Hour + time.Microsecond: "4490380800.000001",
	} {
		got, err := json.Marshal(explain.Duration(d))
		var back explain.Duration
		if err != nil || string(got) != want || json.Unmarshal(got, &back) != nil || time.Duration(back) != d {
			t.Errorf("%v: got %s, %v, and back %v, want %s", d, got, err, back, want)
		}
	}
	var d explain.Duration
	if err := json.Unmarshal([]byte(`"1s"`), &d); err == nil {
		t.Error("a text is a duration")
	}
}

func TestExplainErrors(t *testing.T) {
	t.Parallel()
	lim := weirtest.New(t, memory.New(nil), weirtest.PerSecond)
	if doc, err := explain.Explain(t.Context(), nil, "ann"); err == nil || doc != nil {
		t.Errorf("nil: got %v, %v", doc, err)
	}
	if doc, err := explain.Explain(t.Context(), lim, "ann", "bob"); !errors.Is(err, weir.ErrInvalidKey) || doc != nil {
		t.Errorf("two segments: got %v, %v", doc, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if doc, err := explain.Explain(ctx, lim, "ann"); !errors.Is(err, context.Canceled) || doc != nil {
		t.Errorf("context done: got %v, %v", doc, err)
	}
}
