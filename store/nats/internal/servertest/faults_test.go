package servertest

import (
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
	weirnats "github.com/weir-go/weir/store/nats"
)

// faultBehind returns a fault of the network between a store and a server.
func faultBehind(begin, end func(t *testing.T, p *proxy)) func(*testing.T, string) conformance.Fault {
	return func(t *testing.T, _ string) conformance.Fault {
		s := start(t, &server.Options{})
		t.Cleanup(func() { stop(s) })
		create(t, connect(t, s.ClientURL()), nil)
		p := newProxy(t, s.Addr().String())
		return conformance.Fault{
			Open:  func() (store.Store, func()) { return client(t, p.url()) },
			Begin: func() { begin(t, p) },
			End:   func() { end(t, p) },
			Conns: p.count,
		}
	}
}

// client returns a store over a connection of its own, and a function that closes it.
func client(t *testing.T, url string) (store.Store, func()) {
	var nc *nats.Conn
	var err error
	for range 20 { // on a busy machine, a connection can take longer than the timeout
		nc, err = nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0),
			nats.Timeout(200*time.Millisecond), nats.PingInterval(200*time.Millisecond), nats.MaxPingsOutstanding(2), nats.IgnoreDiscoveredServers())
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return weirnats.New(js, "limits"), nc.Close
}

// faults returns the faults of servers and networks under which stores are tested.
func faults() map[string]func(*testing.T, string) conformance.Fault {
	kill := func(_ *testing.T, p *proxy) { p.kill() }
	nothing := func(*testing.T, *proxy) {}
	return map[string]func(*testing.T, string) conformance.Fault{
		"Restart": func(t *testing.T, _ string) conformance.Fault {
			dir := t.TempDir()
			s := start(t, &server.Options{StoreDir: dir})
			port, url := s.Addr().(*net.TCPAddr).Port, s.ClientURL()
			t.Cleanup(func() { stop(s) })
			create(t, connect(t, url), func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
			return conformance.Fault{
				Open:  func() (store.Store, func()) { return client(t, url) },
				Begin: func() { stop(s) },
				End:   func() { s = start(t, &server.Options{StoreDir: dir, Port: port}) },
			}
		},
		"ConnectionsKilled": faultBehind(kill, nothing),
		"ClosedPort": faultBehind(func(_ *testing.T, p *proxy) { p.close(); p.kill() },
			func(t *testing.T, p *proxy) { p.listen(t, p.listener.Addr().String()) }),
		"BlackHole": faultBehind(func(_ *testing.T, p *proxy) { p.set(func() { p.mute = true }); p.kill() },
			func(_ *testing.T, p *proxy) { p.set(func() { p.mute = false }); p.kill() }),
		"HalfOpen": faultBehind(func(_ *testing.T, p *proxy) { p.set(func() { p.silent = true }) },
			func(_ *testing.T, p *proxy) { p.set(func() { p.silent = false }); p.kill() }),
		"Reset": faultBehind(func(_ *testing.T, p *proxy) { p.set(func() { p.cut = true }) },
			func(_ *testing.T, p *proxy) { p.set(func() { p.cut = false }); p.kill() }),
	}
}
