package integration

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/conformance/internal/histories"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// TestHistories runs random histories with changes of limits on a server, a cluster and
// PostgreSQL: WEIR_HISTORIES of them, or 300.
func TestHistories(t *testing.T) {
	notLight(t)
	t.Parallel()
	n := weirtest.Histories(t, 300)
	for _, server := range servers.All() {
		if server.Name == "redis-8.0" || server.Name == "redis-cluster-8.0" {
			t.Run(server.Name, func(t *testing.T) {
				t.Parallel()
				server.Start(t)
				p := adapters[0].at(t, server.Endpoint, server.Admin())
				unlink(t, p.admin, runHistories(t, p.st, n))
			})
		}
	}
	server := newestPostgres()
	t.Run(server.Name, func(t *testing.T) {
		t.Parallel()
		runHistories(t, postgres.New(limiterPool(t, server)), n)
	})
}

// runHistories runs n histories, four at a time. It returns the prefix of all keys.
func runHistories(t *testing.T, st store.Store, n int) (prefix string) {
	prefix = fmt.Sprintf("weirtest-histories-%x", rand.Uint64())
	first := rand.Uint64N(1 << 40)
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			var stats histories.Stats
			for seed := w; seed < n && !t.Failed(); seed += 4 {
				if err := histories.Run(t.Context(), st, fmt.Sprint(prefix, "-", seed), first+uint64(seed), &stats); err != nil {
					t.Error(err)
				}
			}
			t.Logf("%+v", stats)
		})
	}
	workers.Wait()
	return prefix
}
