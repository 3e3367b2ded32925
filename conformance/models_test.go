package conformance

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// modelled returns a check that makes n random histories of steps requests, and checks that
// a plain model gives each answer too.
func modelled(s *algorithms.Subject, n, steps int) suite.Check {
	return suite.Of("Modelled", "an algorithm answers as a plain model of it", func(t *algorithms.T) {
		r := t.Rand()
		for h := range n {
			a, c := t.Draw(r), decisions.NewClock()
			l, m, key := t.Limiter(c, decisions.One(a)), model.New(a), "model"+strconv.Itoa(h)
			limit := t.LimitOf(a)
			for s := range steps {
				c.Advance(model.Pause(r, t.Unit(a)))
				req := t.AnyRequest(r, a, key)
				if req.Op == weir.Consume && r.IntN(12) == 0 {
					req.Cost = model.Pick(r, limit.Capacity+1, 1<<40, 1<<63-1)
				}
				sameAsModel(t, a, m, c, l, req, s)
			}
		}
	}, s.On)
}

// atBounds returns a check that makes requests for large parts of the largest limits, at two
// times, and checks that a plain model gives each answer too.
func atBounds(s *algorithms.Subject) suite.Check {
	return suite.Of("AtBounds", "an algorithm at its bounds answers as a plain model of it", func(t *algorithms.T) {
		for i, a := range s.Huge {
			t.Leases = t.KindOf(a).Leases
			for j, at := range []int64{decisions.NewClock().Micros, 1<<52 - 1} {
				c := &decisions.Clock{Micros: at}
				l, m, key := t.Limiter(c, decisions.One(a)), model.New(a), "bounds"+strconv.Itoa(i)+"."+strconv.Itoa(j)
				limit := t.LimitOf(a).Capacity
				list := []weir.Request{{}, {Cost: limit / 3}, {Cost: 1}, {Cost: limit / 2}, {Cost: limit}}
				if longest := t.LongestWait(a); longest > 0 {
					for _, cost := range []int64{limit, limit/3 + 1, 1, limit} {
						list = append(list, weir.Request{Cost: cost, MaxWait: longest})
					}
				}
				for s, req := range list {
					if c.Micros < 1<<52-1 {
						c.Advance(7 * time.Microsecond)
					}
					if req.Key, req.Cost = weir.KeyOf(key), t.Fitting(a, max(req.Cost, 1)); t.Leases {
						req.ID = t.Lease()
					}
					sameAsModel(t, a, m, c, l, req, s)
				}
			}
		}
	}, s.On)
}

// sameAsModel makes a request, and checks that the model gives the same answer.
func sameAsModel(t *algorithms.T, a algorithm.Algorithm, m model.Model, c *decisions.Clock, l *weir.Limiter, req weir.Request, step int) {
	got := t.Do(l, req)
	if req.Op == weir.Release {
		got = weir.Result{Allowed: got.Allowed}
	}
	if want := predict(m, c.Micros, req); got != want {
		t.Fatalf("%+v, step %d, %+v:\ngot  %+v\nwant %+v, as a plain model answers", a, step, req, got, want)
	}
}

// predict returns what a limiter with one rule must answer to r at now, and to a Release only
// whether the lease was held.
func predict(m model.Model, now int64, r weir.Request) weir.Result {
	cost, rules := max(r.Cost, 1), []model.Rule{{Model: m}}
	if l, ok := m.(*model.Leases); ok {
		if r.Op == weir.Release {
			return weir.Result{Allowed: l.Release(now, r.ID)}
		}
		l.Name, l.Renew = r.ID, r.Op == weir.Renew
	}
	if r.Op == weir.TakeUpTo {
		cost = max(model.UpTo(rules, now, 0, cost), 1)
	}
	_, each := model.Decide(rules, now, r.MaxWait.Microseconds(), cost, r.Op != weir.Peek)
	if r.Op == weir.Renew {
		each[0].Granted = 0
	}
	res := result("one", each[0])
	if _, leases := m.(*model.Leases); leases {
		res.Type = weir.LeaseRule
	}
	return res
}

