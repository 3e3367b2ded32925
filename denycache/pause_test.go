package denycache_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// A denial by a pause is remembered until the pause ends. A Pause and a Resume through
// the limiter forget it, and one of another process is noticed after MaxAge.
func TestDenyCachePause(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	bare := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}, weir.Rule{Name: "rate", Algorithm: weirtest.PerSecond}))
	l, n := cached(t, bare, c, denycache.Options{})
	ask := func(want time.Duration, reaches bool) {
		t.Helper()
		before := *n
		res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("u")}, make([]weir.Result, 2)...)
		if res.RetryAfter != want || want > 0 && res.Rule != "pause" || (*n > before) != reaches {
			t.Errorf("got %+v, of the store: %v, want the RetryAfter %v, of the store: %v", res, *n > before, want, reaches)
		}
	}
	pause := func(d time.Duration) string {
		t.Helper()
		id, err := l.Pause(t.Context(), d, "u")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	id := pause(10 * time.Second)
	ask(10*time.Second, true)
	c.Advance(500 * time.Millisecond)
	ask(9500*time.Millisecond, false)
	pause(20 * time.Second)
	ask(20*time.Second, true)
	for range 2 {
		if _, err := l.Resume(t.Context(), id, "u"); err != nil {
			t.Fatal(err)
		}
		ask(20*time.Second, true)
		ask(20*time.Second, false)
	}
	weirtest.Decide(t, bare, weir.Request{Key: weir.KeyOf("u"), Op: weir.Reset}) // by another process
	ask(20*time.Second, false)
	c.Advance(denycache.DefaultMaxAge)
	ask(0, true)
	pause(100 * time.Millisecond)
	ask(100*time.Millisecond, true)
	c.Advance(100 * time.Millisecond)
	ask(0, true)
}
