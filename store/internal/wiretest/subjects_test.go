package wiretest

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"
	valkeyclient "github.com/valkey-io/valkey-go"

	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/redigo"
	"github.com/weir-go/weir/store/rueidis"
	"github.com/weir-go/weir/store/valkey"
)

// unseen is the type of an embedded field that is not exported, so goredis cannot see
// what it holds.
type unseen = redis.UniversalClient

var goredisSubject = subject{
	name:        "goredis",
	kinds:       []kind{single, cluster, unknown},
	resp3:       true,
	follows:     true,
	unavailable: []string{"HTTP/1.1 400 Bad Request\r\n"},
	open: func(t *testing.T, addr string, o options) (Store, func()) {
		var c redis.UniversalClient
		if o.kind == cluster {
			c = redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{addr}, MaxRedirects: -1, DialTimeout: dialTimeout, ReadTimeout: o.timeout, ContextTimeoutEnabled: true, Dialer: o.dial,
			})
		} else {
			c = redis.NewClient(&redis.Options{
				Addr: addr, MaxRetries: -1, DialTimeout: dialTimeout, ReadTimeout: o.timeout, ContextTimeoutEnabled: true, Dialer: o.dial,
			})
		}
		shut := func() { _ = c.Close() }
		if o.kind == unknown {
			c = struct{ unseen }{c}
		}
		return goredis.New(c), shut
	},
}

var redigoSubject = subject{
	name:    "redigo",
	kinds:   []kind{single, cluster},
	prompt:  map[kind]bool{single: true},
	follows: true,
	// A pool follows no redirections.
	unavailable: []string{"HTTP/1.1 400 Bad Request\r\n", "-MOVED 3999 127.0.0.1:1\r\n"},
	open: func(_ *testing.T, addr string, o options) (Store, func()) {
		dial := []redigoclient.DialOption{redigoclient.DialConnectTimeout(dialTimeout), redigoclient.DialReadTimeout(o.timeout)}
		if o.dial != nil {
			dial = append(dial, redigoclient.DialContextFunc(o.dial))
		}
		pool := func(addr string, _ ...redigoclient.DialOption) (*redigoclient.Pool, error) {
			return &redigoclient.Pool{
				MaxIdle: 10,
				DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
					return redigoclient.DialContext(ctx, "tcp", addr, dial...)
				},
			}, nil
		}
		if o.kind == cluster {
			c := &redisc.Cluster{StartupNodes: []string{addr}, CreatePool: pool}
			return redigo.NewCluster(c), func() { _ = c.Close() }
		}
		p, _ := pool(addr)
		return redigo.New(p), func() { _ = p.Close() }
	},
}

// A rueidisModeless client has no mode.
type rueidisModeless struct{ rueidisclient.Client }

func (rueidisModeless) Mode() rueidisclient.ClientMode { return "" }

var rueidisSubject = subject{
	name:   "rueidis",
	kinds:  []kind{single, cluster, unknown, pipelined},
	prompt: map[kind]bool{single: true, cluster: true, unknown: true, pipelined: true},
	resp3:  true,
	open: func(t *testing.T, addr string, o options) (Store, func()) {
		option := rueidisclient.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: o.kind == single || o.kind == pipelined, AlwaysRESP2: true, DisableCache: true, DisableRetry: true,
			AlwaysPipelining: o.kind == pipelined, PipelineMultiplex: -1, Dialer: net.Dialer{Timeout: dialTimeout}, ConnWriteTimeout: o.timeout,
		}
		if o.dial != nil {
			option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return o.dial(ctx, "tcp", addr)
			}
		}
		c := connect(t, func() (rueidisclient.Client, error) { return rueidisclient.NewClient(option) }, o)
		if o.kind == unknown {
			return rueidis.New(rueidisModeless{c}), c.Close
		}
		return rueidis.New(c), c.Close
	},
}

// A valkeyModeless client has no mode.
type valkeyModeless struct{ valkeyclient.Client }

func (valkeyModeless) Mode() valkeyclient.ClientMode { return "" }

var valkeySubject = subject{
	name:   "valkey",
	kinds:  rueidisSubject.kinds,
	prompt: rueidisSubject.prompt,
	resp3:  true,
	open: func(t *testing.T, addr string, o options) (Store, func()) {
		option := valkeyclient.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: o.kind == single || o.kind == pipelined, AlwaysRESP2: true, DisableCache: true, DisableRetry: true,
			AlwaysPipelining: o.kind == pipelined, PipelineMultiplex: -1, Dialer: net.Dialer{Timeout: dialTimeout}, ConnWriteTimeout: o.timeout,
		}
		if o.dial != nil {
			option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return o.dial(ctx, "tcp", addr)
			}
		}
		c := connect(t, func() (valkeyclient.Client, error) { return valkeyclient.NewClient(option) }, o)
		if o.kind == unknown {
			return valkey.New(valkeyModeless{c}), c.Close
		}
		return valkey.New(c), c.Close
	},
}

// connect returns a client of dial, which connects. On a busy machine, a short timeout can
// pass meanwhile. If the options say that no connection can be made, the client comes beside
// an error.
func connect[C interface{ Close() }](t *testing.T, dial func() (C, error), o options) C {
	t.Helper()
	c, err := dial()
	for deadline := time.Now().Add(time.Minute); err != nil && o.dial == nil; c, err = dial() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	return c
}
