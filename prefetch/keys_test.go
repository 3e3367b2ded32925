package prefetch_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/prefetch"
)

// More keys than places are decided one by one. The tokens of a key that is no longer
// used come back when another key needs its place.
func TestPrefetchPlaces(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour))
	l, log := prefetching(t, other, c, prefetch.Options{MaxKeys: 1}) // four places
	use := func(key string) {
		for range 100 {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(key)})
		}
	}
	for i := range 4 {
		use(weirtest.Number(i))
	}
	log.take()
	if use("other"); len(log.take()) != 100 {
		t.Error("a fifth key has tokens")
	}
	c.Advance(2 * time.Second)
	if use("other"); len(log.take()) > 20 {
		t.Error("a new key has no tokens, but the other keys are not used any more")
	}
	if err := log.pool.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if n := weirtest.Left(t, other, weirtest.Number(i)).Remaining; n != 900 {
			t.Errorf("key %d: %d tokens remain, want 900", i, n)
		}
	}
	long := string(make([]byte, 2000))
	for range 20 {
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(long)})
	}
	if n := len(log.take()); n < 20 {
		t.Errorf("20 requests of a long key took %d calls, want 20", n)
	}
}

// A key that is used keeps its place and its tokens, even if it is used while another
// key, which needs a place, waits for the store.
func TestPrefetchKeepsPlaces(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(100_000, time.Hour)), c, prefetch.Options{MaxKeys: 4})
	use := func() {
		c.Advance(time.Millisecond)
		for i := range 4 {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(weirtest.Number(i))})
		}
	}
	for range 1000 {
		use()
	}
	log.before = func(_ context.Context, r weir.Request) {
		if r.Key == weir.KeyOf("other") {
			log.before = nil
			use()
		}
	}
	held := log.pool.Held(l, weirtest.Number(0))
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("other")})
	for i := range 4 {
		if got, want := log.pool.Held(l, weirtest.Number(i)), held-1; got != want || want < 2 {
			t.Errorf("key %d: %d tokens are held, want %d", i, got, want)
		}
	}
}

// A denial that a denycache.Cache around the Pool remembers ends when the Pool returns
// tokens of the key, for whatever reason.
func TestReturnEndsDenials(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(t *testing.T, pool *prefetch.Pool, c *weirtest.Clock, l *weir.Limiter, denied func()){
		"Return": func(t *testing.T, pool *prefetch.Pool, _ *weirtest.Clock, _ *weir.Limiter, denied func()) {
			denied()
			if err := pool.Return(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"another key": func(t *testing.T, _ *prefetch.Pool, c *weirtest.Clock, l *weir.Limiter, denied func()) {
			denied()
			c.Advance(2 * time.Second)
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("v")})
		},
		"the denied request": func(_ *testing.T, _ *prefetch.Pool, c *weirtest.Clock, _ *weir.Limiter, denied func()) {
			c.Advance(2 * time.Second)
			denied()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour)), c, prefetch.Options{MaxAge: time.Second})
			l = weirtest.Wrap(t, l, denycache.New(&denycache.Options{MaxAge: time.Hour, Now: c.Now}).Wrap, weirtest.Pass)
			held := warm(t, l, log, 50)
			r := weir.Request{Key: weir.KeyOf("u"), Cost: weirtest.Left(t, l, "u").Remaining + held/2}
			back(t, log.pool, c, l, func() {
				if res := weirtest.Decide(t, l, r); res.Allowed {
					t.Fatalf("got %+v, want it denied, because the Pool holds %d tokens", res, held)
				}
			})
			if res := weirtest.Decide(t, l, r); !res.Allowed {
				t.Errorf("got %+v, want it allowed: the store has all tokens again", res)
			}
		})
	}
}
