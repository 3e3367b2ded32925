package integration

import (
	"testing"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"
)

// TestCoalesce runs the suite on coalesced stores, whose concurrent calls go out as the
// adapters' batches, and on PostgreSQL as one transaction.
func TestCoalesce(t *testing.T) {
	notShort(t)
	t.Parallel()
	coalesced := func(t *testing.T, open func(t *testing.T) store.Store) {
		busyParallel(t)
		progress(t)
		st := open(t)
		conformance.Run(t, conformance.Backend{
			New:      func(*testing.T) store.Store { return store.Coalesce(st) },
			Brief:    true,
			Parallel: 4,
		})
	}
	t.Run("postgres", func(t *testing.T) {
		notLight(t)
		coalesced(t, func(t *testing.T) store.Store { return postgres.New(limiterPool(t, newestPostgres())) })
	})
	for i, s := range servers.All()[4:8] { // a single server, two clusters, and one with sentinels
		if !shared(i) {
			continue
		}
		a := adapters[[]int{2, 1, 0, 3}[i]]
		t.Run(a.name+"/"+s.Name, func(t *testing.T) {
			coalesced(t, func(t *testing.T) store.Store {
				s.Start(t)
				return a.store(t, s.Endpoint)
			})
		})
	}
}
