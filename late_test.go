package weir_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A postman is a Decider that delivers a Consume late, even if its caller has gone, and
// notes when others are sent.
type postman struct {
	next weir.Decider
	late []time.Duration // of the first Consume, the second …, the last for all later ones
	down error           // the answer to all others

	mu   sync.Mutex
	sent int // Consumes
	undo []time.Time
}

func (p *postman) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Op != weir.Consume {
		p.undo = append(p.undo, time.Now())
		if p.down != nil {
			return weir.Result{}, p.down
		}
		return p.next.Decide(ctx, r, each)
	}
	late := p.late[min(p.sent, len(p.late)-1)]
	p.sent++
	time.AfterFunc(late, func() { _, _ = p.next.Decide(context.WithoutCancel(ctx), r, nil) })
	<-ctx.Done()
	return weir.Result{}, ctx.Err()
}

// wrap returns l with p around it.
func (p *postman) wrap(t *testing.T, l *weir.Limiter, around ...weir.Wrapper) *weir.Limiter {
	t.Helper()
	return weirtest.Wrap(t, l, append(around, weirtest.Around(func(next weir.Decider) *postman { p.next = next; return p }))...)
}

// undone returns how many undos were sent.
func (p *postman) undone() int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.undo)
}

// A lateCall makes a grant under an ID that weir made.
type lateCall struct {
	a    algorithm.Algorithm
	call func(context.Context, *weir.Limiter) error
}

var lateCalls = map[string]lateCall{
	"TryAcquire": {oneJob, func(ctx context.Context, l *weir.Limiter) error { _, err := l.TryAcquire(ctx, "k"); return err }},
	"Acquire":    {oneJob, func(ctx context.Context, l *weir.Limiter) error { _, err := l.Acquire(ctx, "k"); return err }},
	"Reserve": {algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}, func(ctx context.Context, l *weir.Limiter) error {
		_, err := l.Reserve(ctx, weir.Request{Key: weir.KeyOf("k")})
		return err
	}},
	"Wait": {algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}, func(ctx context.Context, l *weir.Limiter) error { _, err := l.Wait(ctx, "k"); return err }},
}

// A grant that reaches the store after its undo is undone by a later one, after at most
// 1.25 s, 6.25 s or 31.25 s. Then nothing more is sent.
func TestLateGrant(t *testing.T) {
	t.Parallel()
	for name, tt := range lateCalls {
		for late, want := range map[time.Duration]int{50 * time.Millisecond: 1, 300 * time.Millisecond: 2, 3 * time.Second: 3, 20 * time.Second: 4} {
			synctest.Test(t, func(t *testing.T) {
				plain := weirtest.New(t, memory.New(nil), tt.a)
				p := &postman{late: []time.Duration{late}}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if err := tt.call(ctx, p.wrap(t, plain)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: got %v", name, err)
				}
				time.Sleep(late)
				if free := weirtest.Left(t, plain, "k").Remaining; (free == 0) != (want > 1) {
					t.Errorf("%s: when a grant after %v has come: %d are free", name, late, free)
				}
				bound := []time.Duration{0, 1250 * time.Millisecond, 6250 * time.Millisecond, 31250 * time.Millisecond}[want-1]
				time.Sleep(max(bound-late, 0))
				synctest.Wait()
				if free := weirtest.Left(t, plain, "k").Remaining; free != 1 {
					t.Errorf("%s: a grant after %v is held after %v", name, late, bound)
				}
				if time.Sleep(time.Minute); p.undone() != want {
					t.Errorf("%s: a grant after %v was undone %d times, want %d", name, late, p.undone(), want)
				}
			})
		}
	}
}

// If an undo fails too, the error is both errors, and the undo is repeated.
func TestLateGrantFails(t *testing.T) {
	t.Parallel()
	for name, tt := range lateCalls {
		synctest.Test(t, func(t *testing.T) {
			p := &postman{late: []time.Duration{0}, down: store.ErrUnavailable}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			err := tt.call(ctx, p.wrap(t, weirtest.New(t, memory.New(nil), tt.a)))
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %v, want both errors", name, err)
			}
			if time.Sleep(time.Minute); p.undone() != 4 {
				t.Errorf("%s: %d undos were sent, want 4", name, p.undone())
			}
		})
	}
}

// No undo is sent when the lease has expired, or when the tokens have been refilled.
func TestLateGrantLife(t *testing.T) {
	t.Parallel()
	jobs := func(d time.Duration, shadow bool) weir.Rule {
		return weir.Rule{Name: map[bool]string{true: "next", false: "jobs"}[shadow], Algorithm: algorithm.Concurrency{Limit: 1, Lease: d}, Shadow: shadow}
	}
	hourly := weir.Rule{Name: "rate", Algorithm: weirtest.Window(100, time.Hour), Cost: 1}
	fast := weir.Rule{Name: "fast", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 4}}
	for name, tt := range map[string]struct {
		rules []weir.Rule
		wait  time.Duration // of a Reserve
		want  int
	}{
		"a short lease":           {[]weir.Rule{jobs(3*time.Second, false), hourly}, 0, 2},
		"a very short lease":      {[]weir.Rule{jobs(time.Second/2, false), hourly}, 0, 1},
		"a longer shadow lease":   {[]weir.Rule{jobs(3*time.Second, false), jobs(6*time.Second, true)}, 0, 3},
		"a fast rate":             {[]weir.Rule{fast}, time.Second / 2, 2},
		"a fast rate, and a wait": {[]weir.Rule{fast}, time.Second, 3},
		"any wait":                {[]weir.Rule{fast}, weir.Never, 4},
		"a slower rule":           {[]weir.Rule{fast, hourly}, time.Second, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &postman{late: []time.Duration{time.Hour}}
			l := p.wrap(t, weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(tt.rules...)))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if tt.wait == 0 {
				_, _ = l.TryAcquire(ctx, "k")
			} else {
				_, _ = l.Reserve(ctx, weir.Request{Key: weir.KeyOf("k"), MaxWait: tt.wait})
			}
			if time.Sleep(time.Minute); p.undone() != tt.want {
				t.Errorf("%s: %d undos were sent, want %d", name, p.undone(), tt.want)
			}
		})
	}
}

