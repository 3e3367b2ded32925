//go:build !race

package bench

import (
	"context"
	"math"
	"strings"
	"testing"
)

// The most allocations of a decision of one rule, on the server's clock, above those of
// the client in a bare EVALSHA with one key.
const (
	maxAllocs        = 4 // over go-redis
	maxRueidisAllocs = 2 // also over valkey-go
)

// TestAllocs checks maxAllocs. Like TestRueidisAllocs, it does not run under the race
// detector, under which a sync.Pool drops items.
func TestAllocs(t *testing.T) {
	checkAllocs(t, remotes(t, connect(t)), maxAllocs)
}

// TestRueidisAllocs checks maxRueidisAllocs.
func TestRueidisAllocs(t *testing.T) {
	checkAllocs(t, rueidisRemotes(t, connect(t)), maxRueidisAllocs)
}

func checkAllocs(t *testing.T, contenders []*remote, limit float64) {
	t.Helper()
	ctx := context.Background()
	allocs := map[string]float64{}
	for _, r := range contenders {
		allocs[r.name] = math.Inf(1)
		for range 5 { // on a busy machine, a client can allocate more
			allocs[r.name] = min(allocs[r.name], testing.AllocsPerRun(1000, func() {
				if ok, err := r.allow(ctx, "user:1"); err != nil || !ok {
					t.Fatalf("%s: allowed %v, error %v", r.name, ok, err)
				}
			}))
		}
		t.Logf("%s: %v allocations", r.name, allocs[r.name])
		if err := r.reset(ctx, "user:1"); err != nil {
			t.Error(err)
		}
	}
	for name, got := range allocs {
		if got -= allocs["floor"]; got > limit && strings.HasPrefix(name, "weir-gcra") {
			t.Errorf("%s makes %v allocations more than a bare EVALSHA: want at most %v", name, got, limit)
		}
	}
}
