package prefetch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
)

// A spent is a number of tokens that a request used at a time.
type spent struct {
	at time.Duration
	n  int64
}

// A charge is what a prefetch consumed.
type charge struct {
	at    time.Duration
	worth time.Duration // when the limit is as if it had not been made
	n     int64         // tokens, as it was last settled
	used  int64
}

// A process is a limiter that prefetches, with a record of what it asks for.
type process struct {
	*weir.Limiter
	pool    *prefetch.Pool
	c       *weirtest.Clock
	maxAge  time.Duration
	charges map[string]*charge
	current *charge // whose tokens answer requests
	fresh   *charge // made by the last request
	alone   bool    // the store decided the last request by itself
}

// newProcess returns a process over l. If lose returns true, the reply to a prefetch or
// to a Settle is lost.
func newProcess(t *testing.T, l *weir.Limiter, c *weirtest.Clock, p prefetch.Options, lose func() bool) *process {
	t.Helper()
	p.Now = c.Now
	out := &process{c: c, maxAge: p.MaxAge, charges: map[string]*charge{}}
	out.pool = prefetch.New(&p)
	out.Limiter = weirtest.Wrap(t, l, out.pool.Wrap, (&tap{
		before: func(_ context.Context, r weir.Request) { out.alone = out.alone || r.Op == weir.Consume },
		after: func(r weir.Request, res weir.Result) error {
			lost := (r.Op == weir.TakeUpTo || r.Op == weir.Settle) && lose()
			switch r.Op {
			case weir.TakeUpTo:
				now := c.Now().Sub(weirtest.Epoch)
				one := &charge{at: now, worth: now + min(res.ResetAfter, 10*time.Second), n: res.Granted}
				if out.charges[r.ID] = one; !lost {
					out.fresh = one
				}
			case weir.Settle:
				n, _ := r.Actual.Cost()
				if one := out.charges[r.ID]; one.n < n && res.Allowed {
					t.Errorf("a prefetch of %d tokens was settled at %d", one.n, n)
				} else if res.Allowed {
					one.n = n
				}
			}
			if lost {
				return fmt.Errorf("lost: %w", store.ErrUnavailable)
			}
			return nil
		},
	}).wrap)
	return out
}

// allow makes a request, and reports whether it was allowed. A token must have been
// consumed less than MaxAge before it is used.
func (p *process) allow(t *testing.T, cost int64) bool {
	t.Helper()
	p.alone, p.fresh = false, nil
	res, err := p.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Cost: cost}, nil)
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	if !res.Allowed || p.alone {
		return res.Allowed
	}
	if p.fresh != nil {
		p.current = p.fresh
	}
	p.current.used += cost
	if age := p.c.Now().Sub(weirtest.Epoch) - p.current.at; p.current.used > p.current.n || age < 0 || age >= p.maxAge {
		t.Fatalf("%d tokens were used of %d that were consumed %v before; MaxAge is %v", p.current.used, p.current.n, age, p.maxAge)
	}
	return true
}

// returned checks that exactly the used tokens are consumed in the end.
func (p *process) returned() error {
	now := p.c.Now().Sub(weirtest.Epoch)
	for _, one := range p.charges {
		if one.used > one.n || one.used < one.n && now < one.worth {
			return fmt.Errorf("a prefetch consumed %d tokens at %v, but %d were used until %v", one.n, one.at, one.used, now)
		}
	}
	return nil
}

// In random histories of several processes, each token is consumed before it is used, and
// at most MaxAge before. At the end, everything that was not used is returned, even if
// replies were lost.
func TestPrefetchModel(t *testing.T) {
	t.Parallel()
	for _, a := range prefetchable {
		for _, faults := range []bool{false, true} {
			t.Run(fmt.Sprintf("%T/%v", a, faults), func(t *testing.T) {
				t.Parallel()
				prefetched, all := 0, 0
				for range 8 {
					n, m := prefetchHistory(t, a, faults, rand.Uint64())
					prefetched, all = prefetched+n, all+m
				}
				t.Logf("%d tokens of %d requests were prefetched", prefetched, all)
				if prefetched < all/4 {
					t.Errorf("%d tokens of %d requests were prefetched, want more", prefetched, all)
				}
			})
		}
	}
}

