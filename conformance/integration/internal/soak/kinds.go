package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/dailyquota"
	"github.com/weir-go/weir/store"
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
	name string
	asks []ask
	// rules returns the rules with that limit. An aligned window does not end within a
	// round that begins now.
	rules func(limit int64, now time.Time) []rule
}

// one returns the rules of a kind that has one rule.
func one(loose bool, a func(limit int64, now time.Time) algorithm.Algorithm) func(int64, time.Time) []rule {
	return func(limit int64, now time.Time) []rule {
		return []rule{{Rule: weir.Rule{Algorithm: a(limit, now)}, limit: limit, loose: loose}}
	}
}

// kinds are the policies of a soak: each algorithm alone, and several together.
var kinds = []kind{
	{"FixedWindow", refundable, one(false, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.FixedWindow{Limit: limit, Window: aDay}
	})},
	{"SlidingCounter", refundable, one(false, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.SlidingCounter{Limit: limit, Window: 30 * aDay}
	})},
	{"SlidingBuckets", refundable, one(false, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.SlidingBuckets{Width: anHour, Spans: []algorithm.Span{{Window: 2 * anHour, Limit: limit}, {Window: 6 * anHour, Limit: limit}}}
	})},
	{"SlidingLog", refundable, one(false, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.SlidingLog{Limit: limit, Window: aDay}
	})},
	{"GCRA", reservable, one(true, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.GCRA{Rate: hourly, Burst: limit}
	})},
	{"GCRA with fractions", refundable, one(true, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.GCRA{Rate: algorithm.Rate{Count: 7, Period: 9 * anHour}, Burst: limit}
	})},
	{"TokenBucket", reservable, one(true, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: limit, Refill: hourly}
	})},
	{"TokenBucket at once", refundable, one(true, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.TokenBucket{Capacity: limit, Refill: algorithm.Rate{Count: 50, Period: aDay}, AtOnce: true}
	})},
	{"LeakyBucket", queued, one(true, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.LeakyBucket{Rate: hourly, Queue: limit - 1}
	})},
	{"MetadataWindow", listed, one(false, func(limit int64, _ time.Time) algorithm.Algorithm {
		return algorithm.MetadataWindow{Limit: limit, Window: aDay}
	})},
	{"dailyquota", noDebt, one(false, func(limit int64, now time.Time) algorithm.Algorithm {
		zone := time.FixedZone("noon", (12-now.UTC().Hour())*3600) // where midnight is far
		return dailyquota.Quota{Limit: limit, Zone: zone}
	})},
	{"Concurrency", leased, func(limit int64, _ time.Time) []rule {
		return []rule{{Rule: weir.Rule{Algorithm: algorithm.Concurrency{Limit: limit / 6, Lease: anHour}}, limit: limit / 6}}
	}},
	{"several rules", refundable, func(limit int64, _ time.Time) []rule {
		return []rule{
			{Rule: weir.Rule{Name: "all", By: []string{"tenant"}, Algorithm: algorithm.SlidingCounter{Limit: 2 * limit, Window: 30 * aDay}}, limit: 2 * limit, shared: true},
			{Rule: weir.Rule{Name: "user", Algorithm: algorithm.FixedWindow{Limit: limit, Window: aDay}}, limit: limit},
			{Rule: weir.Rule{Name: "rate", Algorithm: algorithm.GCRA{Rate: hourly, Burst: 2 * limit}}, limit: 2 * limit, loose: true},
			{Rule: weir.Rule{Name: "calls", Algorithm: algorithm.SlidingLog{Limit: limit, Window: aDay}, Cost: 1}, limit: limit},
		}
	}},
}

// users is the number of keys of a group.
const users = 3

// A group has the keys of one kind in one round.
type group struct {
	*kind
	name    string
	plans   [][]rule // by plan
	plan    atomic.Int32
	ledgers [][]*ledger // by rule and user; of a shared rule, all users have the same one

	gate sync.RWMutex // a call holds it for reading, a reset for writing
	hit  bool         // a fault can lose tokens, so there are no resets

	mu   sync.Mutex
	held [users][]*decision // decisions that nobody uses now
}

// A decision has an ID, and tokens that can be refunded, or it is a lease.
type decision struct {
	plan    int
	request weir.Request
	ahead   int64       // as of its call
	held    int64       // tokens, as settled
	settled bool        // it is not settled again
	lost    bool        // nobody knows whether it was made
	lease   *weir.Lease // or nil
	owner   *member     // of the lease
}

// groups returns the groups of a round.
func (s *Soak) groups() []*group {
	now := time.Now()
	var all []*group
	for i := range kinds {
		k := &kinds[i]
		if k.name == "SlidingCounter" || k.name == "several rules" {
			if left := 30*aDay - time.Duration(now.UnixNano())%(30*aDay); left < anHour {
				continue // the window ends soon
			}
		}
		g := &group{kind: k, name: fmt.Sprintf("r%d", s.round)}
		for _, limit := range plans {
			g.plans = append(g.plans, k.rules(limit, now))
		}
		for _, r := range g.plans[0] {
			var ledgers []*ledger
			for u := range users {
				if u > 0 && r.shared {
					ledgers = append(ledgers, ledgers[0])
				} else {
					ledgers = append(ledgers, new(ledger))
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

// each calls f with each ledger and its slot.
func (g *group) each(f func(slot int, l *ledger)) {
	for i, ledgers := range g.ledgers {
		for u, l := range ledgers {
			if u == 0 || !g.plans[0][i].shared {
				f(store.Slot("{"+g.segments(u)[0]+"}"), l)
			}
		}
	}
}

// policy returns the policy of g.
func (g *group) policy() weir.Policy {
	p := weir.Policy{Name: g.kind.name}
	if g.several() {
		p.Segments = []string{"tenant", "user"}
	}
	p.Rules = rulesOf(g.plans[0])
	return p
}

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
	if l, ok := m.limiters.Load(name{g.kind.name, plan}); ok {
		return l.(*weir.Limiter)
	}
	l, err := weir.NewPolicy(m.Store, g.policy(), &weir.Options{Prefix: s.config.Prefix})
	if err == nil && s.config.Wrap != nil {
		l, err = l.Wrap(s.config.Wrap)
	}
	if err == nil && plan > 0 {
		rules := rulesOf(g.plans[plan])
		for i := range rules {
			rules[i].By = nil
		}
		l, err = l.With(rules...)
	}
	if err != nil {
		panic(fmt.Sprintf("soak: %s: %v", g.kind.name, err)) // the kinds are constants
	}
	m.limiters.Store(name{g.kind.name, plan}, l)
	return l
}

// pick removes and returns a random decision of a user, or nil if there is none.
func (g *group) pick(r *rand.Rand, user int) *decision {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.held[user]
	if len(list) == 0 {
		return nil
	}
	i := r.IntN(len(list))
	d := list[i]
	g.held[user] = slices.Delete(list, i, i+1)
	return d
}

// hold adds a decision of a user.
func (g *group) hold(user int, d *decision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[user] = append(g.held[user], d)
}

// forget removes the decisions of a user, or of all if user is -1.
func (g *group) forget(user int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for u := range g.held {
		if u == user || user < 0 {
			g.held[u] = nil
		}
	}
}
