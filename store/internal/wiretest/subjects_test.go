package wiretest

import (
	"context"
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

// The timeouts of the clients, which retry nothing.
const (
	dialTimeout = time.Second
	readTimeout = 5 * time.Second
)

// unseen is the type of an embedded field that is not exported, so goredis cannot see
// what it holds.
type unseen = redis.UniversalClient

func goredisSubject() subject {
	client := func(t *testing.T, addr string) *redis.Client {
		c := redis.NewClient(&redis.Options{
			Addr: addr, MaxRetries: -1, DialTimeout: dialTimeout, ReadTimeout: readTimeout, ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	single := func(t *testing.T, addr string) Store { return goredis.New(client(t, addr)) }
	return subject{
		name:   "goredis",
		single: single,
		cluster: func(t *testing.T, addr string) Store {
			c := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{addr}, MaxRedirects: -1, DialTimeout: dialTimeout, ReadTimeout: readTimeout, ContextTimeoutEnabled: true,
			})
			t.Cleanup(func() { _ = c.Close() })
			return goredis.New(c)
		},
		unknown: func(t *testing.T, addr string) Store {
			return goredis.New(struct{ unseen }{client(t, addr)})
		},
		pipelined:   single,
		resp3:       true,
		unavailable: []string{"HTTP/1.1 400 Bad Request\r\n"},
	}
}

func redigoSubject() subject {
	pool := func(addr string, _ ...redigoclient.DialOption) (*redigoclient.Pool, error) {
		return &redigoclient.Pool{
			MaxIdle: 10,
			DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
				return redigoclient.DialContext(ctx, "tcp", addr,
					redigoclient.DialConnectTimeout(dialTimeout), redigoclient.DialReadTimeout(readTimeout))
			},
		}, nil
	}
	single := func(t *testing.T, addr string) Store {
		p, _ := pool(addr)
		t.Cleanup(func() { _ = p.Close() })
		return redigo.New(p)
	}
	return subject{
		name:   "redigo",
		single: single,
		cluster: func(t *testing.T, addr string) Store {
			c := &redisc.Cluster{StartupNodes: []string{addr}, CreatePool: pool}
			t.Cleanup(func() { _ = c.Close() })
			return redigo.NewCluster(c)
		},
		pipelined: single,
		// A pool follows no redirections.
		unavailable: []string{"HTTP/1.1 400 Bad Request\r\n", "-MOVED 3999 127.0.0.1:1\r\n"},
	}
}

// A rueidisModeless client has no mode.
type rueidisModeless struct{ rueidisclient.Client }

func (rueidisModeless) Mode() rueidisclient.ClientMode { return "" }

func rueidisSubject() subject {
	open := func(t *testing.T, addr string, cluster, pipelining bool) rueidisclient.Client {
		t.Helper()
		c, err := rueidisclient.NewClient(rueidisclient.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: !cluster, AlwaysRESP2: true, DisableCache: true, DisableRetry: true,
			AlwaysPipelining: pipelining, PipelineMultiplex: -1, Dialer: net.Dialer{Timeout: dialTimeout}, ConnWriteTimeout: readTimeout,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	return subject{
		name:      "rueidis",
		single:    func(t *testing.T, addr string) Store { return rueidis.New(open(t, addr, false, false)) },
		cluster:   func(t *testing.T, addr string) Store { return rueidis.New(open(t, addr, true, false)) },
		unknown:   func(t *testing.T, addr string) Store { return rueidis.New(rueidisModeless{open(t, addr, true, false)}) },
		pipelined: func(t *testing.T, addr string) Store { return rueidis.New(open(t, addr, false, true)) },
		resp3:     true,
	}
}

// A valkeyModeless client has no mode.
type valkeyModeless struct{ valkeyclient.Client }

func (valkeyModeless) Mode() valkeyclient.ClientMode { return "" }

func valkeySubject() subject {
	open := func(t *testing.T, addr string, cluster, pipelining bool) valkeyclient.Client {
		t.Helper()
		c, err := valkeyclient.NewClient(valkeyclient.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: !cluster, AlwaysRESP2: true, DisableCache: true, DisableRetry: true,
			AlwaysPipelining: pipelining, PipelineMultiplex: -1, Dialer: net.Dialer{Timeout: dialTimeout}, ConnWriteTimeout: readTimeout,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	return subject{
		name:      "valkey",
		single:    func(t *testing.T, addr string) Store { return valkey.New(open(t, addr, false, false)) },
		cluster:   func(t *testing.T, addr string) Store { return valkey.New(open(t, addr, true, false)) },
		unknown:   func(t *testing.T, addr string) Store { return valkey.New(valkeyModeless{open(t, addr, true, false)}) },
		pipelined: func(t *testing.T, addr string) Store { return valkey.New(open(t, addr, false, true)) },
		resp3:     true,
	}
}
