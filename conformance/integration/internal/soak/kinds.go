package soak

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/requests"
	"github.com/weir-go/weir/examples/dailyquota"
)

// plans are the limits that every policy has in turn. The first is that of its limiter.
var plans = []int64{120, 60, 180}

const (
	ahead  = 3         // tokens of later hours that a reservation can consume
	anHour = time.Hour // in which a rate refills one token: longer than a round
	aDay   = 24 * anHour
)

// hourly refills one token an hour, and so none within a round.
var hourly = algorithm.Rate{Count: 1, Period: anHour}

// A rule is a rule of a policy, and what its ledger must know.
type rule struct {
	weir.Rule
	limit  int64
	shared bool // by all users of the policy
	loose  bool // a refund can return less than the decision consumed
}

// A kind is a policy, and the verbs that it supports.
type kind struct {
	name  string
	asks  []requests.Ask
	rules []rule
}

// kinds returns the policies of a soak with that limit: each algorithm alone, and several together.
// An aligned window does not end within a round that begins now.
func kinds(limit int64, now time.Time) []kind {
	zone := time.FixedZone("noon", (12-now.UTC().Hour())*3600) // where midnight is far
	one := func(limit int64, loose bool, a algorithm.Algorithm) []rule {
		return []rule{{Rule: weir.Rule{Algorithm: a}, limit: limit, loose: loose}}
	}
	debts := slices.Concat(requests.Plain, requests.Refundable)
	return []kind{
		{"FixedWindow", debts, one(limit, false, algorithm.FixedWindow{Limit: limit, Window: aDay})},
		{"SlidingCounter", debts, one(limit, false, algorithm.SlidingCounter{Limit: limit, Window: 30 * aDay})},
		{"SlidingBuckets", debts, one(limit, false, algorithm.SlidingBuckets{
			Width: anHour,
			Spans: []algorithm.Span{{Window: 2 * anHour, Limit: limit}, {Window: 6 * anHour, Limit: limit}},
		})},
		{"SlidingLog", debts, one(limit, false, algorithm.SlidingLog{Limit: limit, Window: aDay})},
		{"GCRA", requests.Reservable, one(limit, true, algorithm.GCRA{Rate: hourly, Burst: limit})},
		{"GCRA with fractions", debts, one(limit, true, algorithm.GCRA{
			Rate:  algorithm.Rate{Count: 7, Period: 9 * anHour},
			Burst: limit,
		})},
		{"TokenBucket", requests.Reservable, one(limit, true, algorithm.TokenBucket{Capacity: limit, Refill: hourly})},
		{"TokenBucket at once", debts, one(limit, true, algorithm.TokenBucket{
			Capacity: limit,
			Refill:   algorithm.Rate{Count: 50, Period: aDay},
			AtOnce:   true,
		})},
		{"LeakyBucket", requests.Queued, one(limit, true, algorithm.LeakyBucket{Rate: hourly, Queue: limit - 1})},
		{"MetadataWindow", requests.Listed, one(limit, false, algorithm.MetadataWindow{Limit: limit, Window: aDay})},
		{"dailyquota", requests.NoDebt, one(limit, false, dailyquota.Quota{Limit: limit, Zone: zone})},
		{"Concurrency", requests.Leases, one(limit/6, false, algorithm.Concurrency{Limit: limit / 6, Lease: anHour})},
		{"several rules", debts, []rule{
			{Rule: weir.Rule{Name: "all", By: []string{"tenant"}, Algorithm: algorithm.SlidingCounter{Limit: 2 * limit, Window: 30 * aDay}}, limit: 2 * limit, shared: true},
			{Rule: weir.Rule{Name: "user", Algorithm: algorithm.FixedWindow{Limit: limit, Window: aDay}}, limit: limit},
			{Rule: weir.Rule{Name: "rate", Algorithm: algorithm.GCRA{Rate: hourly, Burst: 2 * limit}}, limit: 2 * limit, loose: true},
			{Rule: weir.Rule{Name: "calls", Algorithm: algorithm.SlidingLog{Limit: limit, Window: aDay}, Cost: 1}, limit: limit},
		}},
	}
}

// users is the number of keys of a group.
const users = 3

