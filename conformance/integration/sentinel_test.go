package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// TestSentinelsGone calls a store whose client of go-redis does not know a master yet, while no
// sentinel answers. With the settings of docs/reference/stores.md, a call ends near its deadline.
// Without timeouts, it lasts much longer: the client looks for the master under a lock, which it
// awaits and holds without heeding contexts. When the sentinels answer again, calls are served.
func TestSentinelsGone(t *testing.T) {
	notShort(t)
	servers.Need(t)
	const limit, dflt = 300 * time.Millisecond, 5 * time.Second // of a call; the client's timeout by default
	for name, tt := range map[string]struct {
		timeout time.Duration // of the client
		cluster bool          // NewFailoverClusterClient
	}{
		"NewFailoverClient":                             {shortTimeout, false},
		"NewFailoverClusterClient":                      {shortTimeout, true},
		"NewFailoverClusterClient, timeouts by default": {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			progress(t)
			s := servers.NewSentinel(t, "redis-8.0")
			o := &redis.FailoverOptions{
				MasterName: s.Master, SentinelAddrs: s.Addrs, MaxRetries: -1, ContextTimeoutEnabled: true,
				DialTimeout: tt.timeout, ReadTimeout: tt.timeout, WriteTimeout: tt.timeout,
			}
			dialOnce(o)
			limiter := func() *weir.Limiter { // over a client of its own
				var c redis.UniversalClient
				if tt.cluster {
					c = redis.NewFailoverClusterClient(o)
				} else {
					c = redis.NewFailoverClient(o)
				}
				t.Cleanup(func() { _ = c.Close() })
				return newLimiter(t, goredis.New(c), "sentinels", algorithm.FixedWindow{Limit: 1_000_000, Window: time.Hour})
			}
			call := func(lim *weir.Limiter) (time.Duration, error) {
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				start := time.Now()
				_, err := lim.Allow(ctx, "ann")
				return time.Since(start), err
			}
			slowest := func(lim *weir.Limiter) (d time.Duration) { // of concurrent calls
				var mu sync.Mutex
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						took, err := call(lim)
						if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("got %v, want ErrUnavailable or DeadlineExceeded", err)
						}
						mu.Lock()
						defer mu.Unlock()
						d = max(d, took)
					})
				}
				wg.Wait()
				t.Logf("the slowest call took %v, with a deadline of %v", d.Round(time.Millisecond), limit)
				return d
			}
			for _, n := range s.Sentinels {
				n.Pause(t)
			}
			lim := limiter()
			took := slowest(lim)
			// Versions without DialerRetries may differ. On a busy machine, all contexts can end
			// before a call has the lock, so several clients try. The other calls have no bound
			// here: a busy machine can be late.
			if tt.timeout == 0 && hasDialerRetries(o) {
				for n := 1; n < 10 && took < dflt-limit; n++ {
					lim = limiter()
					took = slowest(lim)
				}
				if took < dflt-limit {
					t.Errorf("the slowest call took %v, want about %v or more: go-redis has mended this, so the docs must change", took, dflt)
				}
			}
			for _, n := range s.Sentinels {
				n.Unpause(t)
			}
			await(t, "a call to be served", func() bool { _, err := call(lim); return err == nil })
		})
	}
}
