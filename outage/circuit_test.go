package outage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// A call is a call of the Breaker's limiter, and of the store if it was asked.
type call struct {
	stuck  bool // the store's call does not heed its context
	answer chan func() (weir.Result, error)

	// The model's part.
	asked      bool // the store was asked
	probe      bool
	generation int
	began      time.Duration
	cancel     context.CancelFunc

	// The outcome.
	done chan struct{}
	res  weir.Result
	err  error
	died any // what the call panicked with
}

// store makes the call in the place of the store.
func (c *call) store(ctx context.Context) (weir.Result, error) {
	if c.asked = true; c.stuck {
		return (<-c.answer)()
	}
	select {
	case f := <-c.answer:
		return f()
	case <-ctx.Done():
		return weir.Result{}, ctx.Err()
	}
}

// A breakerModel says which calls ask the store, and what the State is.
type breakerModel struct {
	failures         int
	budget, interval time.Duration

	open       bool
	generation int
	failed     int
	first      time.Duration // when the first of them ended
	before     int64         // answers before it
	due        time.Duration // the next probe, if open
	probe      *call

	answers      int64 // without the store
	outages      int64
	began, ended time.Duration
	inOutage     int64 // answers when it began, and then how many it had
}

// state returns the State without its Cause. The times are since start.
func (m *breakerModel) state(start time.Time, now time.Duration) outage.State {
	switch {
	case m.outages == 0:
		return outage.State{}
	case m.open:
		return outage.State{Down: true, Outages: m.outages, Began: start.Add(m.began), Lasted: now - m.began, Answers: m.answers - m.inOutage}
	}
	return outage.State{Outages: m.outages, Began: start.Add(m.began), Lasted: m.ended - m.began, Answers: m.inOutage}
}

// asks reports whether c, which begins now, asks the store.
func (m *breakerModel) asks(c *call, now time.Duration) bool {
	if !m.open {
		c.generation = m.generation
		return true
	}
	if now < m.due {
		return false
	}
	m.due = now + m.interval
	if m.probe != nil && now-m.probe.began < 10*m.interval {
		return false
	}
	m.probe, c.probe, c.generation = c, true, m.generation
	return true
}

// ends records the end of c, which asked the store.
func (m *breakerModel) ends(c *call, answered, failed bool, now time.Duration) {
	if m.probe == c {
		m.probe = nil
	}
	switch {
	case answered:
		if m.open {
			m.open, m.ended, m.inOutage = false, now, m.answers-m.inOutage
			m.generation++
		}
		m.failed = 0
	case failed && c.generation == m.generation && !m.open:
		if m.failed++; m.failed == 1 {
			m.first, m.before = now, m.answers
		}
		if m.failed >= m.failures && (m.failures == 1 || now-m.first >= m.budget) {
			m.open, m.due = true, now+m.interval
			m.outages, m.began, m.inOutage = m.outages+1, m.first, m.before
		}
	}
}

// Random histories of overlapping calls ask the store exactly when a model says so, and
// get the answers that the model says.
func TestBreakerModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { playHistory(t, seed, 600) })
	}
}

