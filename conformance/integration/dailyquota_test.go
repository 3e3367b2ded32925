package integration

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // wherever the tests run

	"github.com/alicebob/miniredis/v2"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/examples/dailyquota"
	"github.com/weir-go/weir/store"
)

// quotas are the limits of an algorithm that is not the module's, to prove.
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

// TestDailyQuota proves, on miniredis and on every server that one process is,
// that an algorithm from outside means in Lua what it does in Go.
func TestDailyQuota(t *testing.T) {
	goredis := adapters[0]
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		e := servers.Endpoint{Kind: servers.Single, Addrs: []string{miniredis.RunT(t).Addr()}}
		conformance.RunAlgorithm(t, seen(t, goredis, e, e), quotas(t))
	})
	for _, server := range servers.All() {
		if server.Kind != servers.Single {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			server.Start(t)
			e := server.Endpoint
			if e.User != "" {
				e = server.Grant(t, "~weir* "+servers.ACL+" "+goredis.words[server.Kind])
			}
			conformance.RunAlgorithm(t, seen(t, goredis, e, server.Admin()), quotas(t))
		})
	}
}

// seen is a backend over the store that a makes of e, into which the suite looks by
// way of admin. A rule that is skipped fails.
func seen(t *testing.T, a adapter, e, admin servers.Endpoint) conformance.Backend {
	t.Helper()
	rdb := servers.Client(t, admin)
	return conformance.Backend{
		New:  func(t *testing.T) store.Store { return a.store(t, e) },
		Keys: func(t *testing.T, _ store.Store, part string) map[string]time.Duration { return keys(t, rdb, part) },
		Record: func(o conformance.Outcome) {
			if !o.Passed && o.Skipped != "algorithm has no MaxWait" { // a day is not taken from ahead of time
				t.Errorf("%s: not passed: %s", o.Rule, o.Skipped)
			}
		},
	}
}
