package linear

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/requests"
)

// A policy is a limiter of the histories, with the requests that its clients make.
type policy struct {
	weir.Policy
	asks []requests.Ask
}

// shared is the By of a rule that all users of a tenant share.
var shared = []string{"tenant"}

// manyRules is the number of limiters with several rules, except the one with leases,
// which is the last.
const manyRules = 4

// policies are the limiters of the histories. Their limits are so low that requests are
// allowed and denied. A history has one limiter with a single rule, one with several
// rules, and the one with leases.
var policies = func() []policy {
	var all []policy
	for _, rules := range []struct {
		algorithm.Algorithm
		asks []requests.Ask
	}{
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 6}, requests.Reservable},
		{algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 6}, requests.Refundable},
		{algorithm.TokenBucket{Capacity: 6, Refill: algorithm.Rate{Count: 5, Period: 2 * time.Second}}, requests.Refundable},
		{algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 6}, requests.Reservable},
		{algorithm.FixedWindow{Limit: 9, Window: 3 * time.Second}, requests.Refundable},
		{algorithm.SlidingCounter{Limit: 9, Window: 3 * time.Second}, requests.Refundable},
		{algorithm.SlidingLog{Limit: 7, Window: 3 * time.Second}, requests.Refundable},
		{algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Second, Limit: 5}, {Window: 3 * time.Second, Limit: 9}}}, requests.Refundable},
		// Without IDs, the memory store decides without a script.
		{algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 9}, requests.Plain},
		{algorithm.TokenBucket{Capacity: 9, Refill: algorithm.PerSecond(3)}, requests.Plain},
		{algorithm.MetadataWindow{Limit: 9, Window: 3 * time.Second}, requests.Plain},
	} {
		p := weir.Policy{Name: fmt.Sprint("single", len(all)), Segments: shared, Rules: []weir.Rule{{Algorithm: rules.Algorithm}}}
		all = append(all, policy{p, rules.asks})
	}
	segments := []string{"tenant", "user"}
	all = append(all,
		policy{weir.Policy{Name: "plain", Segments: segments, Rules: []weir.Rule{
			{Name: "tenant", By: shared, Algorithm: algorithm.FixedWindow{Limit: 14, Window: 3 * time.Second}},
			{Name: "user", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 6}},
		}}, requests.Plain},
		policy{weir.Policy{Name: "cells", Segments: segments, Rules: []weir.Rule{
			{Name: "tenant", By: shared, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(5), Burst: 10}},
			{Name: "user", Algorithm: algorithm.TokenBucket{Capacity: 6, Refill: algorithm.PerSecond(2)}},
		}}, requests.Reservable},
		policy{weir.Policy{Name: "mixed", Segments: segments, Rules: []weir.Rule{
			{Name: "tenant", By: shared, Algorithm: algorithm.FixedWindow{Limit: 14, Window: 3 * time.Second}},
			{Name: "user", Algorithm: algorithm.SlidingCounter{Limit: 8, Window: 3 * time.Second}},
			{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 4, Window: 4 * time.Second}, Cost: 1},
		}}, requests.Refundable},
		policy{weir.Policy{Name: "paused", Segments: segments, Rules: []weir.Rule{
			{Name: "tenant", By: shared, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(5), Burst: 10}},
			{Name: "pause", Algorithm: algorithm.Pause{}},
			{Name: "user", Algorithm: algorithm.TokenBucket{Capacity: 6, Refill: algorithm.PerSecond(2)}},
		}}, requests.Paused},
		policy{weir.Policy{Name: "leases", Segments: segments, Rules: []weir.Rule{
			{Name: "starts", By: shared, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(5), Burst: 12}},
			{Name: "leases", By: shared, Algorithm: algorithm.Concurrency{Limit: 4, Lease: 5 * time.Second}, Cost: 1},
			{Name: "own", Algorithm: algorithm.Concurrency{Limit: 3, Lease: 4 * time.Second}, Cost: 1},
		}}, requests.Leases},
	)
	for _, p := range all {
		for i := range p.Rules {
			p.Rules[i].Algorithm = pause(p.Rules[i].Algorithm)
		}
	}
	return all
}()

// A step is one call of a client.
type step struct {
	policy   int
	advance  time.Duration  // of the virtual time before the call
	requests []weir.Request // several are one DoMany
}

// A planner makes the requests of a history.
type planner struct {
	requests.Source
	policy int
	ids    int
	asked  map[int][]weir.Request // with an ID, by policy

	tenants, users string // the letters of their names
}

// plan returns the calls of each client in a history. Their keys start with name. If pauses is
// true, they are all to the limiter with pauses.
func plan(seed uint64, name string, pauses bool) (all [clients][]step) {
	p := &planner{asked: map[int][]weir.Request{}, tenants: "ab", users: "xy"}
	p.Source = requests.Source{
		Rand: rand.New(rand.NewPCG(seed, 1)), Rare: 3, NewID: p.name, Recent: p.recent,
		MaxWait: func() time.Duration { return time.Duration(p.Int64N(3000)) * time.Millisecond },
	}
	several := len(policies) - 1 - manyRules // the index of the first with several rules
	used := []int{p.IntN(several), several + p.IntN(manyRules), len(policies) - 1}
	if pauses {
		p.tenants, p.users = "abcdef", "x" // else, the check of a group would need too many steps
		used = []int{slices.IndexFunc(policies, func(p policy) bool { return p.Name == "paused" })}
	}
	for range calls {
		for c := range all {
			s := step{policy: used[p.IntN(len(used))]}
			if p.IntN(5) == 0 {
				s.advance = time.Duration(p.Int64N(500_000)) * time.Microsecond
			}
			p.policy = s.policy
			n := 1
			if p.IntN(6) == 0 {
				n = 2 + p.IntN(3)
			}
			peeks := p.IntN(3) == 0
			for range n {
				key := p.key(name)
				r := requests.Peek(&p.Source, key)
				if n == 1 || !peeks {
					asks := policies[p.policy].asks
					r = asks[p.IntN(len(asks))](&p.Source, key)
				}
				s.requests = append(s.requests, r)
			}
			all[c] = append(all[c], s)
		}
	}
	return all
}

// key returns a random key of the policy.
func (p *planner) key(name string) weir.Key {
	segments := []string{name + p.letter(p.tenants), p.letter(p.users)}
	return weir.KeyOf(segments[:len(policies[p.policy].Segments)]...)
}

func (p *planner) letter(of string) string {
	i := p.IntN(len(of))
	return of[i : i+1]
}

// name gives r an ID, with which it can be repeated or refunded.
func (p *planner) name(r weir.Request) weir.Request {
	p.ids++
	r.ID = fmt.Sprint("id", p.ids)
	p.asked[p.policy] = append(p.asked[p.policy], r)
	return r
}

// recent returns one of the last requests with an ID. If there is none, it returns one with
// an ID that nobody used.
func (p *planner) recent(key weir.Key) weir.Request {
	list := p.asked[p.policy]
	if len(list) == 0 {
		return weir.Request{Key: key, ID: "none"}
	}
	return list[max(len(list)-1-p.IntN(8), 0)]
}
