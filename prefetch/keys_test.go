package prefetch_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/prefetch"
)

// More keys than places are decided one by one. The tokens of a key that is no longer used come
// back when another key needs its place.
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

// A key that is used keeps its place and its tokens, also if it is used while another key, which
// needs a place, waits for the store.
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
