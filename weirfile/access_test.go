package weirfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

const doors = `policies:
  api:
    settles: true
    units: [input]
    rules:
      one: {algorithm: fixed window, limit: 1, window: 1h}
      input: {algorithm: fixed window, limit: 5, window: 1h, unit: input}
      seats: {algorithm: concurrency, limit: 1, lease: 1m, cost: 1}
      pause: {algorithm: pause}
    plans:
      free: {unlimited: true}
      gone: {blocked: true}
`

// TestAccess makes each request under a plan, after those before it in its trace. want says
// whether it is allowed or, for one that ends a decision, whether that was found.
func TestAccess(t *testing.T) {
	t.Parallel()
	amounts := weir.CostsOf(map[string]int64{"input": 9})
	type step struct {
		plan string
		r    weir.Request
		want bool
	}
	ask := func(op weir.Op, id string, cost int64) weir.Request {
		return weir.Request{Op: op, ID: id, Cost: cost, Costs: amounts}
	}
	few := func(id string) weir.Request {
		return weir.Request{ID: id, Costs: weir.CostsOf(map[string]int64{"input": 5})}
	}
	end := func(op weir.Op, id string, actual weir.Actual) weir.Request {
		return weir.Request{Op: op, ID: id, Actual: actual}
	}
	for name, trace := range map[string][]step{
		"an unlimited caller is above every limit, and nothing is counted": {
			{"free", ask(weir.Consume, "a", 7), true}, {"free", ask(weir.Consume, "b", 7), true}, {"free", ask(weir.Peek, "", 7), true},
			{"free", ask(weir.Force, "c", 7), true}, {"", few("d"), true}, {"", few("e"), false},
		},
		"what an unlimited caller ends is found": {
			{"free", ask(weir.Consume, "a", 7), true}, {"free", end(weir.Renew, "a", weir.Actual{}), true}, {"free", end(weir.Settle, "a", weir.ActualCost(3)), true},
			{"free", end(weir.Refund, "a", weir.Actual{}), true}, {"free", end(weir.Release, "a", weir.Actual{}), true}, {"free", end(weir.Finish, "a", weir.ActualCost(3)), true},
			{"", few("b"), true},
		},
		"a decision from before is ended where it was made": {
			{"", few("a"), true}, {"free", end(weir.Finish, "a", weir.ActualRefund()), true}, {"", few("b"), true},
			{"gone", end(weir.Renew, "b", weir.Actual{}), true}, {"gone", end(weir.Finish, "b", weir.ActualRefund()), true}, {"", few("c"), true},
		},
		"a blocked caller gets nothing, and no tokens are lost": {
			{"gone", few("a"), false}, {"gone", ask(weir.Peek, "", 0), false}, {"gone", end(weir.Release, "a", weir.Actual{}), false}, {"", few("b"), true},
		},
		"a pause is the store's": {
			{"free", weir.Request{Op: weir.Pause, ID: "p", For: time.Hour}, true}, {"free", few("a"), true}, {"", few("b"), false},
			{"free", weir.Request{Op: weir.Resume, ID: "p"}, true}, {"free", weir.Request{Op: weir.Resume, ID: "p"}, false}, {"", few("c"), true},
		},
	} {
		l := limitsOfText(t, doors, nil)
		for i, s := range trace {
			s.r.Key = weir.KeyOf("k")
			res := weirtest.Decide(t, limiter(t, l, "api", s.plan, "k"), s.r)
			if found := res.Allowed || s.r.Op == weir.Finish && res.Replayed; found != s.want {
				t.Errorf("%s: step %d: got %+v", name, i, res)
			}
			if s.plan == "gone" && !s.want && s.r.Op != weir.Release && (res.RetryAfter != weir.Never || res.Delay != weir.Never || res.Rule != "blocked") {
				t.Errorf("%s: step %d: got %+v", name, i, res)
			}
			if cost, ok := s.r.Actual.Cost(); s.plan == "free" && ok && res.Granted != cost {
				t.Errorf("%s: step %d: got %+v", name, i, res)
			}
			if s.plan == "free" && s.r.Cost > 0 && (s.r.Op == weir.Peek) != (res.Granted != s.r.Cost) {
				t.Errorf("%s: step %d: got %+v", name, i, res)
			}
		}
	}
}

