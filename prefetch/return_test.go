package prefetch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// errLost is the error of a call whose reply was lost.
var errLost = fmt.Errorf("lost: %w", store.ErrUnavailable)

// If a prefetch fails, its caller gets the error. What it consumed comes back with a
// later call, even if returning it failed first, as long as any span of the limit has it.
func TestLost(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{
		{Window: 10 * time.Second, Limit: 1000}, {Window: 100 * time.Second, Limit: 1000},
	}})
	l, log := prefetching(t, other, c, prefetch.Options{})
	lost := map[weir.Op]bool{}
	log.after = func(r weir.Request, _ weir.Result) error {
		if lost[r.Op] {
			return errLost
		}
		return nil
	}
	for range warm(t, l, log, 10) {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	was := weirtest.Left(t, other, "u").Remaining
	lost[weir.TakeUpTo], lost[weir.Settle] = true, true
	if _, err := l.Allow(t.Context(), "u"); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if err := log.pool.Return(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("Return: got %v", err)
	}
	lost[weir.TakeUpTo] = false
	for i, tt := range []struct {
		wait  time.Duration
		fails bool
		want  string
	}{{0, true, "[Consume Settle]"}, {0, false, "[Consume]"}, {time.Second - time.Microsecond, false, "[Consume]"}, {time.Microsecond, true, "[Consume Settle]"}, {11 * time.Second, false, "[Consume Settle]"}, {0, false, "[Consume]"}} {
		c.Advance(tt.wait)
		lost[weir.Settle] = tt.fails
		log.take()
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(weirtest.Number(i))})
		if ops := log.ops(); ops != tt.want {
			t.Errorf("request %d: %s reached the store, want %s", i, ops, tt.want)
		}
	}
	if n := weirtest.Left(t, other, "u").Remaining; n != was {
		t.Errorf("%d tokens remain, want %d", n, was)
	}
}

// During an outage, the held tokens are used. Then the Breaker answers, at once and from
// a share that the prefetch has not used. What a lost reply may have consumed in the
// store comes back after it.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		o             outage.Options
		cost, allowed int64
	}{
		{outage.Options{Fallback: outage.Open}, 1, 301},
		{outage.Options{Fallback: outage.Closed}, 1, 0},
		{outage.Options{Fallback: outage.Local, Processes: 4}, 1, 250},
		{outage.Options{Fallback: outage.Local, Processes: 4}, 80, 3}, // a prefetch consumes 160 tokens
	} {
		t.Run(fmt.Sprint(tt.o.Fallback, tt.cost), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := weirtest.NewFaulty()
				other := weirtest.New(t, st, weirtest.Window(1000, time.Hour))
				l, log := prefetching(t, weirtest.Wrap(t, other, outage.New(&tt.o).Wrap), nil, prefetch.Options{MaxAge: time.Minute})
				fill(t, l, "u")
				held := 900 - weirtest.Left(t, other, "u").Remaining
				st.Set(weirtest.Lost)
				asked, start := st.Asked.Load(), time.Now()
				for range held {
					weirtest.Healthy(t, weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")}), nil)
				}
				if n := st.Asked.Load() - asked; held < 10 || n != 0 {
					t.Fatalf("%d tokens were held, and %d calls made", held, n)
				}
				log.take()
				allowed := int64(0)
				for i := range 301 {
					res, err := l.AllowN(t.Context(), tt.cost, "u")
					if weirtest.Degraded(t, res, err).Allowed {
						allowed++
					}
					if i == 0 && (time.Since(start) != outage.DefaultBudget || res.Allowed && res.Granted != tt.cost || tt.o.Processes > 0 && res.Remaining != 250-tt.cost) {
						t.Errorf("the first answer was %+v after %v", res, time.Since(start))
					}
				}
				if ops := log.ops(); allowed != tt.allowed || ops[:18] != "[TakeUpTo Consume " {
					t.Errorf("%d requests were allowed, want %d; %s reached the Breaker", allowed, tt.allowed, ops)
				}
				if err := log.pool.Return(t.Context()); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("during the outage, Return returned %v, want that the store is unavailable", err)
				}
				st.Set(weirtest.Up)
				time.Sleep(2 * time.Second)
				log.take()
				for range 20 {
					res, err := l.Allow(t.Context(), "u")
					weirtest.Healthy(t, res, err)
				}
				if calls := len(log.take()); calls >= 20 {
					t.Error("nothing was prefetched after the outage")
				}
				if err := log.pool.Return(t.Context()); err != nil {
					t.Fatal(err)
				}
				// The breaker opened after five requests, whose replies were lost. The
				// first was a prefetch.
				if got, want := weirtest.Left(t, other, "u").Remaining, 900-held-4*tt.cost-20; got != want {
					t.Errorf("%d tokens remain, want %d", got, want)
				}
			})
		})
	}
}

