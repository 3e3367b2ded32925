package integration

import (
	"cmp"
	"path"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// An adapter is one of the stores under test.
type adapter struct {
	name string
	// open returns a store over a new client, and a function that closes the client.
	// It can open every kind of endpoint that lacks does not name.
	open func(e servers.Endpoint) (st store.Store, close func(), err error)
	// bounded is open, with a client that has this timeout for a connection and for a reply,
	// heeds deadlines, and does not retry.
	bounded func(e servers.Endpoint, timeout time.Duration) (st store.Store, close func(), err error)
	timeout time.Duration // of that client in fault tests; 0 means shortTimeout
	// leaky says that a client that is closed while it reads a new topology can leave
	// a connection open.
	leaky bool
	// forgets says that a client of a cluster can leave a connection open that was made
	// while its pool was closed, for example because the node left the cluster.
	forgets bool
	// brief says that the adapter's random checks are brief on every server: another
	// adapter has the same code. Such adapters come last.
	brief   bool
	repeats int    // how many times that client retries a step
	version string // of the server in fault tests; "" means redis-8.0
	// lacks are the kinds of servers that the adapter does not support, with the reason.
	lacks map[servers.Kind]string
	// words are the rules of ACL SETUSER, besides servers.ACL, that the client's own
	// commands need.
	words map[servers.Kind]string
	// skips are the checks that do not concern the adapter, with the reason.
	skips map[string]string
}

// store returns a store over a new client, which is closed when t ends.
func (a adapter) store(t testing.TB, e servers.Endpoint) store.Store {
	t.Helper()
	st, closeClient, err := a.open(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeClient)
	return st
}

// single starts a server for a, and returns it with a client.
func (a adapter) single(t *testing.T, args ...string) (*servers.Server, *redis.Client) {
	t.Helper()
	server := servers.NewSingle(t, cmp.Or(a.version, "redis-8.0"), args...)
	return server, server.Nodes[0].Client(t)
}

// A place is a store on a server.
type place struct {
	st    store.Store
	e     servers.Endpoint
	admin redis.UniversalClient // which lists keys and drops scripts
}

// at returns a place on the server of e. It is closed when t ends.
func (a adapter) at(t *testing.T, e, admin servers.Endpoint) place {
	t.Helper()
	return place{a.store(t, e), e, servers.Client(t, admin)}
}

// always returns the same place for each check, except for Store/Closed.
func (a adapter) always(t *testing.T, e, admin servers.Endpoint) func(*testing.T) place {
	t.Helper()
	p := a.at(t, e, admin)
	return func(t *testing.T) place {
		if ofClosed(t) {
			return a.at(t, e, admin)
		}
		return p
	}
}

// ofClosed reports whether t is the test of a store that the check Store/Closed closes.
func ofClosed(t *testing.T) bool { return path.Base(t.Name()) == "closed" }

// on starts the server, and returns a place there, for backend. If the server has users, the
// store's user has the rights that docs/reference/stores.md says.
func (a adapter) on(t *testing.T, server *servers.Server) func(*testing.T) place {
	t.Helper()
	server.Start(t)
	e := server.Endpoint
	if e.User != "" {
		e = server.Grant(t, "~weir* "+servers.ACL+" "+servers.ListACL+" "+a.words[server.Kind])
	}
	return a.always(t, e, server.Admin())
}

// eachMiniredis returns a place on a miniredis of its own: one with many keys is slow.
func (a adapter) eachMiniredis(t *testing.T) place {
	t.Helper()
	e := runMiniredis(t)
	return a.at(t, e, e)
}

// backend returns a backend over the stores of the places that where returns for each check.
func (a adapter) backend(where func(*testing.T) place) conformance.Backend {
	var places sync.Map // by store.Store
	of := func(st store.Store) place {
		p, _ := places.Load(st)
		return p.(place)
	}
	return conformance.Backend{
		New: func(t *testing.T) store.Store {
			p := where(t)
			places.Store(p.st, p)
			return p.st
		},
		Reopen: func(t *testing.T, st store.Store) store.Store {
			p := of(st)
			p.st = a.store(t, p.e) // with another client
			places.Store(p.st, p)
			return p.st
		},
		Keys: func(t *testing.T, st store.Store, part string) map[string]time.Duration {
			return keys(t, of(st).admin, part)
		},
		Peer:        func(t *testing.T, st store.Store) store.Store { return a.store(t, of(st).e) },
		DropScripts: func(t *testing.T, st store.Store) { flushScripts(t, of(st).admin) },
	}
}

// runMiniredis starts a miniredis whose keys expire with time. As on a real server, the
// time stands still while a command runs: with ClockTTL alone, a key could expire in the
// middle of a script, and each step of a script would look at every key.
func runMiniredis(t *testing.T) servers.Endpoint {
	m := miniredis.RunT(t)
	m.SetTime(time.Now())
	m.ClockTTL(true)
	var mu sync.Mutex // so that the time does not go back
	var clients sync.Map
	m.Server().SetPreHook(func(c *server.Peer, _ string, _ ...string) bool {
		// A client has no Ctx before its first command. A script's calls have one.
		if c.Ctx == nil {
			clients.Store(c, true)
		}
		if _, ok := clients.Load(c); ok {
			mu.Lock()
			defer mu.Unlock()
			m.SetTime(time.Now())
		}
		return false
	})
	return servers.Endpoint{Kind: servers.Single, Addrs: []string{m.Addr()}}
}

var adapters = []adapter{
	{
		name:    "goredis",
		open:    openGoredis,
		bounded: boundedGoredis,
		forgets: !reflect.ValueOf(redis.ClusterOptions{}).FieldByName("DialerRetries").IsValid(), // an old version
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
	{
		name:    "valkey",
		open:    openValkey,
		bounded: boundedValkey,
		leaky:   true,
		brief:   true,
		words:   map[servers.Kind]string{servers.Cluster: "+cluster|slots +cluster|shards", servers.Sentinel: "+role"},
		skips: map[string]string{
			"Store/Borrowed": "store does not borrow strings",
		},
	},
}

// newLimiter returns a limiter of one rule.
func newLimiter(t testing.TB, st store.Store, name string, a algorithm.Algorithm) *weir.Limiter {
	t.Helper()
	lim, err := weir.New(name, st, a, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}
