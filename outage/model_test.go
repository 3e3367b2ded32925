package outage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// A play is a Decider that a test tells how to answer. It stands for the store.
type play struct {
	mu    sync.Mutex
	calls []*call // that have not ended
}

// A call is a call of the Breaker's limiter, and of the store if it was asked.
type call struct {
	ctx    context.Context // of the store's call
	stuck  bool            // the store's call does not heed ctx
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

func (p *play) Decide(ctx context.Context, r weir.Request, _ []weir.Result) (weir.Result, error) {
	p.mu.Lock()
	var c *call
	for _, c = range p.calls {
		if r.Metadata == fmt.Sprintf("%p", c) {
			break
		}
	}
	c.ctx, c.asked = ctx, true
	p.mu.Unlock()
	if c.stuck {
		return (<-c.answer)()
	}
	select {
	case f := <-c.answer:
		return f()
	case <-ctx.Done():
		return weir.Result{}, ctx.Err()
	}
}

// A breakerModel says which calls ask the store.
type breakerModel struct {
	failures         int
	budget, interval time.Duration

	open       bool
	generation int
	failed     int
	first      time.Duration // when the first of them ended
	due        time.Duration // the next probe, if open
	probe      *call
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
			m.open = false
			m.generation++
		}
		m.failed = 0
	case failed && c.generation == m.generation && !m.open:
		if m.failed++; m.failed == 1 {
			m.first = now
		}
		if m.failed >= m.failures && (m.failures == 1 || now-m.first >= m.budget) {
			m.open, m.due = true, now+m.interval
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
	p := new(play)
	l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewFaulty(), withMetadata), weirtest.Around(func(weir.Decider) *play { return p }))
	var changes atomic.Int64
	out := outage.New(&outage.Options{Fallback: outage.Open, Failures: m.failures, Probe: m.interval, OnChange: func(s outage.State) {
		if n := changes.Add(1); s.Down != (n%2 == 1) || s.Outages != (n+1)/2 {
			t.Errorf("seed %d: change %d is %+v", seed, n, s)
		}
	}})
	l = weirtest.Wrap(t, l, out.Wrap)
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	probes, opens := 0, 0
	misuse := fmt.Errorf("misuse")

	// check ends c in the model, and compares the outcome.
	check := func(c *call, answered, failed bool, want string) {
		<-c.done
		p.calls = slices.DeleteFunc(p.calls, func(o *call) bool { return o == c })
		was := m.open
		m.ends(c, answered, failed, now())
		if m.open && !was {
			opens++
		}
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
		}
		if got != want {
			t.Fatalf("seed %d, %v: got %q, want %q: %+v, %v", seed, now(), got, want, c.res, c.err)
		}
	}
	begin := func() {
		c := &call{stuck: rnd.IntN(20) == 0, answer: make(chan func() (weir.Result, error), 1), done: make(chan struct{}), began: now()}
		p.calls = append(p.calls, c)
		ctx, cancel := context.WithCancel(t.Context())
		c.cancel = cancel
		want := m.asks(c, now())
		go func() {
			defer close(c.done)
			defer func() { c.died = recover() }()
			c.res, c.err = l.Decide(ctx, weir.Request{Key: weir.KeyOf("ann"), Metadata: fmt.Sprintf("%p", c)}, nil)
		}()
		synctest.Wait()
		if c.asked != want {
			t.Fatalf("seed %d, %v: the store was asked: %v, want %v; the breaker is open: %v", seed, now(), c.asked, want, m.open)
		}
		if !want {
			<-c.done
			p.calls = p.calls[:len(p.calls)-1]
			cancel()
			if c.err != nil || c.res.Degraded == nil {
				t.Fatalf("got %+v, %v, want a degraded answer", c.res, c.err)
			}
			return
		}
		if c.probe {
			probes++
			for _, o := range p.calls {
				if o != c && o.probe && now()-o.began < 10*m.interval && o.generation == m.generation {
					t.Fatalf("seed %d, %v: two probes at once", seed, now())
				}
			}
		}
	}
	end := func() {
		if len(p.calls) == 0 {
			return
		}
		c := p.calls[rnd.IntN(len(p.calls))]
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
			for _, c := range p.calls {
				if !c.stuck {
					next = min(next, c.began+m.budget)
				}
			}
			time.Sleep(next - now())
			synctest.Wait()
			over := 0
			for _, c := range slices.Clone(p.calls) {
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
		want := 2 * opens
		if m.open {
			want--
		}
		if s := out.State(); s.Down != m.open || s.Outages != int64(opens) || changes.Load() != int64(want) {
			t.Fatalf("seed %d, %v: after %d changes, the state is %+v, want a breaker that opened %d times, and is open: %v", seed, now(), changes.Load(), s, opens, m.open)
		}
	}
	for len(p.calls) > 0 {
		end()
	}
	t.Logf("%d probes, opened %d times", probes, opens)
	if probes == 0 || opens == 0 {
		t.Errorf("seed %d: %d probes, and the breaker opened %d times: want some", seed, probes, opens)
	}
}