// A blocked caller stays blocked, and an unlimited one unlimited, whatever stands around the
// limiter. Misuse is an error, and an ended context too.
func TestAccessAroundAnOutage(t *testing.T) {
	t.Parallel()
	faulty := weirtest.NewFaulty()
	opts := &Options{Wrap: func(string) []weir.Wrapper {
		return []weir.Wrapper{denycache.New(nil).Wrap, outage.New(&outage.Options{Fallback: outage.Open}).Wrap}
	}}
	l := limitsOver(t, parse(t, "policies: {api: {rules: {r: {algorithm: token bucket, capacity: 1, refill: 1 per hour}}, plans: {free: {unlimited: true}, gone: {blocked: true}}}}\n", opts), faulty)
	free, gone := limiter(t, l, "api", "free", "k"), limiter(t, l, "api", "gone", "k")
	for _, state := range []bool{false, true} {
		if state {
			faulty.Set(weirtest.Down)
		}
		for range 3 {
			if res := weirtest.Decide(t, free, weir.Request{Key: weir.KeyOf("k")}); !res.Allowed || res.Degraded != nil {
				t.Errorf("down: %t: got %+v", state, res)
			}
			if res := weirtest.Decide(t, gone, weir.Request{Key: weir.KeyOf("k")}); res.Allowed || res.Degraded != nil {
				t.Errorf("down: %t: got %+v", state, res)
			}
		}
		if _, err := gone.Wait(t.Context(), "k"); !errors.Is(err, weir.ErrDenied) {
			t.Errorf("down: %t: Wait returned %v", state, err)
		}
	}
	for _, lim := range []*weir.Limiter{free, gone} {
		if _, err := lim.Allow(t.Context(), "k", "k"); !errors.Is(err, weir.ErrInvalidKey) {
			t.Errorf("got %v", err)
		}
		if _, err := lim.Settle(t.Context(), weir.Request{Key: weir.KeyOf("k"), ID: "x"}, 1); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		each := []weir.Result{{Rule: "old"}}
		if _, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf("k")}, each); err != nil || each[0].Rule != "" {
			t.Errorf("got %+v, %v", each, err)
		}
	}
}

// Diff says that callers become limited, and that nothing is lost.
func TestDiffOfAccess(t *testing.T) {
	t.Parallel()
	file := func(more string) *File {
		return parse(t, "policies: {api: {rules: {r: {algorithm: fixed window, limit: 1, window: 1h}}, "+more+"}}\n", nil)
	}
	for _, c := range []struct{ from, to, want string }{
		{"plans: {p: {}}", "plans: {p: {blocked: true}}", `policy "api", plan "p": kept: limited by the rules becomes blocked: true: the state stays`},
		{"plans: {p: {blocked: true}}", "plans: {p: {r: {limit: 2}}}", `policy "api", plan "p": kept: blocked: true becomes limited by the rules: the state stays`},
		{"overrides: [{match: {key: a}, blocked: true}]", "overrides: [{match: {key: a}, unlimited: true}]", `policy "api", override of ["a"]: kept: blocked: true becomes unlimited: true: the state stays`},
		{"overrides: [{match: {key: a}, blocked: true}]", "overrides: []", `policy "api", override of ["a"]: kept: blocked: true becomes limited by the rules: the state stays`},
		{"plans: {p: {}}", "plans: {p: {}}, overrides: [{match: {key: a}, plan: p}]", `policy "api", override of ["a"]: added: callers keep the state that they have under other limits`},
	} {
		changes := Diff(file(c.from), file(c.to))
		if !strings.Contains(fmt.Sprint(changes), c.want) {
			t.Errorf("%s to %s: got %v, want %s", c.from, c.to, changes, c.want)
		}
	}
	two := func(more string) *File {
		return parse(t, "policies: {api: {segments: [tenant, user], rules: {r: {algorithm: fixed window, limit: 1, window: 1h}}, plans: {p: {r: {limit: 2}}}, overrides: [{match: {tenant: a}, blocked: true}"+more+"]}}\n", nil)
	}
	allowed, blocked := two(", {match: {tenant: a, user: u}, plan: p}"), two(", {match: {tenant: a, user: u}, rules: {r: {limit: 2}}}")
	const change = `policy "api", override of ["a" "u"]: kept: `
	for _, c := range []struct {
		from, to *File
		want     string
	}{
		{allowed, blocked, change + "limited by the rules becomes blocked: true"},
		{blocked, allowed, change + "blocked: true becomes limited by the rules"},
		{two(""), allowed, change + "blocked: true becomes limited by the rules"},
		{allowed, two(""), change + "limited by the rules becomes blocked: true"},
	} {
		if changes := fmt.Sprint(Diff(c.from, c.to)); !strings.Contains(changes, c.want) {
			t.Errorf("got %s, want %s", changes, c.want)
		}
	}
	if changes := Diff(two(""), blocked); strings.Contains(fmt.Sprint(changes), "becomes blocked") {
		t.Errorf("got %v, want no change of the access", changes)
	}
	f := parse(t, tree, nil)
	if got := f.policies[0].shown(f.policies[0].Overrides[0].Key, f.policies[0]); got[0] != "acme" || got[1] != "(any)" {
		t.Errorf("got %q", got)
	}
}
