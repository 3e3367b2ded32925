package prefetch_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
)

// More keys than places are decided one by one. The tokens of a key that is no longer
// used come back when another key needs its place.
func TestPlaces(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour))
	l, log := prefetching(t, other, c, prefetch.Options{MaxKeys: 1}) // four places
	use := func(key string, least, most int) {
		log.take()
		for range 100 {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf(key)})
		}
		if n := len(log.take()); n < least || n > most {
			t.Errorf("100 requests of the key %.9s took %d calls, want from %d to %d", key, n, least, most)
		}
	}
	for i := range 4 {
		use(weirtest.Number(i), 1, 20)
	}
	use("a fifth", 100, 100)
	use(string(make([]byte, 2000)), 100, 100)
	c.Advance(2 * time.Second)
	use(string(make([]byte, 2000)), 100, 104) // and tokens of four keys come back
	use("a fifth", 1, 20)
	if err := log.pool.Return(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if n := weirtest.Left(t, other, weirtest.Number(i)).Remaining; n != 900 {
			t.Errorf("key %d: %d tokens remain, want 900", i, n)
		}
	}
}

// A key that is used keeps its place and its tokens, even if it is used while another
// key, which needs a place, waits for the store.
func TestKeepsPlaces(t *testing.T) {
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

// Limiters with the same keys and limits share held tokens, and others do not. Over
// another store, they cannot share a Pool.
func TestShared(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	spans := func(window time.Duration) algorithm.SlidingBuckets {
		return algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: window, Limit: 1000}}}
	}
	a, b := weir.Rule{Name: "a", Algorithm: weirtest.Window(1000, time.Hour)}, weir.Rule{Name: "b", Algorithm: spans(5 * time.Second)}
	policy := func(name string, opts *weir.Options) *weir.Limiter {
		l, err := weir.NewPolicy(st, weir.Policy{Name: name, Rules: []weir.Rule{a, b}}, opts)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l, log := prefetching(t, policy("t", nil), c, prefetch.Options{})
	shared := func(l *weir.Limiter) *weir.Limiter { return weirtest.Wrap(t, l, log.pool.Wrap, log.wrap) }
	warm(t, l, log, 10)
	warm(t, weirtest.Only(t, l, "a"), log, 10)
	for name, tt := range map[string]struct {
		l    *weir.Limiter
		want string
	}{
		"the limiter":    {weirtest.Wrap(t, l), "[]"},
		"the same limit": {weirtest.With(t, l, a), "[]"},
		"another limit":  {weirtest.With(t, l, weir.Rule{Name: "a", Algorithm: weirtest.Window(999, time.Hour)}), "[Consume]"},
		"another span":   {weirtest.With(t, l, weir.Rule{Name: "b", Algorithm: spans(10 * time.Second)}), "[Consume]"},
		"the first rule": {weirtest.Only(t, l, "a"), "[]"},
		"the other rule": {weirtest.Only(t, l, "b"), "[Consume]"},
		"the same keys":  {shared(policy("t", nil)), "[]"},
		"another name":   {shared(policy("other", nil)), "[Consume]"},
		"another prefix": {shared(policy("t", &weir.Options{Prefix: "p"})), "[Consume]"},
	} {
		weirtest.Allow(t, tt.l, weir.Request{Key: weir.KeyOf("u")})
		if ops := log.ops(); ops != tt.want {
			t.Errorf("%s: %s reached the store, want %s", name, ops, tt.want)
		}
	}
	_, err := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour)).Wrap(log.pool.Wrap)
	wantError(t, err, nil, "limiter over another store: make a Pool for each store")
}

// A Reset ends the use of the held tokens, including those of a prefetch that is under
// way.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, during := range []bool{false, true} {
		c := weirtest.NewClock()
		other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour))
		l, log := prefetching(t, other, c, prefetch.Options{})
		warm(t, l, log, 10)
		plan := weirtest.With(t, l, weir.Rule{Algorithm: weirtest.Window(1000, time.Hour)})
		reset := func() {
			if err := plan.Reset(t.Context(), "u"); err != nil {
				t.Error(err)
			}
		}
		if during {
			log.before = func(_ context.Context, r weir.Request) {
				if r.Op == weir.TakeUpTo {
					log.before = nil
					reset()
				}
			}
			for log.before != nil {
				weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			}
		} else {
			reset()
		}
		was := weirtest.Left(t, other, "u").Remaining
		log.take()
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		if calls := log.take(); len(calls) == 0 || calls[0].Op != weir.TakeUpTo {
			t.Errorf("during a prefetch %v: %v reached the store, want that no token was held", during, calls)
		}
		if err := log.pool.Return(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := weirtest.Left(t, other, "u").Remaining; was < 900 || got < 998 {
			t.Errorf("during a prefetch %v: %d tokens remain, then %d", during, was, got)
		}
	}
}
