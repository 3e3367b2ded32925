package integration

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // wherever the tests run

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/examples/dailyquota"
)

// quotas returns random limits of an algorithm that is not built in.
func quotas(t *testing.T) conformance.Subject {
	t.Helper()
	var zones []*time.Location
	for _, name := range []string{"UTC", "Europe/Berlin", "Africa/Cairo", "America/Havana", "Asia/Kathmandu"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	return conformance.Subject{
		New: func(r *rand.Rand) algorithm.Algorithm {
			return dailyquota.Quota{
				Limit: 1 + r.Int64N(20),
				Zone:  zones[r.IntN(len(zones))],
				From:  time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC),
			}
		},
		Unit: func(algorithm.Algorithm) time.Duration { return 6 * time.Hour },
		Huge: []algorithm.Algorithm{dailyquota.Quota{Limit: algorithm.MaxTokens, Zone: time.UTC}},
	}
}

// TestDailyQuota checks an algorithm that is not built in, on the newest server or, where there is
// none, on miniredis: its Lua and its Go must mean the same.
func TestDailyQuota(t *testing.T) {
	busyParallel(t)
	a := adapters[0]
	b := a.backend(a.eachMiniredis)
	if servers.Available() {
		b = a.backend(a.on(t, servers.All()[slices.IndexFunc(servers.All(), func(s *servers.Server) bool { return s.Name == "redis-8.0" })]))
	}
	b.Brief = light()
	conformance.RunAlgorithm(t, strict(t, b), quotas(t))
}

// strict returns b, on which a check that is skipped fails.
func strict(t *testing.T, b conformance.Backend) conformance.Backend {
	b.Record = func(o conformance.Outcome) {
		if !o.Passed && o.Skipped != "algorithm has no MaxWait" { // tokens of tomorrow cannot be reserved
			t.Errorf("%s: not passed: %s", o.Check, o.Skipped)
		}
	}
	return b
}
