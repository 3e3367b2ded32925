package integration

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// TestDialerRetries checks that package outage rejects a client of go-redis that dials a
// server again and again, and that such a server is refused after one dial otherwise.
func TestDialerRetries(t *testing.T) {
	t.Parallel()
	type dialer = func(context.Context, string, string) (net.Conn, error)
	addr := "127.0.0.1:1"
	for name, newClient := range map[string]func(dialer dialer, once bool) redis.UniversalClient{
		"single": func(dialer dialer, once bool) redis.UniversalClient {
			o := &redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, Dialer: dialer}
			return redis.NewClient(options(o, once))
		},
		"wrapped": func(dialer dialer, once bool) redis.UniversalClient {
			o := &redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, Dialer: dialer}
			return struct{ *redis.Client }{redis.NewClient(options(o, once))}
		},
		"sentinel": func(dialer dialer, once bool) redis.UniversalClient {
			o := &redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{addr}, MaxRetries: -1, ContextTimeoutEnabled: true, Dialer: dialer}
			return redis.NewFailoverClient(options(o, once))
		},
		"cluster": func(dialer dialer, once bool) redis.UniversalClient {
			o := &redis.ClusterOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true, Dialer: dialer}
			return redis.NewClusterClient(options(o, once))
		},
	} {
		for _, once := range []bool{false, true} {
			// Each client counts its own: some dial again after their call has returned.
			var dials atomic.Int64
			c := newClient(func(context.Context, string, string) (net.Conn, error) {
				dials.Add(1)
				return nil, syscall.ECONNREFUSED
			}, once)
			t.Cleanup(func() { _ = c.Close() })
			lim := newLimiter(t, goredis.New(c), "dial", algorithm.FixedWindow{Limit: 1, Window: time.Hour})
			_, err := lim.Wrap(outage.New(nil).Wrap)
			if !once && hasDialerRetries(&redis.ClusterOptions{}) {
				if err == nil || !strings.Contains(err.Error(), "set DialerRetries to 1") {
					t.Errorf("%s: got %v, want that DialerRetries must be set", name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: dials once: %v: got %v", name, once, err)
			}
			if _, err := lim.Allow(t.Context(), "ann"); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %v, want %v", name, err, store.ErrUnavailable)
			}
			// A client of a cluster dials for the topology, and then a random node.
			if n := dials.Load(); name != "sentinel" && name != "cluster" && n != 1 {
				t.Errorf("%s: the client dialled %d times, want once", name, n)
			}
		}
	}
}

// options returns o, with DialerRetries 1 if once is true and this version has that
// field.
func options[O any](o *O, once bool) *O {
	if once {
		return dialOnce(o)
	}
	return o
}
