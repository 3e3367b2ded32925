package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A wiretap is a proxy on the loopback interface that can break connections at an EVALSHA.
type wiretap struct {
	addr string
	lose atomic.Bool // lose the reply to the next EVALSHA
	cut  atomic.Bool // close the connection instead of sending the next EVALSHA
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

// forward sends each command of client to server. It sets lost if the reply
// is to be lost.
func (w *wiretap) forward(client io.Reader, server io.Writer, lost *atomic.Bool) {
	in := bufio.NewReader(client)
	var command []byte
	header := func(mark string) (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		command = append(command, line...)
		number, ok := strings.CutPrefix(strings.TrimSpace(line), mark)
		n, err := strconv.Atoi(number)
		if !ok || err != nil {
			return 0, fmt.Errorf("%q is not part of a command", line)
		}
		return n, nil
	}
	for {
		command = command[:0]
		n, err := header("*")
		if err != nil {
			return
		}
		name := ""
		for i := range n {
			n, err := header("$")
			if err != nil {
				return
			}
			word := make([]byte, n+len("\r\n"))
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			if command = append(command, word...); i == 0 {
				name = strings.ToUpper(string(word[:n]))
			}
		}
		if name == "EVALSHA" && w.cut.CompareAndSwap(true, false) {
			return
		}
		if name == "EVALSHA" && w.lose.CompareAndSwap(true, false) {
			lost.Store(true)
		}
		if _, err := server.Write(command); err != nil {
			return
		}
	}
}
