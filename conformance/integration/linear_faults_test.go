package integration

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-go/weir/conformance/integration/internal/linear"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
)

// TestLinearizableCuts cuts connections while clients make requests. A decision whose reply
// is lost was made once, or not at all.
func TestLinearizableCuts(t *testing.T) {
	servers.Need(t)
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			progress(t)
			server, _ := a.single(t)
			e := server.Endpoint
			wire := tap(t, e.Addrs[0])
			e.Addrs = []string{wire.addr}
			rec, unknown := recorder(t, a.once(t, e)), 0
			for range some(25) {
				history, err := rec.Record(t.Context(), rand.Uint64(), &linear.Faults{Before: func(calls int) {
					switch calls % 200 {
					case 50:
						wire.lose.Store(true)
					case 150:
						wire.cut.Store(true)
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				if err := history.Check(artifacts(t)); err != nil {
					t.Fatal(err)
				}
				unknown += history.Unknown
			}
			t.Logf("%d outcomes were unknown", unknown)
			if unknown == 0 {
				t.Error("every outcome is known, so no connection was cut")
			}
		})
	}
}

// TestLinearizableRestarts kills a server while clients make requests, and starts it again. The
// server writes each decision to a file before it replies, so it forgets none.
func TestLinearizableRestarts(t *testing.T) {
	notShort(t)
	servers.Need(t)
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			progress(t)
			// It does not wait until the file is on the disk: only the process is killed.
			server, _ := a.single(t, "--appendonly", "yes", "--appendfsync", "no")
			rec := recorder(t, a.once(t, server.Endpoint))
			for range some(3) {
				restarted(t, server, rec)
			}
		})
	}
}

// restarted records a history in which the server is killed and started again.
func restarted(t *testing.T, server *servers.Server, rec *linear.Recorder) {
	t.Helper()
	begun, back := make(chan struct{}), make(chan struct{})
	resume := sync.OnceFunc(func() { close(back) })
	defer resume()
	var after atomic.Int64
	after.Store(200) // calls after the restart
	faults := &linear.Faults{
		Before: func(calls int) {
			if calls == 100 {
				close(begun)
			}
		},
		Lost: func() { <-back },
		More: func() bool {
			select {
			case <-back:
				return after.Add(-1) >= 0
			default:
				return true
			}
		},
	}
	var history *linear.History
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { history, err = rec.Record(t.Context(), rand.Uint64(), faults) })
	<-begun
	server.Nodes[0].Kill(t)
	server.Nodes[0].Restart(t)
	resume()
	if wg.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := history.Check(artifacts(t)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d outcomes were unknown", history.Unknown)
	if history.Unknown == 0 {
		t.Error("every outcome is known, so the server was not away")
	}
}