// A group has the keys of one kind in one round.
type group struct {
	kind    // of the first plan
	name    string
	plans   [][]rule // by plan
	plan    atomic.Int32
	ledgers [][]*ledger // by rule and user; of a shared rule, all users have the same one

	gate sync.RWMutex // a call holds it for reading, a reset for writing

	held [users]chan *decision // decisions that nobody uses now; a reset replaces the channel
}

// A decision has an ID, and tokens that can be refunded, or a lease.
type decision struct {
	plan    int
	request weir.Request
	ahead   int64 // as of its call
	held    int64 // tokens, as settled
	settled bool  // it is not settled again
	lost    bool  // nobody knows whether it was made
}

// groups returns the groups of a round.
func (s *Soak) groups() []*group {
	now := time.Now()
	var all []*group
	var byPlan [][]kind
	for _, limit := range plans {
		byPlan = append(byPlan, kinds(limit, now))
	}
	for i, k := range byPlan[0] {
		if k.name == "SlidingCounter" || k.name == "several rules" {
			if left := 30*aDay - time.Duration(now.UnixNano())%(30*aDay); left < anHour {
				continue // the window ends soon
			}
		}
		g := &group{kind: k, name: fmt.Sprintf("r%d", s.round)}
		for user := range users {
			g.forget(user)
		}
		for _, all := range byPlan {
			g.plans = append(g.plans, all[i].rules)
		}
		for _, r := range g.plans[0] {
			ledgers := slices.Repeat([]*ledger{new(ledger)}, users)
			for u := range ledgers {
				if !r.shared {
					ledgers[u] = new(ledger)
				}
			}
			g.ledgers = append(g.ledgers, ledgers)
		}
		all = append(all, g)
	}
	return all
}

// several reports whether the keys of g have two segments.
func (g *group) several() bool { return len(g.plans[0]) > 1 }

// segments returns the key of a user.
func (g *group) segments(user int) []string {
	if g.several() {
		return []string{g.name, fmt.Sprint("u", user)}
	}
	return []string{fmt.Sprintf("%s-u%d", g.name, user)}
}

func (g *group) key(user int) weir.Key { return weir.KeyOf(g.segments(user)...) }

// rulesOf returns the rules of a policy, or of one of its plans.
func rulesOf(rules []rule) []weir.Rule {
	var all []weir.Rule
	for _, r := range rules {
		all = append(all, r.Rule)
	}
	return all
}

// limiter returns the limiter of a client for a plan.
func (s *Soak) limiter(m *member, g *group, plan int) *weir.Limiter {
	type name struct {
		kind string
		plan int
	}
	return m.limiter(name{g.kind.name, plan}, func() (*weir.Limiter, error) {
		p := weir.Policy{Name: g.kind.name, Rules: rulesOf(g.plans[0])}
		if g.several() {
			p.Segments = []string{"tenant", "user"}
		}
		l, err := s.limit(m, p)
		if err != nil || plan == 0 {
			return l, err
		}
		rules := rulesOf(g.plans[plan])
		for i := range rules {
			rules[i].By = nil
		}
		return l.With(rules...)
	})
}

// limiter returns the limiter of that name. It makes it once.
func (m *member) limiter(name any, make func() (*weir.Limiter, error)) *weir.Limiter {
	if l, ok := m.limiters.Load(name); ok {
		return l.(*weir.Limiter)
	}
	l, err := make()
	if err != nil {
		panic(fmt.Sprintf("soak: %v: %v", name, err)) // the policies are constants
	}
	m.limiters.Store(name, l)
	return l
}

// limit makes a limiter of a client.
func (s *Soak) limit(m *member, p weir.Policy) (*weir.Limiter, error) {
	l, err := weir.NewPolicy(m.Store, p, &weir.Options{Prefix: s.config.Prefix})
	if err == nil && s.config.Wrap != nil {
		l, err = l.Wrap(s.config.Wrap)
	}
	return l, err
}

// pick removes and returns a decision of a user, or nil if there is none.
func (g *group) pick(user int) *decision {
	select {
	case d := <-g.held[user]:
		return d
	default:
		return nil
	}
}

// hold adds a decision of a user. If there are too many, nobody uses it again.
func (g *group) hold(user int, d *decision) {
	select {
	case g.held[user] <- d:
	default:
	}
}

// forget removes the decisions of a user.
func (g *group) forget(user int) { g.held[user] = make(chan *decision, 1000) }
