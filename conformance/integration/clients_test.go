package integration

import (
	"context"
	"net"
	"reflect"
	"sync"
	"time"

	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"
	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/redigo"
	"github.com/weir-go/weir/store/rueidis"
)

// This file makes the clients. Those of fault tests are bounded: they have the settings of
// docs/reference/stores.md.

// These are timeouts of clients.
const (
	// shortTimeout ends a call before the deadlines of the fault tests.
	shortTimeout = 200 * time.Millisecond
	// longTimeout ends no call that a context or a limiter bounds, also on a busy machine.
	longTimeout = time.Minute
)

// conns is the number of connections of a pool.
const conns = 16

func boundedGoredis(e servers.Endpoint, timeout time.Duration) (store.Store, func(), error) {
	return goredisOf(e, -1, timeout)
}

// retryingGoredis retries as many times as go-redis does by default. Its timeout is so
// short that it retries before the caller's deadline.
func retryingGoredis(e servers.Endpoint, timeout time.Duration) (store.Store, func(), error) {
	return goredisOf(e, 0, timeout/2)
}

func openGoredis(e servers.Endpoint) (store.Store, func(), error) {
	c := servers.Dial(e)
	return goredis.New(c), sync.OnceFunc(func() { _ = c.Close() }), nil
}

func goredisOf(e servers.Endpoint, retries int, timeout time.Duration) (store.Store, func(), error) {
	o := &redis.UniversalOptions{
		Addrs: e.Addrs, MasterName: e.Master, TLSConfig: e.TLS, Username: e.User, Password: e.Password,
		MaxRetries: retries, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, ContextTimeoutEnabled: true, PoolSize: conns,
	}
	var c redis.UniversalClient
	switch e.Kind {
	case servers.Cluster:
		c = redis.NewClusterClient(dialOnce(o.Cluster()))
	case servers.Sentinel:
		c = redis.NewFailoverClient(dialOnce(o.Failover()))
	default:
		c = redis.NewClient(dialOnce(o.Simple()))
	}
	return goredis.New(c), sync.OnceFunc(func() { _ = c.Close() }), nil
}

// dialOnce sets DialerRetries to 1, if this version of go-redis has that field, and returns o.
// Newer versions dial five times by default.
func dialOnce[O any](o *O) *O {
	if hasDialerRetries(o) {
		reflect.ValueOf(o).Elem().FieldByName("DialerRetries").SetInt(1)
	}
	return o
}

func hasDialerRetries(options any) bool {
	return reflect.ValueOf(options).Elem().FieldByName("DialerRetries").IsValid()
}

func openRueidis(e servers.Endpoint) (store.Store, func(), error) {
	return rueidisOf(rueidisOptions(e, longTimeout))
}

func boundedRueidis(e servers.Endpoint, timeout time.Duration) (store.Store, func(), error) {
	options := rueidisOptions(e, timeout)
	options.DisableRetry, options.AlwaysPipelining = true, true
	return rueidisOf(options)
}

// rueidisFromReplicas returns a store whose client reads from replicas.
func rueidisFromReplicas(addrs []string) (store.Store, func(), error) {
	// A replica among these would reply MOVED: rueidis does not send READONLY to a node that it
	// connected to before it knew the node's role.
	options := rueidisOptions(servers.Endpoint{Kind: servers.Cluster, Addrs: addrs[:len(addrs)/2]}, longTimeout)
	options.SendToReplicas = func(cmd rueidisclient.Completed) bool { return cmd.IsReadOnly() }
	return rueidisOf(options)
}

func rueidisOptions(e servers.Endpoint, timeout time.Duration) rueidisclient.ClientOption {
	options := rueidisclient.ClientOption{
		InitAddress: e.Addrs, TLSConfig: e.TLS, Username: e.User, Password: e.Password,
		ForceSingleClient: e.Kind == servers.Single,
		DisableCache:      true, // miniredis has no CLIENT TRACKING
		Dialer:            net.Dialer{Timeout: timeout},
		DialCtxFn:         rueidis.Dial,
		ConnWriteTimeout:  timeout,
	}
	if e.Kind == servers.Sentinel {
		options.Sentinel = rueidisclient.SentinelOption{MasterSet: e.Master, Dialer: options.Dialer}
	}
	return options
}

func rueidisOf(options rueidisclient.ClientOption) (store.Store, func(), error) {
	c, err := rueidisclient.NewClient(options)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, nil, err
	}
	return rueidis.New(c), sync.OnceFunc(c.Close), nil
}

func openRedigo(e servers.Endpoint) (store.Store, func(), error) { return boundedRedigo(e, 0) }

// boundedRedigo bounds nothing if the timeout is 0.
func boundedRedigo(e servers.Endpoint, timeout time.Duration) (store.Store, func(), error) {
	pool := func(addr string, options ...redigoclient.DialOption) (*redigoclient.Pool, error) {
		p := &redigoclient.Pool{
			MaxIdle: conns, Wait: true,
			DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
				return redigoclient.DialContext(ctx, "tcp", addr, options...)
			},
		}
		if timeout > 0 {
			p.MaxActive = conns
		}
		return p, nil
	}
	options := []redigoclient.DialOption{
		redigoclient.DialUseTLS(e.TLS != nil), redigoclient.DialTLSConfig(e.TLS),
		redigoclient.DialUsername(e.User), redigoclient.DialPassword(e.Password),
		redigoclient.DialConnectTimeout(timeout), redigoclient.DialReadTimeout(timeout), redigoclient.DialWriteTimeout(timeout),
	}
	if e.Kind == servers.Cluster {
		c := &redisc.Cluster{StartupNodes: e.Addrs, DialOptions: options, CreatePool: pool, PoolWaitTime: timeout}
		return redigo.NewCluster(c), sync.OnceFunc(func() { _ = c.Close() }), nil
	}
	p, _ := pool(e.Addrs[0], options...)
	return redigo.New(p), sync.OnceFunc(func() { _ = p.Close() }), nil
}
