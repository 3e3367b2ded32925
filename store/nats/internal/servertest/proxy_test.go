package servertest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy passes connections to a server.
type proxy struct {
	server string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool // of clients
	silent   bool              // nothing reaches the clients
	mute     bool              // nothing reaches the server, and new connections get no answer
	cut      bool              // each connection ends in the middle of the next reply
}

func newProxy(t *testing.T, server string) *proxy {
	p := &proxy{server: server, conns: map[net.Conn]bool{}}
	p.listen(t, "127.0.0.1:0")
	t.Cleanup(func() { p.close(); p.kill() })
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) listen(t *testing.T, addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	p.listener = l
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
}

func (p *proxy) close() { _ = p.listener.Close() }

// kill closes all connections.
func (p *proxy) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.set(func() { p.conns[client] = true })
	defer p.set(func() { delete(p.conns, client) })
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer server.Close()
		p.copy(server, client, false)
	}()
	p.copy(client, server, true)
}

// copy passes what comes from src to dst.
func (p *proxy) copy(dst io.Writer, src io.Reader, replies bool) {
	buf := make([]byte, 1<<16)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		drop, cut := replies && p.silent || p.mute, replies && p.cut
		p.mu.Unlock()
		switch {
		case drop:
			continue
		case cut:
			_, _ = dst.Write(buf[:n/2])
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}
