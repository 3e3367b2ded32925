package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// This file checks limits that are refilled within a round. The time of a decision is
// between the time before its call and the time after it, because the servers' clock runs
// as fast as this process's.

const (
	paceRate  = 100  // tokens a second
	paceBurst = 2000 // tokens: an idle limit is full after 20 s
	drains    = 200  // calls, to find a limit empty

	paced = "rates of 100 a second" // in the report
)

// A pace is a rate, which all workers consume as fast as they can. Before the round and after
// it, the limit is drained until a request for one token is denied. Between two such denials,
// exactly the tokens are granted that are refilled between them, and at most one more or less.
type pace struct {
	name    string
	policy  weir.Policy
	queue   bool // tokens are consumed as turns of a queue
	wait    bool // callers wait
	drained instant
	granted atomic.Int64 // tokens, surely
	maybe   atomic.Int64 // tokens of calls without a reply, and of waits that were cancelled
}

// An instant is between two times. It is zero if a limit was not found empty.
type instant struct{ from, to time.Time }

// paces returns the paces of a round, drained.
func (s *Soak) paces(m *member) []*pace {
	rate := algorithm.PerSecond(paceRate)
	all := []*pace{
		newPace("GCRA", algorithm.GCRA{Rate: rate, Burst: paceBurst}),
		newPace("TokenBucket", algorithm.TokenBucket{Capacity: paceBurst, Refill: rate}),
		newPace("LeakyBucket", algorithm.LeakyBucket{Rate: rate, Queue: paceBurst - 1}),
		newPace("GCRA, waiting", algorithm.GCRA{Rate: rate, Burst: paceBurst}),
		newPace("TokenBucket, waiting", algorithm.TokenBucket{Capacity: paceBurst, Refill: rate}),
	}
	all[2].queue, all[3].wait, all[4].wait = true, true, true
	for _, p := range all {
		p.drained = p.drain(s, m)
		p.granted.Store(0)
		p.maybe.Store(0)
	}
	return all
}

func newPace(name string, a algorithm.Algorithm) *pace {
	return &pace{name: name, policy: weir.Policy{Name: "pace of " + name, Rules: []weir.Rule{{Algorithm: a}}}}
}

func (p *pace) limiter(s *Soak, m *member) *weir.Limiter {
	return m.limiter(p.policy.Name, func() (*weir.Limiter, error) { return s.limit(m, p.policy) })
}

func (s *Soak) paceKey() weir.Key { return weir.KeyOf(fmt.Sprintf("r%d", s.round)) }

// request returns a request of p that consumes n tokens, or fewer if it is no queue.
func (p *pace) request(s *Soak, n int64) weir.Request {
	if p.queue {
		return weir.Request{Key: s.paceKey(), Cost: n, MaxWait: weir.Never}
	}
	return weir.Request{Key: s.paceKey(), Op: weir.TakeUpTo, Cost: n}
}

// drain consumes what is there, and returns when a request for one token was denied.
func (p *pace) drain(s *Soak, m *member) instant {
	w := &worker{Soak: s, member: m}
	if p.queue { // either it is full after this request, or it was not empty
		p.decide(w, p.request(s, paceBurst), "drain")
	}
	for range drains {
		n := int64(paceBurst)
		if p.queue {
			n = 1
		}
		from := time.Now()
		if res, known := p.decide(w, p.request(s, n), "drain"); known && !res.Allowed {
			return instant{from, time.Now()}
		}
	}
	return instant{}
}

// decide makes a decision, and counts its tokens.
func (p *pace) decide(w *worker, r weir.Request, verb string) (weir.Result, bool) {
	var res weir.Result
	var err error
	risky := w.timed(perCall, func(ctx context.Context) {
		res, err = p.limiter(w.Soak, w.member).Decide(ctx, r, nil)
	})
	known := w.outcome(verb, paced, &res, err, risky)
	if risky {
		p.maybe.Add(r.Cost * int64(w.member.Repeats))
	}
	if known {
		p.granted.Add(res.Granted)
	} else {
		p.maybe.Add(r.Cost)
	}
	return res, known
}

// ask consumes a token as soon as there is one.
func (p *pace) ask(w *worker) {
	if !p.wait {
		p.decide(w, p.request(w.Soak, 1), "a token")
		return
	}
	var res weir.Result
	var err error
	risky := w.timed(15*time.Millisecond, func(ctx context.Context) {
		res, err = p.limiter(w.Soak, w.member).Wait(ctx, w.paceKey().Segments()...)
	})
	if w.hurried(err) || err != nil && !errors.Is(err, weir.ErrDenied) {
		p.maybe.Add(1) // if it was cancelled, its token can be lost
	}
	if w.hurried(err) {
		w.Report.Add(Calls, Unknown, limits+paced, verbs+"Wait")
		return
	}
	if known := w.outcome("Wait", paced, &res, err, risky); known {
		p.granted.Add(res.Granted)
	}
}

