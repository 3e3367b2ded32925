package integration

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A wiretap is a proxy on the loopback interface that breaks a connection when it is told to.
type wiretap struct {
	addr string
	lose atomic.Bool // lose the reply to what a client sends next
	cut  atomic.Bool // close the connection instead of sending that on
}

// tap returns a proxy to the server at addr.
func tap(t *testing.T, addr string) *wiretap {
	w := &wiretap{}
	w.addr = relay(t, addr, func(wg *sync.WaitGroup, client, server *net.TCPConn) {
		// If one side ends, the other side is closed too, after the data has arrived.
		var lost atomic.Bool
		wg.Go(func() { _, _ = io.Copy(losing{client, &lost}, server); _ = client.Close() })
		wg.Go(func() { w.forward(client, server, &lost); _ = server.CloseWrite() })
	})
	return w
}

// relay listens at a loopback address, which it returns. It connects each client to the server at
// addr, and calls pass, which starts what passes data on. t ends when all of that has ended.
func relay(t *testing.T, addr string, pass func(wg *sync.WaitGroup, client, server *net.TCPConn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = l.Close() })
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			pass(&wg, client.(*net.TCPConn), server.(*net.TCPConn))
			t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		}
	})
	return l.Addr().String()
}

// losing is a connection to a client that fails if the reply is to be lost.
type losing struct {
	net.Conn
	lost *atomic.Bool
}

func (l losing) Write(p []byte) (int, error) {
	if l.lost.Load() {
		return 0, io.ErrClosedPipe
	}
	return l.Conn.Write(p)
}

// forward sends what client sends on to server. It sets lost if the reply is to be lost.
func (w *wiretap) forward(client io.Reader, server io.Writer, lost *atomic.Bool) {
	data := make([]byte, 64<<10)
	for {
		n, err := client.Read(data)
		if err != nil || w.cut.CompareAndSwap(true, false) {
			return
		}
		if w.lose.CompareAndSwap(true, false) {
			lost.Store(true)
		}
		if _, err := server.Write(data[:n]); err != nil {
			return
		}
	}
}
