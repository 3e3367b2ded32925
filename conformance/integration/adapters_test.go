package integration

import (
	"sync"
	"testing"

	rueidisclient "github.com/redis/rueidis"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/rueidis"
)

// An adapter is one of the stores under test.
type adapter struct {
	name string
	// open returns the store over a client of its own, and what closes that. The
	// client serves every kind of endpoint that lacks does not name, and logs in
	// and speaks TLS as the endpoint says.
	open func(e servers.Endpoint) (st store.Store, close func(), err error)
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

var adapters = []adapter{
	{
		name:  "goredis",
		open:  openGoredis,
		words: map[servers.Kind]string{servers.Cluster: "+cluster|slots +command"},
		skips: map[string]string{
			"Store/Borrowed": "store does not borrow strings",
		},
	},
	{
		name:  "rueidis",
		open:  openRueidis,
		words: map[servers.Kind]string{servers.Cluster: "+cluster|slots +cluster|shards", servers.Sentinel: "+role"},
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
