// Package rueidistest tests a store over a client that has the API of rueidis: the client of
// store/rueidis, or that of store/valkey.
package rueidistest

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/weir-go/weir/store/internal/wiretest"
)

// A Subject is the store under test.
type Subject struct {
	// Name is the store's package.
	Name string

	// Open makes a client, and a store over it. Like NewClient, it can return a client
	// together with an error.
	Open func(o Options) (*Client, error)

	// Unfit are stores over nil clients, by name.
	Unfit map[string]Store

	// Closing is the error of a client that was closed.
	Closing error
}

// A Store is what the adapters provide.
type Store = wiretest.Store

// A Client is a client, with the store over it.
type Client struct {
	Store Store
	Close func()

	// Modeless is a store over a wrapper of the client whose mode is "".
	Modeless Store

	// Slot returns the slot of an EVALSHA with this key, as the client's builder
	// computes it.
	Slot func(sha, key string) int
}

// Options are the options of a client. The client does not use features that need RESP3,
// dials for at most a second, and has one connection.
type Options struct {
	Addr         string
	Cluster      bool
	Pipelining   bool
	Retry        bool
	FromReplicas bool          // commands that are read-only go to replicas
	WriteTimeout time.Duration // ConnWriteTimeout
	Dial         func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error)
}

// Run runs the tests.
func Run(t *testing.T, sub Subject) {
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"UnfitClient", sub.unfitClient},
		{"NothingSent", sub.nothingSent},
		{"Slots", sub.slots},
		{"NoServer", sub.noServer},
		{"ServerComesLater", sub.serverComesLater},
		{"ClosedClient", sub.closedClient},
		{"Retries", sub.retries},
		{"SendToReplicas", sub.sendToReplicas},
		{"SilentServer", sub.silentServer},
		{"DeadlineOfAnotherCall", sub.deadlineOfAnotherCall},
		{"CommandsAreNotReused", sub.commandsAreNotReused},
		{"BatchBroken", sub.batchBroken},
		{"OnTheWire", sub.onTheWire},
	} {
		t.Run(test.name, test.run)
	}
}

// What the calls send.
var script, keys = wiretest.Script, wiretest.Keys

// options returns the options of a client of one server.
func options(addr string) Options { return Options{Addr: addr, WriteTimeout: 5 * time.Second} }

// open returns a client that is closed when t ends.
func (sub Subject) open(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := sub.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// single returns a client of one server.
func (sub Subject) single(t *testing.T, addr string) *Client {
	t.Helper()
	return sub.open(t, options(addr))
}

// cluster returns a client of a cluster.
func (sub Subject) cluster(t *testing.T, addr string) *Client {
	t.Helper()
	o := options(addr)
	o.Cluster = true
	return sub.open(t, o)
}
