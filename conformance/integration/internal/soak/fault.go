package soak

import (
	"context"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/integration/internal/requests"
)

// fault makes the servers fail for at least the time d.
func (s *Soak) fault(d time.Duration, f *Fault, groups []*group, start func(*member)) {
	s.Report.Add(faulted + f.Name)
	s.faults.Add(1)
	if f.Still != nil {
		s.still.Lock()
		f.Still()
		s.still.Unlock()
	}
	f.Begin()
	s.churn(d, groups, start)
	f.End()
	s.leaving.Wait()
	s.served(groups, s.members...)
	s.faults.Add(1)
	for _, m := range s.members {
		m.credit.Store(stale)
	}
}

// served waits until clients are served on every group. Peeks change nothing. Callers of rueidis
// and valkey-go who wait for a new connection fail with the one who opens it. So this comes before
// calls with short deadlines, too.
func (s *Soak) served(groups []*group, members ...*member) {
	deadline := time.Now().Add(2 * time.Minute)
	for _, m := range members {
		for _, g := range groups {
			for {
				var err error
				s.timed(perCall, func(ctx context.Context) {
					_, err = s.limiter(m, g, 0).Decide(ctx, weir.Request{Key: g.key(0), Op: weir.Peek}, nil)
				})
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