// result returns a as the result of a rule.
func result(name string, a model.Answer) weir.Result {
	return weir.Result{
		Rule: name, Allowed: a.Allowed, Granted: a.Granted, Limit: a.Limit, Remaining: a.Remaining,
		Window: a.Window, RetryAfter: a.RetryAfter, ResetAfter: a.ResetAfter, Delay: a.Delay,
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	for _, s := range algorithms.BuiltIn {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			histories := 500
			if testing.Short() {
				histories = 50
			}
			for _, c := range []suite.Check{modelled(s, histories, 30), atBounds(s)} {
				if r := suite.Run(t, suite.Host{New: func(*testing.T) store.Store { return memory.New(nil) }}, c); len(r.Failures) > 0 {
					t.Errorf("broken: %s\nseed %d: %s", c.Text, r.Seed, strings.Join(r.Failures, "\n"))
				}
			}
			wrong := bad(s.New(rand.New(rand.NewPCG(1, 1))), miscounts)
			h := wrong.host()
			h.Seed = 0
			if r := suite.Run(t, h, modelled(s, 1000, 30)); len(r.Failures) == 0 {
				t.Error("the model does not find that a cost is miscounted")
			}
		})
	}
}

// TestModelsTogether compares limiters with several rules, of which some have a Cost, with the
// models of these rules.
func TestModelsTogether(t *testing.T) {
	t.Parallel()
	histories := uint64(500)
	if testing.Short() {
		histories = 50
	}
	for seed := range histories {
		r, c := rand.New(rand.NewPCG(seed, 3)), decisions.NewClock()
		var rules []weir.Rule
		var models []model.Rule
		makers, waits, longest := model.Usual.AllRefundable(), true, int64(algorithm.MaxSpan/time.Microsecond) // without leases
		if r.IntN(2) == 0 {
			makers = []model.Maker{model.Usual.GCRA, model.Usual.TokenBucket, model.Usual.LeakyBucket}
		}
		for i := range 2 + r.IntN(2) {
			a := model.Pick(r, makers...)(r)
			rule := weir.Rule{Name: strconv.Itoa(i), Algorithm: a}
			if i > 0 && r.IntN(3) == 0 {
				rule.Cost = 1
			}
			rules, models = append(rules, rule), append(models, model.Rule{Model: model.New(a), Cost: rule.Cost})
			limit, err := a.NewLimit()
			if err != nil {
				t.Fatal(err)
			}
			waits, longest = waits && model.Rated(a), min(longest, limit.MaxWait)
		}
		lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "models", Segments: []string{"user"}, Rules: rules}, &weir.Options{Clock: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		for step := range 40 {
			unit := model.Unit(rules[r.IntN(len(rules))].Algorithm)
			c.Advance(model.Pause(r, unit))
			req := weir.Request{Key: weir.KeyOf("ann"), Op: model.Pick(r, weir.Consume, weir.Consume, weir.TakeUpTo, weir.Peek), Cost: 1 + r.Int64N(6)}
			cost := req.Cost
			if req.Op == weir.TakeUpTo {
				cost = max(model.UpTo(models, c.Micros, 0, cost), 1)
			} else if waits && r.IntN(2) == 0 {
				req.MaxWait = model.Wait(r, unit)
			}
			each := make([]weir.Result, len(rules))
			got, err := lim.Decide(t.Context(), req, each)
			if err != nil {
				t.Fatal(err)
			}
			which, answers := model.Decide(models, c.Micros, min(req.MaxWait.Microseconds(), longest), cost, req.Op != weir.Peek)
			want := result(rules[which].Name, answers[which])
			want.Granted = answers[0].Granted // rule 0 has no Cost
			for i, a := range answers {
				want.Delay = max(want.Delay, a.Delay)
				if one := result(rules[i].Name, a); each[i] != one {
					t.Fatalf("seed %d, %+v, step %d, %+v: rule %d:\ngot  %+v\nwant %+v", seed, rules, step, req, i, each[i], one)
				}
			}
			if got != want {
				t.Fatalf("seed %d, %+v, step %d, %+v:\ngot  %+v\nwant %+v", seed, rules, step, req, got, want)
			}
		}
	}
}
