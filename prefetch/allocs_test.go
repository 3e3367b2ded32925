package prefetch_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
)

// A decision from held tokens allocates nothing.
func TestAllocations(t *testing.T) {
	l, _ := prefetching(t, weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Window(1<<40, time.Hour)), nil, prefetch.Options{MaxTokens: 1 << 20, MaxAge: time.Hour})
	ctx := t.Context()
	ask := func() {
		if res, err := l.Allow(ctx, "u"); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
	}
	for range 1 << 14 {
		ask()
	}
	if weirtest.Race {
		t.Skip("the race detector allocates")
	}
	if n := testing.AllocsPerRun(100, ask); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}
