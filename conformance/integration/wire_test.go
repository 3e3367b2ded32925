package integration

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// TestWire counts what a decision sends: one EVALSHA, whatever it decides over and
// does besides, through a proxy between each client and a server.
func TestWire(t *testing.T) {
	servers.Need(t)
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			st, wire := a.tapped(t)
			lim, err := weir.NewRules(st, []weir.Rule{
				{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 1000, Window: time.Hour}},
				{Name: "user", By: []int{0, 1}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1000}},
				{Name: "log", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: 1000, Window: time.Hour}},
				{Name: "spans", By: []int{0, 2}, Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 8 * time.Second, Limit: 1000}}}},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			path := []string{"wire", "user", "address"}
			for _, tt := range []struct {
				name string
				call func() error
			}{
				{"Allow", func() error { _, err := lim.Allow(t.Context(), path...); return err }},
				{"Peek", func() error { _, err := lim.Peek(t.Context(), path...); return err }},
				{"TakeUpTo", func() error { _, err := lim.TakeUpTo(t.Context(), 3, path...); return err }},
				{"with an ID", func() error {
					_, err := lim.Do(t.Context(), weir.Request{Path: path, Cost: 1, ID: "x"})
					return err
				}},
				{"Refund", func() error { _, err := lim.Refund(t.Context(), "x", path...); return err }},
			} {
				if err := tt.call(); err != nil { // it dials, and the server learns the script
					t.Fatalf("%s: %v", tt.name, err)
				}
				const calls = 10
				before := wire.sent()
				for range calls {
					if err := tt.call(); err != nil {
						t.Fatalf("%s: %v", tt.name, err)
					}
				}
				sent := wire.sent()
				for name, n := range before {
					if sent[name] -= n; sent[name] == 0 {
						delete(sent, name)
					}
				}
				if want := map[string]int{"EVALSHA": calls}; tt.name != "Peek" && !maps.Equal(sent, want) || sent["EVALSHA"]+sent["EVALSHA_RO"] != calls || len(sent) != 1 {
					t.Errorf("%s: %d calls sent %v, want one EVALSHA each", tt.name, calls, sent)
				}
			}
		})
	}
}

// TestLostRefund loses the reply to a refund: whether the client tries again by itself
// or its caller does, it gives back once.
func TestLostRefund(t *testing.T) {
	servers.Need(t)
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			st, wire := a.tapped(t)
			lim, err := weir.New(st, algorithm.FixedWindow{Limit: 10, Window: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			path := []string{"lost", rand.Text()}
			if _, err := lim.Refund(t.Context(), "none", path...); err != nil { // the server learns the script
				t.Fatal(err)
			}
			for _, id := range []string{"kept", "given back"} {
				if _, err := lim.Do(t.Context(), weir.Request{Path: path, Cost: 3, ID: id}); err != nil {
					t.Fatal(err)
				}
			}
			wire.lose.Store(true)
			before := wire.sent()["EVALSHA"]
			gave, err := lim.Refund(t.Context(), "given back", path...)
			tries := wire.sent()["EVALSHA"] - before
			if wire.lose.Load() || tries > 1 && (gave || err != nil) || tries == 1 && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("the refund whose reply was lost: got %v, %v after %d tries", gave, err, tries)
			}
			if gave, err := lim.Refund(t.Context(), "given back", path...); gave || err != nil {
				t.Errorf("the refund after it: got %v, %v, want that nothing is left", gave, err)
			}
			if res, err := lim.Peek(t.Context(), path...); err != nil || res.Remaining != 7 {
				t.Errorf("got %+v, %v, want 7 of 10 left", res, err)
			}
			t.Logf("%d tries by the client", tries)
		})
	}
}

// tapped returns a store over a server of its own, and the wiretap between them.
func (a adapter) tapped(t *testing.T) (store.Store, *wiretap) {
	t.Helper()
	server, _ := a.single(t)
	e := server.Endpoint
	wire := tap(t, e.Addrs[0])
	e.Addrs = []string{wire.addr}
	return a.store(t, e), wire
}

// A wiretap is a proxy on loopback that counts the commands which pass it.
type wiretap struct {
	addr string
	lose atomic.Bool // the reply to the next EVALSHA
	mu   sync.Mutex
	n    map[string]int // by name
}

// tap returns a proxy to the server at addr.
func tap(t *testing.T, addr string) *wiretap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wiretap{addr: l.Addr().String(), n: map[string]int{}}
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
			// Either end takes the other with it, once what it was sent has arrived.
			var lost atomic.Bool
			wg.Go(func() { _, _ = io.Copy(losing{client, &lost}, server); _ = client.Close() })
			wg.Go(func() { w.forward(client, server, &lost); _ = server.(*net.TCPConn).CloseWrite() })
			t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		}
	})
	return w
}

// losing is a connection to a client that fails when a reply has to be lost.
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

// forward notes each command of client, and then sends it to server. It says so when
// the reply has to be lost.
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
			return 0, fmt.Errorf("%q is no part of a command", line)
		}
		return n, nil
	}
	for {
		command = command[:0]
		words, err := header("*")
		if err != nil {
			return
		}
		name := ""
		for i := range words {
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
		if name != "HELLO" && name != "CLIENT" { // with which clients begin a connection
			w.mu.Lock()
			w.n[name]++
			w.mu.Unlock()
		}
		if name == "EVALSHA" && w.lose.CompareAndSwap(true, false) {
			lost.Store(true)
		}
		if _, err := server.Write(command); err != nil {
			return
		}
	}
}

// sent returns how many commands of each name have passed so far.
func (w *wiretap) sent() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.n)
}
