package integration

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/weirhttp"
)

// A lagging connection delays what is written to it by up to most nanoseconds.
type lagging struct {
	net.Conn
	most *atomic.Int64
}

func (l lagging) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(rand.Int64N(l.most.Load() + 1)))
	return l.Conn.Write(p)
}

// giveBack calls undo until it succeeds. A client whose dials have just failed can refuse to dial.
func giveBack(t *testing.T, undo func(context.Context) (bool, error)) {
	eventually(t, "the grant is undone", func(ctx context.Context) error { _, err := undo(ctx); return err })
}

// TestLateGrants lets the contexts of many callers end while a server is stopped, or while their
// requests are delayed. However late the server grants leases and turns, none stays.
func TestLateGrants(t *testing.T) {
	servers.Need(t)
	const callers = 80
	for _, a := range adapters {
		for _, fault := range []struct {
			stall, delay time.Duration
		}{{300 * time.Millisecond, 0}, {1300 * time.Millisecond, 0}, {0, 100 * time.Millisecond}} {
			t.Run(fmt.Sprint(a.name, ", stall ", fault.stall, ", delay ", fault.delay), func(t *testing.T) {
				if testing.Short() && fault.stall != 300*time.Millisecond {
					t.Skip("-short")
				}
				t.Parallel()
				server, _ := a.single(t)
				e, node := server.Endpoint, server.Nodes[0]
				var most atomic.Int64
				e.Addrs = []string{relay(t, e.Addrs[0], func(wg *sync.WaitGroup, client, server *net.TCPConn) {
					wg.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
					wg.Go(func() { _, _ = io.Copy(lagging{server, &most}, client); _ = server.CloseWrite() })
				})}
				st := a.once(t, e)
				jobs := newLimiter(t, st, "jobs", algorithm.Concurrency{Limit: 10 * callers, Lease: time.Hour})
				pace := newLimiter(t, st, "pace", algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1})
				var kept atomic.Int64 // the release after a handler is sent once, so it can be lost
				call := func(i int, timeout time.Duration) {
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					switch i % 3 {
					case 2:
						served, failed := false, false
						limit, err := weirhttp.New(jobs, weirhttp.By(weirhttp.Text("all")), &weirhttp.Options{
							OnError: func(*http.Request, error) { failed = true },
						})
						if err != nil {
							t.Error(err)
							return
						}
						limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })).
							ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
						if served && failed {
							kept.Add(1)
						}
					case 0:
						if lease, err := jobs.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("all")}); err == nil {
							giveBack(t, lease.Release)
						}
					case 1:
						if turn, err := pace.Reserve(ctx, weir.Request{Key: weir.KeyOf(fmt.Sprint(i))}); err == nil {
							giveBack(t, turn.Cancel)
						}
					}
				}
				var wg sync.WaitGroup
				for i := range callers { // the server learns the scripts, and the client makes its connections
					wg.Go(func() { call(i, longTimeout) })
				}
				wg.Wait()
				if fault.stall > 0 {
					node.Pause(t)
				}
				most.Store(int64(fault.delay))
				for i := range callers {
					wg.Go(func() { call(i, 50*time.Millisecond) })
				}
				time.Sleep(fault.stall)
				if fault.stall > 0 {
					node.Unpause(t)
				}
				wg.Wait()
				most.Store(0)
				start, first := time.Now(), int64(-1)
				eventually(t, "no grant is held", func(ctx context.Context) error {
					res, err := jobs.Peek(ctx, "all")
					held := res.Limit - res.Remaining
					for i := 0; i < callers && err == nil; i++ {
						res, err = pace.Peek(ctx, fmt.Sprint(i))
						held += res.Limit - res.Remaining
					}
					if err == nil && first < 0 {
						first = held
					}
					if err == nil && held > kept.Load() {
						err = fmt.Errorf("%d grants are held, and %d releases were lost", held, kept.Load())
					}
					return err
				})
				t.Logf("%d grants were held, of which %d lost their release, and no other %v later", first, kept.Load(), time.Since(start).Round(time.Millisecond))
			})
		}
	}
}