// If the replies of two tries of one Acquire are lost, each can come late.
func TestLateGrantTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		plain := weirtest.New(t, memory.New(nil), oneJob)
		p := &postman{late: []time.Duration{2 * time.Second, 10 * time.Second, time.Hour}}
		breaker := outage.New(&outage.Options{Budget: 100 * time.Millisecond, Failures: 1000})
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		lease, err := p.wrap(t, plain, breaker.Wrap).Acquire(ctx, "k")
		if lease != nil || !errors.Is(err, context.DeadlineExceeded) || p.sent != 2 {
			t.Fatalf("got %v, %v after %d tries, want 2", lease, err, p.sent)
		}
		for _, tt := range []struct {
			after time.Duration
			free  int64
		}{{3 * time.Second, 0}, {7 * time.Second, 1}, {11 * time.Second, 0}, {32 * time.Second, 1}} {
			time.Sleep(tt.after - time.Since(start(ctx)))
			if synctest.Wait(); weirtest.Left(t, plain, "k").Remaining != tt.free {
				t.Errorf("after %v: want %d free", tt.after, tt.free)
			}
		}
	})
}

// start returns when a context of 150 ms was made.
func start(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end.Add(-150 * time.Millisecond)
}

// Acquire undoes nothing once it has the lease, even if the reply of an earlier try was
// lost.
func TestLateGrantHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		plain := weirtest.New(t, st, oneJob)
		st.Set(weirtest.Lost)
		time.AfterFunc(80*time.Millisecond, func() { st.Set(weirtest.Up) })
		l := weirtest.Wrap(t, plain, outage.New(&outage.Options{Budget: 50 * time.Millisecond, Failures: 1000}).Wrap)
		lease, err := l.Acquire(t.Context(), "k")
		if err != nil || lease.Degraded != nil {
			t.Fatal(lease, err)
		}
		time.Sleep(50 * time.Second)
		if err := lease.Renew(t.Context()); err != nil {
			t.Errorf("after 50 s: %v", err)
		}
	})
}

// Nothing is repeated if no reply of a grant was lost: after an answer that was given
// without asking the store, after misuse, for a turn that is given up, a lease that is
// released, or an ID of the caller.
func TestNoLateGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		pace := weirtest.New(t, st, algorithm.LeakyBucket{Rate: algorithm.PerHour(1), Queue: 5})
		for name, tt := range lateCalls { // the first request opens the circuit, the second is not sent
			undos, breaker := 0, outage.New(&outage.Options{Failures: 1, Probe: time.Hour})
			count := observe.Observer(func(_ context.Context, d observe.Decision) {
				if d.Request.Op != weir.Consume {
					undos++
				}
			})
			l := weirtest.Wrap(t, weirtest.New(t, st, tt.a), count.Wrap, breaker.Wrap)
			for _, want := range []int{4, 0} {
				undos = 0
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if err := tt.call(ctx, l); !errors.Is(err, weir.ErrDenied) || errors.Is(err, store.ErrUnavailable) && name != "Acquire" {
					t.Errorf("%s: got %v, want a denial", name, err)
				}
				cancel()
				time.Sleep(time.Minute)
				if synctest.Wait(); undos != want {
					t.Errorf("%s: %d undos, want %d", name, undos, want)
				}
			}
		}
		st.Set(weirtest.Up)
		jobs := weirtest.New(t, st, oneJob)
		lease, err := jobs.TryAcquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		weirtest.Allow(t, pace, weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never})
		turn, err := pace.Reserve(t.Context(), weir.Request{Key: weir.KeyOf("k"), MaxWait: weir.Never})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		st.Set(weirtest.Down)
		for name, call := range map[string]struct {
			call func() error
			want int64
		}{
			"Release":                  {func() error { _, err := lease.Release(t.Context()); return err }, 1},
			"Wait of a turn":           {func() error { return turn.Wait(ctx) }, 1},
			"a context that has ended": {func() error { _, err := jobs.TryAcquire(ctx, "k"); return err }, 0},
			"misuse":                   {func() error { _, err := jobs.Acquire(overdue{t.Context()}, ""); return err }, 0},
		} {
			asked := st.Asked.Load()
			if err := call.call(); err == nil {
				t.Errorf("%s: got no error", name)
			}
			if time.Sleep(time.Minute); st.Asked.Load() != asked+call.want {
				t.Errorf("%s: the store was asked %d times, want %d", name, st.Asked.Load()-asked, call.want)
			}
		}
		p := &postman{late: []time.Duration{300 * time.Millisecond}}
		st.Set(weirtest.Up)
		own := weirtest.New(t, st, lateCalls["Reserve"].a)
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := p.wrap(t, own).Reserve(short, weir.Request{Key: weir.KeyOf("k"), ID: "mine"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an ID of the caller: got %v", err)
		}
		if time.Sleep(time.Minute); p.undone() != 0 || weirtest.Left(t, own, "k").Remaining != 0 {
			t.Errorf("an ID of the caller was undone")
		}
	})
}
