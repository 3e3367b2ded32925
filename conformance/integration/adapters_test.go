package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	redigoclient "github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"
	rueidisclient "github.com/redis/rueidis"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/redigo"
	"github.com/weir-go/weir/store/rueidis"
)

// An adapter is one of the stores under test.
type adapter struct {
	name string
	// open returns the store over a client of its own, and what closes that. The
	// client serves every kind of endpoint that lacks does not name, and logs in
	// and speaks TLS as the endpoint says.
	open func(e servers.Endpoint) (st store.Store, close func(), err error)
	// bounded is open, with a client whose waits are as short as docs/stores.md
	// advises, and that sends nothing twice.
	bounded func(e servers.Endpoint) (st store.Store, close func(), err error)
	// longest is the longest that a call takes over that client, where that is
	// much longer than its context allows.
	longest time.Duration
	// leaky says that the client, closed while it looks for a new topology, leaves
	// the connection that it makes for that.
	leaky   bool
	repeats int    // how often that client sends a step again
	version string // of the server that is made to suffer; "": redis-8.0
	// late is how long after a cancellation that comes without a deadline a call
	// over that client may return.
	late time.Duration
	// lacks are the kinds of servers that the adapter can't do, with the reason.
	lacks map[servers.Kind]string
	// words are what an ACL must allow, beside servers.ACL, for the client's own
	// commands, by the rules of ACL SETUSER.
	words map[servers.Kind]string
	// skips are the rules that do not concern the adapter, with the reason.
	skips map[string]string
}

// store returns the store over a client that ends with t.
func (a adapter) store(t testing.TB, e servers.Endpoint) store.Store {
	t.Helper()
	st, closeClient, err := a.open(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeClient)
	return st
}

// everywhere runs f for every adapter on every server, each in a parallel subtest.
func everywhere(t *testing.T, f func(t *testing.T, st store.Store)) {
	for _, a := range adapters {
		t.Run(a.name+"/miniredis", func(t *testing.T) {
			t.Parallel()
			f(t, a.store(t, servers.Endpoint{Kind: servers.Single, Addrs: []string{miniredis.RunT(t).Addr()}}))
		})
		for _, server := range servers.All() {
			t.Run(a.name+"/"+server.Name, func(t *testing.T) {
				t.Parallel()
				if reason := a.lacks[server.Kind]; reason != "" {
					t.Skip(reason)
				}
				server.Start(t)
				f(t, a.store(t, server.Endpoint))
			})
		}
	}
}

var adapters = []adapter{
	{
		name:    "goredis",
		open:    openGoredis,
		bounded: boundedGoredis,
		late:    replyTime,
		words:   map[servers.Kind]string{servers.Cluster: "+cluster|slots +command"},
		skips: map[string]string{
			"Store/Borrowed": "store does not borrow strings",
		},
	},
	{
		name:    "rueidis",
		open:    openRueidis,
		bounded: boundedRueidis,
		leaky:   true,
		words:   map[servers.Kind]string{servers.Cluster: "+cluster|slots +cluster|shards", servers.Sentinel: "+role"},
		skips: map[string]string{
			"Store/Borrowed": "store does not borrow strings",
		},
	},
	{
		name:    "redigo",
		open:    openRedigo,
		bounded: boundedRedigo,
		lacks:   map[servers.Kind]string{servers.Sentinel: "redigo does not know Sentinel"},
		words:   map[servers.Kind]string{servers.Cluster: "+cluster|slots"},
		skips: map[string]string{
			"Store/Borrowed": "store does not borrow strings",
		},
	},
}

func openGoredis(e servers.Endpoint) (store.Store, func(), error) {
	c := servers.Dial(e)
	return goredis.New(c), sync.OnceFunc(func() { _ = c.Close() }), nil
}

func openRueidis(e servers.Endpoint) (store.Store, func(), error) {
	options := rueidisclient.ClientOption{
		InitAddress:       e.Addrs,
		TLSConfig:         e.TLS,
		Username:          e.User,
		Password:          e.Password,
		ForceSingleClient: e.Kind == servers.Single,
		DisableCache:      true, // miniredis has no CLIENT TRACKING
	}
	if e.Kind == servers.Sentinel {
		options.Sentinel = rueidisclient.SentinelOption{MasterSet: e.Master}
	}
	c, err := rueidisclient.NewClient(options)
	if err != nil {
		return nil, nil, err
	}
	return rueidis.New(c), sync.OnceFunc(c.Close), nil
}

func openRedigo(e servers.Endpoint) (store.Store, func(), error) {
	pool := func(addr string, options ...redigoclient.DialOption) (*redigoclient.Pool, error) {
		return &redigoclient.Pool{
			MaxIdle: 10,
			DialContext: func(ctx context.Context) (redigoclient.Conn, error) {
				return redigoclient.DialContext(ctx, "tcp", addr, options...)
			},
		}, nil
	}
	options := []redigoclient.DialOption{
		redigoclient.DialUseTLS(e.TLS != nil),
		redigoclient.DialTLSConfig(e.TLS),
		redigoclient.DialUsername(e.User),
		redigoclient.DialPassword(e.Password),
	}
	if e.Kind == servers.Cluster {
		c := &redisc.Cluster{StartupNodes: e.Addrs, DialOptions: options, CreatePool: pool}
		return redigo.NewCluster(c), sync.OnceFunc(func() { _ = c.Close() }), nil
	}
	p, _ := pool(e.Addrs[0], options...)
	return redigo.New(p), sync.OnceFunc(func() { _ = p.Close() }), nil
}
