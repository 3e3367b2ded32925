package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/weirhttp"
)

// A lateFault delays what callers send to a server, so that a client with several connections, or
// one that has to dial, sends an undo that the grant overtakes, or none.
type lateFault struct {
	name  string
	begin func(p *laggingProxy, n *servers.Node, t *testing.T)
	end   func(p *laggingProxy, n *servers.Node, t *testing.T)
	lasts time.Duration
}

func pause(_ *laggingProxy, n *servers.Node, t *testing.T)   { n.Pause(t) }
func unpause(_ *laggingProxy, n *servers.Node, t *testing.T) { n.Unpause(t) }

var lateFaults = []lateFault{
	{"a stall of 300 ms", pause, unpause, 300 * time.Millisecond},
	{"a stall of 1.3 s", pause, unpause, 1300 * time.Millisecond},
	{"requests that are late by up to 100 ms",
		func(p *laggingProxy, _ *servers.Node, _ *testing.T) { p.set(100 * time.Millisecond) },
		func(p *laggingProxy, _ *servers.Node, _ *testing.T) { p.set(0) }, 500 * time.Millisecond},
}

// A laggingProxy is a proxy on the loopback interface that delays requests.
type laggingProxy struct {
	addr string
	mu   sync.Mutex
	most time.Duration
}

func (p *laggingProxy) set(most time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = most
}

func (p *laggingProxy) pass(from, to *net.TCPConn, late bool) {
	defer func() { _, _ = from.Close(), to.Close() }()
	data := make([]byte, 64<<10)
	for {
		n, err := from.Read(data)
		p.mu.Lock()
		most := p.most
		p.mu.Unlock()
		if late && most > 0 {
			time.Sleep(rand.N(most))
		}
		if _, failed := to.Write(data[:n]); err != nil || failed != nil {
			return
		}
	}
}

// TestLateGrants lets the contexts of many callers end while their requests are delayed. However
// late the server grants leases and turns to them, none stays: the undos are sent again.
func TestLateGrants(t *testing.T) {
	servers.Need(t)
	const callers = 80
	for _, a := range adapters {
		for _, fault := range lateFaults {
			t.Run(a.name+", "+fault.name, func(t *testing.T) {
				if testing.Short() && fault.lasts > 300*time.Millisecond {
					t.Skip("-short")
				}
				t.Parallel()
				server, _ := a.single(t)
				e, p := server.Endpoint, new(laggingProxy)
				p.addr = relay(t, e.Addrs[0], func(wg *sync.WaitGroup, client, server *net.TCPConn) {
					wg.Go(func() { p.pass(client, server, true) })
					wg.Go(func() { p.pass(server, client, false) })
				})
				e.Addrs = []string{p.addr}
				st, closeClient, err := a.bounded(e, longTimeout)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(closeClient)
				jobs, err1 := weir.New("jobs", st, algorithm.Concurrency{Limit: 10 * callers, Lease: time.Hour}, nil)
				pace, err2 := weir.New("pace", st, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}, nil)
				limit, err3 := weirhttp.New(jobs, weirhttp.Leased(weirhttp.By(weirhttp.Text("GET"))), &weirhttp.Options{OnError: func(*http.Request, error) {}})
				if err1 != nil || err2 != nil || err3 != nil {
					t.Fatal(err1, err2, err3)
				}
				handler := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
				calls := []func(ctx context.Context, i int){
					func(ctx context.Context, _ int) {
						if lease, err := jobs.TryAcquire(ctx, "GET"); err == nil {
							_, _ = lease.Release(t.Context())
						}
					},
					func(ctx context.Context, i int) {
						if turn, err := pace.Reserve(ctx, weir.Request{Key: weir.KeyOf(fmt.Sprint(i))}); err == nil {
							_, _ = turn.Cancel(t.Context())
						}
					},
					func(ctx context.Context, _ int) {
						handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
					},
				}
				held := func(ctx context.Context) (n int, err error) {
					res, err := jobs.Peek(ctx, "GET")
					if err != nil {
						return 0, err
					}
					n = 10*callers - int(res.Remaining)
					for i := range callers {
						res, err := pace.Peek(ctx, fmt.Sprint(i))
						if err != nil {
							return 0, err
						}
						n += 1 - int(res.Remaining)
					}
					return n, nil
				}
				var wg sync.WaitGroup
				for i := range callers { // the server learns the scripts, and the client makes its connections
					wg.Go(func() { calls[i%2](t.Context(), i) })
				}
				wg.Wait()
				fault.begin(p, server.Nodes[0], t)
				for i := range callers {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
						defer cancel()
						calls[i%len(calls)](ctx, i)
					})
				}
				time.Sleep(fault.lasts)
				fault.end(p, server.Nodes[0], t)
				wg.Wait()
				start, first := time.Now(), -1
				eventually(t, "no grant is held", func(ctx context.Context) error {
					n, err := held(ctx)
					if err == nil && first < 0 {
						first = n
					}
					if err == nil && n > 0 {
						err = fmt.Errorf("%d grants are held", n)
					}
					return err
				})
				t.Logf("%d grants were held, and none %v later", first, time.Since(start).Round(time.Millisecond))
			})
		}
	}
}
