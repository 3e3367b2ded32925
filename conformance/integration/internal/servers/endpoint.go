package servers

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Kind is the way in which a client finds who serves a key.
type Kind string

// The kinds of servers.
const (
	Single   Kind = "single"   // one server, Addrs[0]
	Cluster  Kind = "cluster"  // Addrs are nodes of a cluster
	Sentinel Kind = "sentinel" // Addrs are sentinels, which know a master as Master
)

// An Endpoint is all that a client has to know of a server.
type Endpoint struct {
	Kind   Kind
	Addrs  []string // each on the loopback interface, unless the environment named it
	Master string   // set for the kind Sentinel alone

	// TLS is what to dial Addrs with, nil for plain TCP. It is not to be changed.
	TLS *tls.Config

	// User and Password are what to log in with. With a Password alone the user
	// is the default one; without either there is no logging in.
	User, Password string
}

// Name is what clients of [Node.Client] call themselves.
const Name = "the-tests-own"

// Client returns a client of the endpoint that ends with t.
func Client(t testing.TB, e Endpoint) redis.UniversalClient {
	c := Dial(e)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial returns a client of the endpoint.
func Dial(e Endpoint) redis.UniversalClient { return dial(e, 0, "") }

// dial returns a client, whose dials are bounded, unless by 0.
func dial(e Endpoint, timeout time.Duration, name string) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: e.Addrs, MasterName: e.Master, TLSConfig: e.TLS, Username: e.User, Password: e.Password, DialTimeout: timeout, ClientName: name,
	}
	if e.Kind == Cluster { // it can have one address
		return redis.NewClusterClient(o.Cluster())
	}
	return redis.NewUniversalClient(o)
}