func prefetchHistory(t *testing.T, a algorithm.Algorithm, faults bool, seed uint64) (prefetched, all int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	c := weirtest.NewClock()
	maxAge := []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[rng.IntN(3)]
	other := weirtest.New(t, weirtest.NewStore(c), a)
	working := false
	processes := make([]*process, 1+rng.IntN(4))
	for i := range processes {
		p := prefetch.Options{MaxAge: maxAge, MaxTokens: 2 + rng.Int64N(200)}
		processes[i] = newProcess(t, other, c, p, func() bool { return faults && !working && rng.IntN(8) == 0 })
	}
	mean := 1 + rng.Int64N(3000)
	var allowed []spent
	for range 1500 {
		c.Advance(time.Duration(rng.Int64N(2*mean)) * time.Microsecond)
		if rng.IntN(200) == 0 {
			c.Advance(time.Duration(rng.Int64N(6_000_000)) * time.Microsecond)
			mean = 1 + rng.Int64N(3000)
		}
		p := processes[rng.IntN(1+rng.IntN(len(processes)))]
		cost := 1 + rng.Int64N(1+rng.Int64N(4))
		if p.allow(t, cost) {
			allowed = append(allowed, spent{c.Now().Sub(weirtest.Epoch), cost})
		}
		if rng.IntN(300) == 0 {
			_ = p.pool.Return(t.Context())
		}
	}
	working = true
	for i, p := range processes {
		if err := p.pool.Return(t.Context()); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := p.returned(); err != nil {
			t.Fatalf("seed %d, process %d: %v", seed, i, err)
		}
		for _, one := range p.charges {
			prefetched += int(one.used)
		}
	}
	if err := bounded(a, allowed, maxAge); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return prefetched, len(allowed)
}

// bounded checks the bounds of what a limit of 1,000 tokens allows in any span, with that
// MaxAge.
func bounded(a algorithm.Algorithm, allowed []spent, maxAge time.Duration) error {
	level := func(rate, capacity int64) error { // of a bucket that leaks
		var level, last int64 // millionths of a token, microseconds
		for _, u := range allowed {
			at := u.at.Microseconds()
			level, last = max(level-(at-last)*rate, 0)+u.n*1e6, at
			if level > capacity*1e6 {
				return fmt.Errorf("at %v: more was allowed than %d tokens and %d per second", u.at, capacity, rate)
			}
		}
		return nil
	}
	within := func(d time.Duration) error { // at most 1,000 in any such span
		first, sum := 0, int64(0)
		for _, u := range allowed {
			for sum += u.n; allowed[first].at <= u.at-d; first++ {
				sum -= allowed[first].n
			}
			if sum > 1000 {
				return fmt.Errorf("at %v: %d tokens were allowed within %v, want at most 1000", u.at, sum, d)
			}
		}
		return nil
	}
	ageTokens := func(rate int64) int64 { return 1000 + (rate*maxAge.Microseconds()+999_999)/1_000_000 }
	switch a := a.(type) {
	case algorithm.GCRA:
		return level(a.Rate.Count, ageTokens(a.Rate.Count))
	case algorithm.TokenBucket:
		if !a.AtOnce {
			return level(a.Refill.Count, ageTokens(a.Refill.Count))
		}
	case *algorithm.SlidingLog:
		return within(10*time.Second - maxAge)
	case algorithm.SlidingBuckets:
		return within(10*time.Second - a.Width - maxAge)
	case algorithm.FixedWindow:
		var end time.Duration
		sum := int64(0)
		for _, u := range allowed {
			if u.at >= end {
				sum, end = 0, u.at+10*time.Second
				if a.Aligned {
					end = u.at - (u.at % (10 * time.Second)) + 10*time.Second
				}
			}
			if sum += u.n; sum > 1000 {
				return fmt.Errorf("at %v: %d tokens were allowed in a window, want at most 1000", u.at, sum)
			}
		}
	}
	return nil
}