// If a probe never ends, another one begins after ten intervals. A probe that panics
// frees its place at once.
func TestLostProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(play)
		l := weirtest.Wrap(t, weirtest.New(t, weirtest.NewFaulty(), withMetadata), weirtest.Around(func(weir.Decider) *play { return p }))
		l = onOutage(t, l, outage.Options{Failures: 1})
		begin := func(f func() (weir.Result, error)) *call {
			c := &call{stuck: true, answer: make(chan func() (weir.Result, error), 1), done: make(chan struct{})}
			p.calls = []*call{c}
			if f != nil {
				c.answer <- f
			}
			go func() {
				defer close(c.done)
				defer func() { c.died = recover() }()
				c.res, c.err = l.Decide(context.Background(), weir.Request{Key: weir.KeyOf("ann"), Metadata: fmt.Sprintf("%p", c)}, nil)
			}()
			synctest.Wait()
			return c
		}
		begin(func() (weir.Result, error) { return weir.Result{}, store.ErrUnavailable })
		time.Sleep(outage.DefaultProbe)
		if c := begin(func() (weir.Result, error) { panic("a probe panics") }); c.died == nil {
			t.Fatal("the probe did not panic")
		}
		time.Sleep(outage.DefaultProbe)
		stuck := begin(nil)
		for i := range 10 {
			if !stuck.asked {
				t.Fatal("the probe after the panic was not sent")
			}
			if c := begin(nil); c.asked {
				t.Fatalf("a second probe was sent after %d intervals", i)
			}
			time.Sleep(outage.DefaultProbe)
		}
		second := begin(nil)
		if !second.asked {
			t.Fatal("after ten intervals no other probe was sent")
		}
		stuck.answer <- func() (weir.Result, error) { return weir.Result{}, store.ErrUnavailable }
		<-stuck.done
		time.Sleep(outage.DefaultProbe)
		if c := begin(nil); c.asked {
			t.Error("the end of the lost probe freed the place of the second one")
		}
		second.answer <- func() (weir.Result, error) { return weir.Result{}, store.ErrUnavailable }
		<-second.done
		time.Sleep(outage.DefaultProbe)
		c := begin(func() (weir.Result, error) { return weir.Result{Allowed: true}, nil })
		if !c.asked || c.err != nil || c.res.Degraded != nil {
			t.Fatalf("got %+v, %v, want an answer of the store", c.res, c.err)
		}
	})
}

// However many callers come when a probe is due, one of them is sent.
func TestOneProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const probe = time.Second
		st := weirtest.NewFaulty()
		st.Set(weirtest.Hang)
		l := onOutage(t, weirtest.New(t, st, weirtest.PerSecond), outage.Options{Failures: 1, Probe: probe})
		fail := func() {
			if res, err := l.Allow(context.Background(), "ann"); err != nil || res.Degraded == nil {
				t.Errorf("got %+v, %v, want a degraded answer", res, err)
			}
		}
		fail()
		for range 300 {
			time.Sleep(probe)
			before := st.Asked.Load()
			var wg sync.WaitGroup
			for range 32 {
				wg.Go(fail)
			}
			wg.Wait()
			if got := st.Asked.Load() - before; got != 1 {
				t.Fatalf("%d calls asked the store at once, want 1", got)
			}
		}
	})
}

// withMetadata is a limit whose requests can have metadata, by which a play knows them.
var withMetadata = algorithm.MetadataWindow{Limit: 10, Window: time.Hour}