func playHistory(t *testing.T, seed uint64, steps int) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	m := &breakerModel{failures: 1 + rnd.IntN(5), budget: 50 * time.Millisecond, interval: time.Duration(50+rnd.IntN(1000)) * time.Millisecond}
	var calls []*call // that have not ended; the last has begun last
	inner := answering(func(ctx context.Context) (weir.Result, error) { return calls[len(calls)-1].store(ctx) })
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewFaulty(), weirtest.PerSecond), weirtest.Around(func(weir.Decider) *answering { return &inner }))
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	var changes atomic.Int64
	var told atomic.Pointer[outage.State]
	told.Store(new(outage.State))
	out := outage.New(&outage.Options{Fallback: outage.Open, Failures: m.failures, Probe: m.interval, OnChange: func(s outage.State) {
		told.Store(&s)
		if n := changes.Add(1); s.Down != (n%2 == 1) || s.Outages != (n+1)/2 || s.Began.Add(s.Lasted) != time.Now() {
			t.Errorf("seed %d: change %d is %+v", seed, n, s)
		}
	}})
	l = weirtest.Wrap(t, l, out.Wrap)
	probes := 0
	misuse := fmt.Errorf("misuse")

	// check ends c in the model, and compares the outcome.
	check := func(c *call, answered, failed bool, want string) {
		<-c.done
		calls = slices.DeleteFunc(calls, func(o *call) bool { return o == c })
		m.ends(c, answered, failed, now())
		got := "store"
		switch {
		case c.died != nil:
			got = "panic"
		case errors.Is(c.err, store.ErrForeign):
			got = "foreign"
		case c.err == misuse:
			got = "misuse"
		case errors.Is(c.err, context.Canceled):
			got = "cancelled"
		case c.err != nil:
			got = c.err.Error()
		case c.res.Degraded != nil:
			got = "degraded"
			m.answers++
		}
		if got != want {
			t.Fatalf("seed %d, %v: got %q, want %q: %+v, %v", seed, now(), got, want, c.res, c.err)
		}
	}
	begin := func() {
		c := &call{stuck: rnd.IntN(20) == 0, answer: make(chan func() (weir.Result, error), 1), done: make(chan struct{}), began: now()}
		calls = append(calls, c)
		ctx, cancel := context.WithCancel(t.Context())
		c.cancel = cancel
		want := m.asks(c, now())
		go func() {
			defer close(c.done)
			defer func() { c.died = recover() }()
			c.res, c.err = l.Decide(ctx, weir.Request{Key: weir.KeyOf("ann")}, nil)
		}()
		synctest.Wait()
		if c.asked != want {
			t.Fatalf("seed %d, %v: the store was asked: %v, want %v; the breaker is open: %v", seed, now(), c.asked, want, m.open)
		}
		if !want {
			<-c.done
			m.answers++
			calls = calls[:len(calls)-1]
			cancel()
			if c.err != nil || c.res.Degraded == nil {
				t.Fatalf("got %+v, %v, want a degraded answer", c.res, c.err)
			}
			return
		}
		if c.probe {
			probes++
			for _, o := range calls {
				if o != c && o.probe && now()-o.began < 10*m.interval && o.generation == m.generation {
					t.Fatalf("seed %d, %v: two probes at once", seed, now())
				}
			}
		}
	}
	end := func() {
		if len(calls) == 0 {
			return
		}
		c := calls[rnd.IntN(len(calls))]
		late := now()-c.began >= m.budget
		tell := func(res weir.Result, err error) { c.answer <- func() (weir.Result, error) { return res, err } }
		switch n := rnd.IntN(12); {
		case n < 3:
			tell(weir.Result{Allowed: true}, nil)
			check(c, !late, late, "store")
		case n < 7:
			tell(weir.Result{}, fmt.Errorf("x: %w", store.ErrUnavailable))
			check(c, false, true, "degraded")
		case n < 8:
			tell(weir.Result{}, store.ErrForeign)
			check(c, true, false, "foreign")
		case n < 9:
			tell(weir.Result{}, misuse)
			check(c, false, false, "misuse")
		case n < 10:
			c.answer <- func() (weir.Result, error) { panic("x") }
			check(c, false, false, "panic")
		case !c.stuck:
			c.cancel()
			check(c, false, false, "cancelled")
		}
	}
	// pass lets d pass, and ends the calls whose budget ends.
	pass := func(d time.Duration) {
		until := now() + d
		for {
			next := until
			for _, c := range calls {
				if !c.stuck {
					next = min(next, c.began+m.budget)
				}
			}
			time.Sleep(next - now())
			synctest.Wait()
			over := 0
			for _, c := range slices.Clone(calls) {
				if !c.stuck && now()-c.began >= m.budget {
					check(c, false, true, "degraded")
					over++
				}
			}
			if next == until && over == 0 {
				return
			}
		}
	}
	for range steps {
		switch n := rnd.IntN(10); {
		case n < 4:
			pass(1) // no two budgets end at once
			begin()
		case n < 7:
			end()
		case n < 8:
			pass(m.interval / 2)
		case n == 8 && rnd.IntN(20) == 0:
			pass(11 * m.interval)
		default:
			pass(time.Duration(rnd.IntN(60)) * time.Millisecond)
		}
		s, want := out.State(), m.state(start, now())
		if (s.Cause == nil) != (m.outages == 0) || s.Cause != nil && !errors.Is(s.Cause, store.ErrUnavailable) {
			t.Fatalf("seed %d, %v: the cause is %v", seed, now(), s.Cause)
		}
		last := *told.Load()
		if want.Cause = s.Cause; s != want || (changes.Load()+1)/2 != m.outages || last.Down != m.open || !m.open && last != s {
			t.Fatalf("seed %d, %v: after %d changes, %+v was told, and the state is %+v, want %+v", seed, now(), changes.Load(), last, s, want)
		}
	}
	for len(calls) > 0 {
		end()
	}
	if probes == 0 || m.outages == 0 {
		t.Errorf("seed %d: %d probes, and the breaker opened %d times: want some", seed, probes, m.outages)
	}
}
