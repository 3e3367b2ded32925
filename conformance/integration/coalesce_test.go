package integration

import (
	"testing"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// TestCoalesce runs the suite on coalesced stores, whose concurrent calls go out as the
// adapters' batches.
func TestCoalesce(t *testing.T) {
	notShort(t)
	t.Parallel()
	for i, s := range servers.All()[4:8] { // a single server, two clusters, and one with sentinels
		if !shared(i) {
			continue
		}
		a := adapters[[]int{2, 1, 0, 3}[i]]
		t.Run(a.name+"/"+s.Name, func(t *testing.T) {
			busyParallel(t)
			progress(t)
			s.Start(t)
			st := a.store(t, s.Endpoint)
			conformance.Run(t, conformance.Backend{
				New:   func(*testing.T) store.Store { return store.Coalesce(st) },
				Brief: true,
			})
		})
	}
}
