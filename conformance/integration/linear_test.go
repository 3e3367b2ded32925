package integration

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance/integration/internal/linear"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/store/postgres"
)

// These are the numbers of histories that a test records on a store, without those that have
// pauses only. An adapter has 225 in all. miniredis needs much more time for a history than a
// server.
const (
	inMemory    = 200
	onMiniredis = 25
	onSingle    = 100
	onCluster   = 50
	onPostgres  = 25
)

// some returns how many histories of n to record. With the race detector, a history takes
// ten times as long, and a few find its races.
func some(n int) int {
	if testing.Short() || light() {
		return max(n/20, 1)
	}
	return n
}

// TestLinearizable records the histories of concurrent clients on every store, and checks
// that they are linearizable: see package linear.
func TestLinearizable(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		// The store reads its clock while it holds its locks. There, others can run.
		linearizable(t, inMemory, memory.New(&memory.Options{Now: func() time.Time {
			runtime.Gosched()
			return time.Now()
		}}), nil)
	})
	for _, a := range adapters {
		t.Run(a.name+"/miniredis", func(t *testing.T) {
			busyParallel(t)
			progress(t)
			linearizable(t, onMiniredis, a.once(t, servers.Endpoint{Kind: servers.Single, Addrs: []string{miniredis.RunT(t).Addr()}}), nil)
		})
		for _, server := range servers.All() {
			n, open := onSingle, adapter.once
			switch {
			case oneAdapter(server):
				continue
			case server.Kind == servers.Cluster:
				n, open = onCluster, adapter.store
			case server.Name != "redis-8.0" && server.Name != "external":
				continue
			}
			t.Run(a.name+"/"+server.Name, func(t *testing.T) {
				busyParallel(t)
				progress(t)
				server.Start(t)
				linearizable(t, n, open(a, t, server.Endpoint), servers.Client(t, server.Admin()))
			})
		}
	}
	newest := newestPostgres()
	t.Run(newest.Name, func(t *testing.T) {
		busyParallel(t)
		progress(t)
		linearizable(t, onPostgres, postgres.New(limiterPool(t, newest)), nil)
	})
}

// linearizable records histories on st: some of n, and a tenth more that pause and resume keys
// again and again. It deletes their keys with admin, which may be nil: many keys make it slow to
// list those of other tests.
func linearizable(t *testing.T, n int, st store.Store, admin redis.UniversalClient) {
	t.Helper()
	rec := recorder(t, st)
	n = some(n)
	for i := range n + (n+9)/10 {
		rec.Pauses = i >= n
		history, err := rec.Record(t.Context(), rand.Uint64(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := history.Check(artifacts(t)); err != nil {
			t.Fatal(err)
		}
		if admin != nil {
			unlink(t, admin, rec.Prefix)
		}
	}
}

// once returns a store over a client of a single server. The client sends each script once, and
// waits long for the reply.
func (a adapter) once(t testing.TB, e servers.Endpoint) store.Store {
	t.Helper()
	st, closeClient, err := a.bounded(e, longTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeClient)
	return st
}

func recorder(t *testing.T, st store.Store) *linear.Recorder {
	t.Helper()
	rec, err := linear.New(st)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// artifacts returns the directory of the files that a failing test leaves.
func artifacts(t *testing.T) string {
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir() // otherwise it is removed when the test ends
	}
	return os.TempDir()
}