// If the answer without the store is not package outage's, the request of a prefetch is
// passed on.
func TestOtherFallback(t *testing.T) {
	t.Parallel()
	st := weirtest.NewFaulty()
	l, log := prefetching(t, weirtest.New(t, st, weirtest.Window(1000, time.Hour)), nil, prefetch.Options{MaxAge: time.Minute},
		weirtest.Around(func(next weir.Decider) failOpen { return failOpen{next} }))
	for range warm(t, l, log, 10) {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	}
	was := weirtest.Left(t, l, "u").Remaining
	log.take()
	st.Set(weirtest.Down)
	for i, want := range []string{"[TakeUpTo Consume]", "[Consume]", "[Consume]"} {
		if res := weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Cost: 3}); res.Degraded == nil || res.Granted != 3 {
			t.Errorf("request %d: got %+v, want the answer of the wrapper", i, res)
		}
		if ops := log.ops(); ops != want {
			t.Errorf("request %d: %s reached the wrapper, want %s", i, ops, want)
		}
	}
	st.Set(weirtest.Up)
	if err := log.pool.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := weirtest.Left(t, l, "u").Remaining; n != was {
		t.Errorf("%d tokens remain, want %d", n, was)
	}
}

// A failOpen allows every request for which the store is unavailable.
type failOpen struct{ next weir.Decider }

func (f failOpen) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	res, err := f.next.Decide(ctx, r, each)
	if errors.Is(err, store.ErrUnavailable) {
		return weir.Result{Allowed: true, Granted: r.Cost, Degraded: err}, nil
	}
	return res, err
}

// A cluster is a tap on the way to servers, of which some are away.
type cluster struct {
	*tap
	l       *weir.Limiter
	next    weir.Decider
	away    map[weir.Key]bool // whose returns hang
	lost    map[weir.Key]bool // whose other calls fail
	trip    time.Duration     // of a return
	tries   int               // to return tokens
	settled []weir.Key        // whose tokens came back
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{away: map[weir.Key]bool{}, lost: map[weir.Key]bool{}}
	c.l, c.tap = prefetching(t, weirtest.New(t, memory.New(nil), weirtest.Window(100_000, 2*time.Hour)), nil, prefetch.Options{},
		weirtest.Around(func(next weir.Decider) *cluster { c.next = next; return c }))
	return c
}

func (c *cluster) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	if r.Op == weir.Settle {
		c.tries++
		late := make(<-chan time.Time)
		if !c.away[r.Key] {
			late = time.After(c.trip)
		}
		select {
		case <-ctx.Done():
			return weir.Result{}, ctx.Err()
		case <-late:
			c.settled = append(c.settled, r.Key)
		}
	}
	res, err := c.next.Decide(ctx, r, each)
	if c.lost[r.Key] {
		return weir.Result{}, errLost
	}
	return res, err
}

// back checks how often tokens of keys came back.
func (c *cluster) back(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if n := len(slices.DeleteFunc(slices.Clone(c.settled), func(k weir.Key) bool { return k != weir.KeyOf(key) })); n != 1 {
			t.Errorf("the tokens of %s came back %d times, want once", key, n)
		}
	}
}

// If the server of some keys does not answer, the return of their tokens delays one
// request of other keys at a time, by one second, and not those of the next second.
// Tokens of other keys come back in between, once each of the others has been tried.
func TestServerAway(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{2, 20} {
		synctest.Test(t, func(t *testing.T) {
			c, names := newCluster(t), []string{}
			for i := range keys {
				names = append(names, weirtest.Number(i))
				c.away[weir.KeyOf(weirtest.Number(i))] = true
			}
			fill(t, c.l, append(names, "b")...)
			time.Sleep(prefetch.DefaultMaxAge)
			c.settled = nil
			start, late := time.Now(), 0
			for i := 0; time.Since(start) < time.Minute; i++ {
				was := time.Now()
				weirtest.Allow(t, c.l, weir.Request{Key: weir.KeyOf("y" + weirtest.Number(i))})
				switch took := time.Since(was); took {
				case 0:
				case time.Second:
					late++
				default:
					t.Errorf("a request took %v", took)
				}
				// A return that fails takes a second, and then there is a pause of a
				// second.
				if time.Sleep(20 * time.Millisecond); time.Since(start) < time.Duration(keys+1)*2100*time.Millisecond && late > keys {
					c.back(t, "b")
				}
			}
			if c.back(t, "b"); late > 30 || late < keys {
				t.Errorf("%d keys: %d requests were late, want at most 30", keys, late)
			}
		})
	}
}