// hurried reports whether the context of a call that waits only a moment has ended.
func (w *worker) hurried(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, weir.ErrDenied)
}

// settlePaces drains the paces again, and compares what was granted with what was refilled.
func (s *Soak) settlePaces(m *member, paces []*pace) {
	for _, p := range paces {
		from := p.drained
		to := p.drain(s, m)
		if from.from.IsZero() || to.from.IsZero() {
			s.Report.Add(unpaced) // the machine is so slow that a token is refilled between two calls
			continue
		}
		refilled := func(d time.Duration) int64 { return int64(d * paceRate / time.Second) }
		granted, maybe := p.granted.Load(), p.maybe.Load()
		if most := refilled(to.to.Sub(from.from)) + 1; granted > most {
			s.Violate(More, "%s at %d a second: %d tokens were granted in %v, want at most %d", p.name, paceRate, granted, to.to.Sub(from.from), most)
		}
		// An idle limit would be full after some time, and refill nothing more.
		if full := refilled(to.to.Sub(from.from)) > paceBurst/2; full {
			s.Report.Add(unpaced)
		} else if least := refilled(to.from.Sub(from.to)) - 1; granted+maybe < least {
			s.Violate(Fewer, "%s at %d a second: %d tokens were granted in %v, and at most %d more, want at least %d", p.name, paceRate, granted, to.from.Sub(from.to), maybe, least)
		}
		s.Report.Add(Paced)
	}
}

// retried are limits that are refilled within moments.
var retried = map[string]algorithm.Algorithm{
	"FixedWindow":    algorithm.FixedWindow{Limit: 5, Window: 100 * time.Millisecond},
	"SlidingCounter": algorithm.SlidingCounter{Limit: 5, Window: 100 * time.Millisecond},
	"SlidingBuckets": algorithm.SlidingBuckets{Width: 50 * time.Millisecond, Spans: []algorithm.Span{{Window: 100 * time.Millisecond, Limit: 5}}},
	"SlidingLog":     algorithm.SlidingLog{Limit: 5, Window: 100 * time.Millisecond},
	"MetadataWindow": algorithm.MetadataWindow{Limit: 5, Window: 100 * time.Millisecond},
	"GCRA":           algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 5},
	"TokenBucket":    algorithm.TokenBucket{Capacity: 5, Refill: algorithm.PerSecond(10)},
	"LeakyBucket":    algorithm.LeakyBucket{Rate: algorithm.PerSecond(10), Queue: 5},
	"Concurrency":    algorithm.Concurrency{Limit: 5, Lease: 100 * time.Millisecond},
}

// retries checks, while others call, that a denied caller who waits for RetryAfter is allowed.
// No other caller has its keys.
func (s *Soak) retries(m *member) {
	var wg sync.WaitGroup
	defer m.Close()
	defer wg.Wait()
	for name, a := range retried {
		wg.Go(func() {
			l, err := s.limit(m, weir.Policy{Name: "retry of " + name, Rules: []weir.Rule{{Algorithm: a}}})
			if err != nil {
				s.Violate(Failed, "%s: %v", name, err)
				return
			}
			w := &worker{Soak: s, member: m}
			late := false // the machine was so slow that the client can have repeated a call
			ask := func(i int) (res weir.Result, ok bool) {
				r := weir.Request{Key: s.paceKey()}
				if name == "Concurrency" {
					r.ID = fmt.Sprint("lease ", i)
				}
				risky := s.timed(perCall, func(ctx context.Context) { res, err = l.Decide(ctx, r, nil) })
				late = late || risky
				ok = w.outcome("Allow", "limits of 100 ms", &res, err, risky)
				return res, ok
			}
			for i := range 100 {
				res, ok := ask(i)
				if !ok {
					return
				}
				if res.Allowed {
					continue // a slow machine never finds the limit used up
				}
				time.Sleep(res.RetryAfter)
				again, ok := ask(1000 + i)
				if ok && !again.Allowed && !late {
					s.Violate(Retry, "%s: denied with RetryAfter %v, and denied again after that time: %+v", name, res.RetryAfter, again)
				}
				s.Report.Add(Retried)
				return
			}
		})
	}
}
