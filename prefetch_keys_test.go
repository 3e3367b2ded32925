package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-go/weir"
)

// More keys than places are decided one by one. The tokens of a key that is no longer used come
// back when another key needs its place.
func TestPrefetchPlaces(t *testing.T) {
	t.Parallel()
	c := newClock()
	other := mustNew(t, newStore(c), window(1000, time.Hour))
	l, log := prefetching(t, other, c, weir.Prefetch{MaxKeys: 1}) // four places
	use := func(key string) {
		for range 100 {
			allow(t, l, weir.Request{Key: weir.KeyOf(key)})
		}
	}
	for i := range 4 {
		use(number(i))
	}
	log.take()
	if use("other"); len(log.take()) != 100 {
		t.Error("a fifth key has tokens")
	}
	c.advance(2 * time.Second)
	if use("other"); len(log.take()) > 20 {
		t.Error("a new key has no tokens, but the other keys are not used any more")
	}
	if err := l.ReturnPrefetched(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if n := left(t, other, number(i)).Remaining; n != 900 {
			t.Errorf("key %d: %d tokens remain, want 900", i, n)
		}
	}
	long := string(make([]byte, 2000))
	for range 20 {
		allow(t, l, weir.Request{Key: weir.KeyOf(long)})
	}
	if n := len(log.take()); n < 20 {
		t.Errorf("20 requests of a long key took %d calls, want 20", n)
	}
}

// A key that is used keeps its place and its tokens, also if it is used while another key, which
// needs a place, waits for the store.
func TestPrefetchKeepsPlaces(t *testing.T) {
	t.Parallel()
	c := newClock()
	l, log := prefetching(t, mustNew(t, newStore(c), window(100_000, time.Hour)), c, weir.Prefetch{MaxKeys: 4})
	use := func() {
		c.advance(time.Millisecond)
		for i := range 4 {
			allow(t, l, weir.Request{Key: weir.KeyOf(number(i))})
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
	held := l.Held(number(0))
	allow(t, l, weir.Request{Key: weir.KeyOf("other")})
	for i := range 4 {
		if got, want := l.Held(number(i)), held-1; got != want || want < 2 {
			t.Errorf("key %d: %d tokens are held, want %d", i, got, want)
		}
	}
}