// A key of a server that is away can stay busy: each prefetch of it fails. Tokens of
// other servers still come back, and Return returns them too.
func TestBusyKeyAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a := newCluster(t), weir.KeyOf("a")
		fill(t, c.l, "a", "b", "c")
		c.settled, c.away[a], c.lost[a] = nil, true, true
		time.Sleep(prefetch.DefaultMaxAge)
		for i := range 100 {
			if _, err := c.l.Allow(t.Context(), "a"); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("a request for the server that is away returned %v", err)
			}
			weirtest.Allow(t, c.l, weir.Request{Key: weir.KeyOf(weirtest.Number(i))})
			if i == 50 {
				c.back(t, "b", "c")
				fill(t, c.l, "d")
				c.settled = nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		c.back(t, "d")
		fill(t, c.l, "e")
		c.settled = nil
		if err := c.pool.Return(t.Context()); err == nil {
			t.Error("Return returned no error, want the one of the server that is away")
		}
		c.back(t, "e")
	})
}

// Long after the last failed return, the tokens of a failed prefetch come back first.
func TestLateFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, a, b := newCluster(t), weir.KeyOf("a"), weir.KeyOf("b")
		fill(t, c.l, "a", "b")
		if err := c.pool.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		fill(t, c.l, "b")
		time.Sleep(prefetch.DefaultMaxAge)
		c.lost[a] = true
		if _, err := c.l.Allow(t.Context(), "a"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		c.lost[a], c.settled = false, nil
		if fill(t, c.l, "c"); len(c.settled) < 2 || c.settled[0] != a || c.settled[1] != b {
			t.Errorf("the tokens of %v came back, want those of a and then b", c.settled)
		}
	})
}

// If a return ends with the short deadline of its caller, callers with more time still
// return tokens.
func TestReturnShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.trip = 20 * time.Millisecond
		fill(t, c.l, "a", "b", "c", "d", "e")
		time.Sleep(2 * prefetch.DefaultMaxAge)
		c.tries, c.settled = 0, nil
		for i := range 1000 { // 10 s: nine of ten callers have less than a round trip
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if i%10 == 9 {
				ctx, cancel = context.WithCancel(t.Context())
			}
			if _, err := c.l.Allow(ctx, "z"+weirtest.Number(i)); err != nil {
				t.Fatal(err)
			}
			cancel()
			time.Sleep(10 * time.Millisecond)
		}
		if c.back(t, "a", "b", "c", "d", "e"); c.tries > 15 {
			t.Errorf("5 prefetches came back after %d tries, want at most one more try in each second", c.tries)
		}
	})
}

// If the context ends while Return returns tokens, there is an error, even if the last
// return succeeded. Return ends the use of all tokens.
func TestReturnLate(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(100_000, time.Hour)), c, prefetch.Options{})
	fill(t, l, "a", "b", "c")
	ctx, cancel := context.WithCancel(t.Context())
	log.after = func(weir.Request, weir.Result) error {
		cancel()
		return nil
	}
	log.take()
	if err := log.pool.Return(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context ended", err)
	}
	if err := log.pool.Return(t.Context()); err != nil {
		t.Error(err)
	}
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("a")})
	if ops := log.ops(); ops != "[Settle Settle Settle TakeUpTo]" {
		t.Errorf("%s reached the store, want that each prefetch was returned once, and then another", ops)
	}
}

// A denial that a denycache.Cache around the Pool remembers ends when the Pool returns
// tokens of the key, for whatever reason.
func TestReturnEndsDenials(t *testing.T) {
	t.Parallel()
	for _, why := range []string{"Return", "another key", "the denied request"} {
		c := weirtest.NewClock()
		l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour)), c, prefetch.Options{MaxAge: time.Second})
		l = weirtest.Wrap(t, l, denycache.New(&denycache.Options{MaxAge: time.Hour, Now: c.Now}).Wrap, weirtest.Pass)
		held := warm(t, l, log, 50)
		r := weir.Request{Key: weir.KeyOf("u"), Cost: weirtest.Left(t, l, "u").Remaining + held/2}
		if why == "the denied request" {
			c.Advance(2 * time.Second)
		}
		if res := weirtest.Decide(t, l, r); res.Allowed {
			t.Fatalf("%s: got %+v, want it denied, because the Pool holds %d tokens", why, res, held)
		}
		switch why {
		case "Return":
			if err := log.pool.Return(t.Context()); err != nil {
				t.Error(err)
			}
		case "another key":
			c.Advance(2 * time.Second)
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("v")})
		}
		if res := weirtest.Decide(t, l, r); !res.Allowed {
			t.Errorf("%s: got %+v, want it allowed: the store has all tokens again", why, res)
		}
	}
}
