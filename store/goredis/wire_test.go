package goredis

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// An error reply to one call of a batch does not make the client send the other calls
// again, which have run.
func TestBatchRunsOnce(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN Hash slot not served", "LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica."} {
		for refused := range 3 {
			var ran atomic.Int64
			srv := wiretest.NewCluster(t, func(args []string) string {
				switch {
				case args[0] == "COMMAND":
					return "*0\r\n"
				case args[3] == fmt.Sprint("k", refused):
					return "-" + refusal + "\r\n"
				}
				ran.Add(1)
				return "$1\r\n1\r\n"
			})
			cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr}})
			t.Cleanup(func() { _ = cluster.Close() })
			for name, c := range map[string]redis.UniversalClient{"Client": client(t, srv.Addr), "ClusterClient": cluster} {
				ran.Store(0)
				calls := make([]store.Eval, 3)
				for i := range calls {
					calls[i] = store.Eval{Script: script, Keys: []string{fmt.Sprint("k", i)}}
				}
				New(c).EvalBatch(t.Context(), calls)
				for i, c := range calls {
					if i == refused != errors.Is(c.Err, store.ErrUnavailable) || i != refused && (c.Err != nil || len(c.Reply) != 1) {
						t.Errorf("%s, %s for call %d: call %d: got %v, %v", name, refusal, refused, i, c.Reply, c.Err)
					}
				}
				if n := ran.Load(); n != 2 {
					t.Errorf("%s, %s for call %d: the other 2 calls ran %d times", name, refusal, refused, n)
				}
			}
		}
	}
}

// Failing calls make the store read the topology again, but not once for each call.
func TestFollow(t *testing.T) {
	t.Parallel()
	const down = "-CLUSTERDOWN The cluster is down\r\n"
	for name, c := range map[string]struct {
		answer   string
		topology bool // the node can send it again
	}{
		"CLUSTERDOWN":     {down, true},
		"connection lost": {"", true},
		"no topology":     {down, false}, // then the client itself does not wait between reloads
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var srv *wiretest.Server
			asked := atomic.Bool{}
			srv = wiretest.NewServer(t, func(args []string) string {
				switch {
				case args[0] != "CLUSTER":
					return c.answer
				case asked.Swap(true) && !c.topology:
					return down
				}
				return wiretest.Slots(srv.Addr)
			})
			s := New(cluster(t, srv.Addr))
			if _, err := s.Eval(t.Context(), script, keys, nil, nil); !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			_, reloads := srv.Commands() // the client's first, and perhaps one by the store
			start := time.Now()
			for reloads < 4 { // in real time, because the client reloads in the background
				if _, err := s.Eval(t.Context(), script, keys, nil, nil); !errors.Is(err, store.ErrUnavailable) {
					t.Fatal(err)
				}
				_, n := srv.Commands()
				reloads += n
				if time.Since(start) > 30*time.Second {
					t.Fatalf("%d reloads after %v", reloads, time.Since(start))
				}
			}
			if took := time.Since(start); took < 250*time.Millisecond {
				t.Errorf("4 topology requests within %v", took)
			}
		})
	}
}
