package integration

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// A process is one of several that share a limit.
type process struct {
	limiter *weir.Limiter
	asked   atomic.Int64 // calls of the store
	failed  atomic.Int64 // calls that the store did not answer

	mu       sync.Mutex
	shared   int64 // requests that the store allowed
	local    int64 // requests that the process allowed
	calls    int64
	degraded int64
	slowest  time.Duration
	served   time.Time // when the last call began that the store answered
	healed   time.Time // when the fault ended
	late     int64     // what failed when the store first answered a call that began after healed
}

// A counted is a store that counts its calls of Eval.
type counted struct {
	store.Store
	asked, failed *atomic.Int64
}

func (c counted) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	c.asked.Add(1)
	reply, err := c.Store.Eval(ctx, s, keys, args, reply)
	if err != nil {
		c.failed.Add(1)
	}
	return reply, err
}

const (
	outageProcesses = 3
	outageCallers   = 4 // of each process
	outageLimit     = 100
	outageBudget    = time.Second // so that a healthy server is not too slow on a busy machine
	outageProbe     = outageBudget
)

// ask calls the limiter of p until ended is closed.
func (p *process) ask(t *testing.T, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(2 * time.Millisecond):
		}
		start := time.Now()
		res, err := p.limiter.Allow(context.Background(), "ann")
		took := time.Since(start)
		if err != nil {
			t.Errorf("a call returned an error: %v", err)
			return
		}
		p.mu.Lock()
		p.calls++
		p.slowest = max(p.slowest, took)
		switch {
		case res.Degraded == nil:
			if p.served = start; p.late == 0 && !p.healed.IsZero() && start.After(p.healed) {
				p.late = p.failed.Load()
			}
			p.shared += res.Granted
		default:
			p.degraded++
			p.local += res.Granted
		}
		p.mu.Unlock()
	}
}

// TestOutage makes a server fail while several processes share a limit on it. They wait for
// it no longer than their budget, ask it no more often than they say, allow no more than the
// bound, and come back.
func TestOutage(t *testing.T) {
	notShort(t)
	servers.Need(t)
	for _, a := range adapters {
		a.timeout = longTimeout
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			outages(t, a)
		})
	}
}

// outages tests a with one fault after the other. All at once would keep the machine busy.
func outages(t *testing.T, a adapter) {
	for _, tt := range []struct {
		name  string
		maker faultMaker
		lives int64 // how many times the server begins without state
	}{
		{"Killed", restart, 2},
		{"Frozen", paused, 1},
		{"ClosedPort", closedPort, 1},
		{"BlackHole", blackHole, 1},
		{"HalfOpen", toxic("timeout", `{"timeout":0}`), 1},
	} {
		t.Run(tt.name, func(t *testing.T) { testOutage(t, tt.maker(t, a, ""), tt.lives) })
	}
}

func testOutage(t *testing.T, f conformance.Fault, lives int64) {
	all := make([]*process, outageProcesses)
	for i := range all {
		p := new(process)
		all[i] = p
		st, closeClient := f.Open()
		t.Cleanup(closeClient)
		l := newLimiter(t, counted{st, &p.asked, &p.failed}, "outage", algorithm.FixedWindow{Limit: outageLimit, Window: 24 * time.Hour})
		var err error
		p.limiter, err = l.Wrap(outage.New(&outage.Options{Fallback: outage.Local, Processes: outageProcesses, Budget: outageBudget, Probe: outageProbe}).Wrap)
		if err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	stop := sync.OnceFunc(func() { close(ended); wg.Wait() })
	defer stop()
	for _, p := range all {
		for range outageCallers {
			wg.Go(func() { p.ask(t, ended) })
		}
	}
	// until waits until ok is true of each process.
	until := func(what string, ok func(p *process) bool) {
		for _, p := range all {
			await(t, what, func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return t.Failed() || ok(p)
			})
		}
	}
	start := time.Now()
	until("the store to be asked", func(p *process) bool { return p.served.After(start) })
	f.Begin()
	until("the shares to be used up", func(p *process) bool { return p.local >= outageLimit/outageProcesses })
	time.Sleep(outageBudget) // the breaker opens when failures have lasted that long
	probing := time.Now()
	asked := make([]int64, len(all))
	for i, p := range all {
		asked[i] = p.asked.Load()
	}
	time.Sleep(2 * outageProbe)
	probes := int64(time.Since(probing)/outageProbe) + 1
	for i, p := range all {
		// Calls that were in flight fail too, and one more can begin for each failure.
		if got, most := p.asked.Load()-asked[i], outage.DefaultFailures+outageCallers+probes; got > most {
			t.Errorf("process %d asked the store %d times in %v of the fault, want at most %d", i, got, time.Since(probing), most)
		}
	}
	f.End()
	back := time.Now()
	failed := make([]int64, len(all))
	for i, p := range all {
		p.mu.Lock()
		p.healed, failed[i] = back, p.failed.Load()
		p.mu.Unlock()
	}
	until("the store to be asked again", func(p *process) bool { return p.served.After(back) })
	t.Logf("all processes were back after %v", time.Since(back).Round(time.Millisecond))
	for i, p := range all {
		// A probe that was in flight can fail, and a slow machine can be late for a few.
		// More would be old connections, which each cost a probe.
		p.mu.Lock()
		got := p.late - failed[i]
		p.mu.Unlock()
		if got > 5 {
			t.Errorf("process %d came back after %d failures, want one or two", i, got)
		}
	}
	time.Sleep(outageProbe)
	stop()
	var shared, local int64
	for i, p := range all {
		shared += p.shared
		local += p.local
		t.Logf("process %d: %d calls, %d degraded, the slowest took %v; allowed: %d by the store, %d locally", i, p.calls, p.degraded, p.slowest.Round(time.Millisecond), p.shared, p.local)
		if p.slowest > longTimeout/6 {
			t.Errorf("process %d: a call took %v, with a budget of %v", i, p.slowest, outageBudget)
		}
		if p.local != outageLimit/outageProcesses {
			t.Errorf("process %d allowed %d locally, want %d", i, p.local, outageLimit/outageProcesses)
		}
	}
	if most := outageLimit * lives; shared > most || shared == 0 {
		t.Errorf("the store allowed %d, want at most %d", shared, most)
	}
}
