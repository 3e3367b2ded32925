package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
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

// wireRules are rules of several kinds: one with several keys, and one with a Cost of its
// own.
var wireRules = []weir.Rule{
	{Name: "all", By: []string{"tenant"}, Algorithm: algorithm.FixedWindow{Limit: 1000, Window: time.Hour}},
	{Name: "user", By: []string{"tenant", "user"}, Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 1000}, Cost: 2},
	{Name: "log", By: []string{"tenant", "user"}, Algorithm: algorithm.SlidingLog{Limit: 1000, Window: time.Hour}},
	{Name: "spans", By: []string{"tenant", "ip"}, Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 2 * time.Second, Limit: 1000}}}},
}

// TestWire counts what a call sends, through a proxy between each client and a server: one
// EVALSHA, whatever the rules and the verb are. It also compares the keys and the
// arguments of the command.
func TestWire(t *testing.T) {
	servers.Need(t)
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			st, wire := a.tapped(t)
			policy := weir.Policy{Name: "wire", Segments: []string{"tenant", "user", "ip"}, Secret: []string{"ip"}, Rules: wireRules}
			limiter := func(clock func() time.Time) *weir.Limiter {
				lim, err := weir.NewPolicy(st, policy, &weir.Options{Clock: clock})
				if err != nil {
					t.Fatal(err)
				}
				return lim
			}
			lim := limiter(nil)
			at := time.Now()
			clocked := limiter(func() time.Time { return at })

			const ip = "%sha256=a379a6f6eeafb9a55e378c118034e2751e682fab9f2d30ab13d2125586ce1947" // of "example.com"
			keys := []string{
				"weir:wire:{acme}:all.f2", "weir:wire:{acme}:user.g2:ann", "weir:wire:{acme}:log.l3:ann",
				"weir:wire:{acme}:spans.b2:" + ip + ":0", "weir:wire:{acme}:spans.b2:" + ip + ":1",
			}
			marked := slices.Clone(keys) // with the markers of the decision x, one for each rule
			for _, key := range []string{keys[0], keys[1], keys[2], "weir:wire:{acme}:spans.b2:" + ip} {
				marked = append(marked, key+":%id=*")
			}
			consts := constants(t, wireRules)
			args := func(tail ...string) []string { return slices.Concat(consts, tail) }
			key := []string{"acme", "ann", "example.com"}
			r := weir.Request{Key: weir.KeyOf(key...), ID: "x"}
			for _, tt := range []struct {
				name string
				call func() error
				keys []string
				args []string
			}{
				{"Allow", func() error { _, err := lim.Allow(t.Context(), key...); return err }, keys, args()},
				{"AllowN", func() error { _, err := lim.AllowN(t.Context(), 3, key...); return err }, keys, args("3")},
				{"Peek", func() error { _, err := lim.Peek(t.Context(), key...); return err }, keys, args()},
				{"TakeUpTo", func() error { _, err := lim.TakeUpTo(t.Context(), 3, key...); return err }, keys, args("3")},
				{"a clock", func() error { _, err := clocked.Allow(t.Context(), key...); return err }, keys, args("1", "0", strconv.FormatInt(at.UnixMicro(), 10))},
				{"an ID", func() error { _, err := lim.Decide(t.Context(), r, nil); return err }, marked, args("1", "0", "*", "*", "*", "*", "*")},
				{"Refund", func() error { _, err := lim.Refund(t.Context(), r); return err }, marked, args("0", "0", "*", "*", "*", "*", "*")},
				{"Reset", func() error { l, err := lim.Only("log"); return errors.Join(err, l.Reset(t.Context(), key...)) }, keys[2:3], constants(t, wireRules[2:3])},
			} {
				if err := tt.call(); err != nil { // the client dials, and the server learns the script
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
				if !maps.Equal(sent, map[string]int{"EVALSHA": calls}) {
					t.Errorf("%s: %d calls sent %v, want one EVALSHA each", tt.name, calls, sent)
				}
				want := slices.Concat([]string{"EVALSHA", "*", strconv.Itoa(len(tt.keys))}, tt.keys, tt.args)
				if got := wire.lastEval(); !slices.EqualFunc(got, want, matches) {
					t.Errorf("%s: sent\n%q, want\n%q", tt.name, got, want)
				}
			}
		})
	}
}

// matches reports whether word is want, in which a final * stands for any text.
func matches(word, want string) bool {
	if head, ok := strings.CutSuffix(want, "*"); ok {
		return strings.HasPrefix(word, head)
	}
	return word == want
}

// constants returns the arguments that every call under rules begins with.
func constants(t *testing.T, rules []weir.Rule) []string {
	t.Helper()
	var words []string
	for _, r := range rules {
		l, err := r.Algorithm.NewLimit()
		if err != nil {
			t.Fatal(err)
		}
		for _, arg := range l.Args {
			words = append(words, arg.String())
		}
		if r.Cost > 0 {
			words = append(words, strconv.FormatInt(r.Cost, 10))
		}
	}
	return words
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

// A wiretap is a proxy on the loopback interface that counts the commands through it.
type wiretap struct {
	addr string
	lose atomic.Bool // lose the reply to the next EVALSHA
	cut  atomic.Bool // close the connection instead of sending the next EVALSHA
	mu   sync.Mutex
	n    map[string]int // by name
	last []string       // the words of the last EVALSHA
}

// tap returns a proxy to the server at addr.
func tap(t *testing.T, addr string) *wiretap {
	w := &wiretap{n: map[string]int{}}
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

// forward counts each command of client and sends it to server. It sets lost if the reply
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
		words := make([]string, n)
		for i := range words {
			n, err := header("$")
			if err != nil {
				return
			}
			word := make([]byte, n+len("\r\n"))
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			command, words[i] = append(command, word...), string(word[:n])
		}
		words[0] = strings.ToUpper(words[0])
		if words[0] == "EVALSHA" && w.cut.CompareAndSwap(true, false) {
			return
		}
		w.note(words)
		if words[0] == "EVALSHA" && w.lose.CompareAndSwap(true, false) {
			lost.Store(true)
		}
		if _, err := server.Write(command); err != nil {
			return
		}
	}
}

// note counts a command, unless clients begin a connection with it or look whether it works.
func (w *wiretap) note(words []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch words[0] {
	case "HELLO", "CLIENT", "PING":
		return
	case "EVALSHA":
		w.last = words
	}
	w.n[words[0]]++
}

// lastEval returns the words of the last EVALSHA.
func (w *wiretap) lastEval() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// sent returns how many commands of each name have passed.
func (w *wiretap) sent() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.n)
}
