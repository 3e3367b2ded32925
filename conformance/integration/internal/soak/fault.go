package soak

import (
	"context"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/integration/internal/requests"
)

// fault makes the servers fail for at least the time d.
func (s *Soak) fault(d time.Duration, f *Fault, groups []*group, start func(*member)) {
	o := s.Report.fault(f.Name)
	o.Times++
	s.faults.Add(1)
	if f.Confirm == nil {
		f.Begin()
	} else {
		s.lose(o, f, groups)
	}
	s.churn(d, groups, start)
	f.End()
	s.leaving.Wait()
	s.served(groups, s.members...)
	s.faults.Add(1)
	for _, m := range s.members {
		m.credit.Store(stale)
	}
}

// A span has what a fault can lose: what a ledger noted between two snapshots.
type span struct{ from, to snapshot }

// lose begins a fault that can lose writes.
func (s *Soak) lose(o *FaultCount, f *Fault, groups []*group) {
	spans := map[*ledger]*span{}
	for _, g := range groups {
		g.gate.Lock() // no reset is under way
		g.each(func(slot int, l *ledger) {
			if f.Hit(slot) {
				g.hit = true
				l.suspend(true)
				spans[l] = new(span)
			}
		})
		g.gate.Unlock()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		for l, sp := range spans {
			sp.from = l.snapshot()
		}
		err := f.Confirm()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			s.Violate(Failed, "%s: no write is confirmed: %v", f.Name, err)
			break
		}
	}
	f.Stop()
	for l, sp := range spans {
		sp.to = l.snapshot()
	}
	f.Begin()
	s.served(groups, s.members...)
	for _, g := range groups {
		g.gate.Lock() // no call of the group is under way
		if g.hit {
			s.count(o, g, spans)
			g.forget(-1) // a decision can be lost, and then it cannot be refunded
			g.hit = false
		}
		g.gate.Unlock()
	}
}

// count counts the tokens that a fault has lost. No more are lost than were not confirmed.
func (s *Soak) count(o *FaultCount, g *group, spans map[*ledger]*span) {
	g.each(func(_ int, l *ledger) {
		sp := spans[l]
		if sp == nil {
			return
		}
		before := l.end(l.begin(0, 0), effect{})
		unconfirmed := l.forgive(sp.from, sp.to)
		l.suspend(false)
		user := slices.Index(g.ledgers[0], l)
		if g.several() || !g.takesUpTo() {
			return
		}
		res, err := s.peek(s.members[0], g, user)
		if err != nil || res.Remaining == 0 { // the limit can be in debt
			return
		}
		lost := max(before.low-(res.Limit-res.Remaining), 0)
		o.Unconfirmed += unconfirmed
		o.Lost += lost
		if lost > unconfirmed {
			s.Violate(More, "%s: %s has lost %d tokens, and %d were not confirmed", o.Name, g.kind.name, lost, unconfirmed)
		}
	})
}

// peek peeks at the key of a user, and notes nothing.
func (s *Soak) peek(m *member, g *group, user int) (res weir.Result, err error) {
	s.timed(perCall, func(ctx context.Context) {
		res, err = s.limiter(m, g, 0).Decide(ctx, weir.Request{Key: g.key(user), Op: weir.Peek}, nil)
	})
	return res, err
}

// served waits until clients are served on every group. Peeks change nothing. Callers of rueidis
// and valkey-go who wait for a new connection fail with the one who opens it. So this comes before
// calls with short deadlines, too.
func (s *Soak) served(groups []*group, members ...*member) {
	deadline := time.Now().Add(2 * time.Minute)
	for _, m := range members {
		for _, g := range groups {
			for {
				_, err := s.peek(m, g, 0)
				if err == nil {
					break
				}
				if !requests.Lost(err) || time.Now().After(deadline) {
					s.Violate(Failed, "%s is not served: %v", m.Name, err)
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}
