package rueidis

import (
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store/internal/wiretest"
)

// What the calls send.
var script, keys = wiretest.Script, wiretest.Keys

// options returns the options of a client of one server. The client does not use features
// that need RESP3, dials for at most a second, and has one connection.
func options(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:       []string{addr},
		ForceSingleClient: true,
		AlwaysRESP2:       true,
		DisableCache:      true,
		DisableRetry:      true,
		PipelineMultiplex: -1,
		Dialer:            net.Dialer{Timeout: time.Second},
		ConnWriteTimeout:  5 * time.Second,
	}
}

// open returns a client that is closed when t ends.
func open(t *testing.T, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// single returns a client of one server.
func single(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	return open(t, options(addr))
}

// cluster returns a client of a cluster.
func cluster(t *testing.T, addr string) rueidis.Client {
	t.Helper()
	o := options(addr)
	o.ForceSingleClient = false
	return open(t, o)
}
