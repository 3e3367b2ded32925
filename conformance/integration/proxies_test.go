package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// A harm is what a harmful proxy does to a connection when some bytes arrive. It returns false if
// the proxy must close the connection.
type harm struct {
	name string
	do   func(p *harmfulProxy, from, to *net.TCPConn, data []byte) bool
}

// These are the harms of requests and of replies. from sent the data, and to is to get it.
var (
	requestHarms = []harm{
		{"reset before a request arrives", func(_ *harmfulProxy, from, _ *net.TCPConn, _ []byte) bool {
			return from.SetLinger(0) != nil
		}},
		{"truncate a request", truncate},
		{"close the side of the server", func(_ *harmfulProxy, _, to *net.TCPConn, data []byte) bool {
			_, err := to.Write(data)
			return err == nil && to.CloseWrite() == nil
		}},
		{"delay a request", (*harmfulProxy).delay},
	}
	replyHarms = []harm{
		{"reset before a reply arrives", func(_ *harmfulProxy, _, to *net.TCPConn, _ []byte) bool {
			return to.SetLinger(0) != nil
		}},
		{"truncate a reply", truncate},
		{"close the side of the client", func(_ *harmfulProxy, _, to *net.TCPConn, _ []byte) bool {
			return to.CloseWrite() == nil
		}},
		{"delay a reply", (*harmfulProxy).delay},
	}
)

func truncate(_ *harmfulProxy, _, to *net.TCPConn, data []byte) bool {
	_, _ = to.Write(data[:rand.IntN(len(data))])
	return false
}

// harmTime is how long a harmful proxy delays. Calls then end with their contexts.
const harmTime = 400 * time.Millisecond

func (p *harmfulProxy) delay(_, to *net.TCPConn, data []byte) bool {
	time.Sleep(harmTime)
	_, err := to.Write(data)
	return err == nil
}

// A harmfulProxy is a proxy on the loopback interface that does one harm after the other.
type harmfulProxy struct {
	addr  string
	every int64 // it harms each every-th piece of data of a direction
	calm  atomic.Bool

	mu   sync.Mutex
	done map[string]int // by the name of a harm
}

// startHarmfulProxy returns a proxy of the server at addr, which ends with t.
func startHarmfulProxy(t *testing.T, addr string, every int64) *harmfulProxy {
	p := &harmfulProxy{every: every, done: map[string]int{}}
	var requests, replies atomic.Int64
	p.addr = relay(t, addr, func(wg *sync.WaitGroup, client, server *net.TCPConn) {
		wg.Go(func() { p.pass(client, server, requestHarms, &requests) })
		wg.Go(func() { p.pass(server, client, replyHarms, &replies) })
	})
	return p
}

// pass passes data on, and closes both connections when one of them ends. seen counts the pieces
// of data of this direction.
func (p *harmfulProxy) pass(from, to *net.TCPConn, harms []harm, seen *atomic.Int64) {
	defer func() { _, _ = from.Close(), to.Close() }()
	data := make([]byte, 64<<10)
	for {
		n, err := from.Read(data)
		if n > 0 && !p.piece(from, to, data[:n], harms, seen.Add(1)) {
			return
		}
		if err != nil {
			return
		}
	}
}

// piece passes a piece of data on, or harms the connection. It returns false if the connection
// must be closed.
func (p *harmfulProxy) piece(from, to *net.TCPConn, data []byte, harms []harm, n int64) bool {
	if p.calm.Load() || n%p.every != 0 {
		_, err := to.Write(data)
		return err == nil
	}
	h := harms[n/p.every%int64(len(harms))]
	p.mu.Lock()
	p.done[h.name]++
	p.mu.Unlock()
	return h.do(p, from, to, data)
}

// TestHarmfulProxy makes random decisions, and settles each at another cost, through a proxy that resets, truncates, half-closes
// and delays connections. Each call is repeated until there is an answer. With an ID, it then
// consumes its tokens exactly once: in the end, the rules hold the sum of the settled costs. Without
// an ID, it consumes them at least once, and at most once for each time that it was sent.
func TestHarmfulProxy(t *testing.T) {
	servers.Need(t)
	all := append([]adapter{{name: "goredis, MaxRetries 3", bounded: retryingGoredis, repeats: 3}}, adapters...)
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			progress(t)
			server, _ := a.single(t)
			e := server.Endpoint
			proxy := startHarmfulProxy(t, e.Addrs[0], 10)
			e.Addrs = []string{proxy.addr}
			proxy.calm.Store(true) // rueidis connects
			harmful(t, a.once(t, e), proxy, 16, int64(a.repeats))
		})
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		progress(t)
		server := servers.NewPostgres(t, "scram_iterations=1")
		adminPool(t, server)
		proxy := startHarmfulProxy(t, server.Addrs[0], 120) // a connection begins with many pieces
		st := postgres.New(openPool(t, server.PostgresURL(limiterRole, limiterPassword, proxy.addr), func(c *pgxpool.Config) {
			c.AfterConnect = postgres.Prepare
		}))
		harmful(t, st, proxy, conns/2, 0) // pgx takes its time to close a connection
	})
}

// harmful makes the decisions of TestHarmfulProxy on st, whose client sends a call up to
// repeats times more.
func harmful(t *testing.T, st store.Store, proxy *harmfulProxy, callers int, repeats int64) {
	decisions := 24 // of each caller
	if testing.Short() {
		decisions = 8
	}
	books := lostBooks(t, st)
	plain := newLimiter(t, st, "plain", algorithm.FixedWindow{Limit: 1_000_000, Window: 24 * time.Hour})
	var granted, unknown atomic.Int64 // tokens without an ID
	// answer repeats r until there is an answer, and gives each call twice the time.
	answer := func(lim *weir.Limiter, r weir.Request) (res weir.Result, failures int64, err error) {
		for limit := harmTime / 2; ; limit *= 2 {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			res, err := lim.Decide(ctx, r, nil)
			cancel()
			if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) || t.Context().Err() != nil {
				return res, failures, err
			}
			failures++
		}
	}
	proxy.calm.Store(false)
	replayed := keepBooks(t, books, callers, decisions, func(rng *rand.Rand, lim *weir.Limiter, r weir.Request) (weir.Result, error) {
		cost := 1 + rng.Int64N(9)
		res, failures, err := answer(plain, weir.Request{Key: weir.KeyOf("ann"), Cost: cost})
		if err != nil || res.Granted != cost {
			t.Errorf("without an ID: got %+v, %v, want %d tokens", res, err, cost)
		}
		granted.Add(cost)
		unknown.Add(cost * failures)
		res, _, err = answer(lim, r)
		return res, err
	})
	proxy.calm.Store(true)
	compareBooks(t, books)
	res, _, err := answer(plain, weir.Request{Key: weir.KeyOf("ann"), Op: weir.Peek})
	if err != nil {
		t.Fatal(err)
	}
	consumed, least, most := res.Limit-res.Remaining, granted.Load(), (granted.Load()+unknown.Load())*(1+repeats)
	if consumed < least || consumed > most {
		t.Errorf("without IDs: the store holds %d tokens, want at least the %d that were granted, and at most %d", consumed, least, most)
	}
	if replayed == 0 {
		t.Error("no decision was repeated after it had been made")
	}
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	for _, harms := range [][]harm{requestHarms, replyHarms} {
		for _, h := range harms {
			if proxy.done[h.name] == 0 {
				t.Errorf("the proxy did not %s", h.name)
			}
		}
	}
	t.Logf("%v: without IDs, %d tokens were consumed for %d; with IDs, %d decisions were repeated, and none was counted twice", proxy.done, consumed, least, replayed)
}
