package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/postgres"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
)

// TestExplain explains a caller, and finds those that use most, with every adapter on a
// single server and on a cluster, and on PostgreSQL.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, a := range adapters {
		for _, server := range servers.All() {
			if server.Name != "redis-8.0" && server.Name != "redis-cluster-8.0" {
				continue
			}
			t.Run(a.name+"/"+server.Name, func(t *testing.T) {
				t.Parallel()
				server.Start(t)
				explains(t, a.store(t, server.Endpoint))
			})
		}
	}
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		explains(t, postgres.New(limiterPool(t, newestPostgres())))
	})
}

func explains(t *testing.T, st store.Store) {
	t.Helper()
	slow := algorithm.GCRA{Rate: algorithm.PerDay(20), Burst: 20}
	lim, err := weir.NewPolicy(store.Coalesce(st), weir.Policy{
		Name: "explain", Segments: []string{"tenant", "user"}, Secret: []string{"user"},
		Rules: []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.SlidingLog{Limit: 1000, Window: time.Hour}},
			{Name: "user", Algorithm: slow},
			{Name: "later", By: []string{"user"}, Algorithm: slow, Shadow: true},
		},
	}, &weir.Options{Prefix: fmt.Sprintf("weirtest-explain*-%d", time.Now().UnixNano())})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 60 { // tenants of many slots
		if _, err := lim.AllowN(t.Context(), int64(n%20+1), fmt.Sprint("tenant", n%30), fmt.Sprint("user", n)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range []string{"tenant", "user", "later"} {
			if only, err := lim.Only(name); err == nil {
				for n := range 60 {
					_ = only.Reset(t.Context(), fmt.Sprint("tenant", n%30), fmt.Sprint("user", n))
				}
			}
		}
	})
	doc, err := explain.Explain(t.Context(), lim, "tenant19", "user19")
	if err != nil || doc.Allowed || doc.DeniedBy != "user" || doc.Rules[0].Used != 30 || doc.Rules[1].Used != 20 || doc.Rules[2].Used != 20 || doc.Slot != store.Slot(doc.Rules[1].Keys[0]) {
		t.Fatalf("got %+v, %v", doc, err)
	}
	counts := map[string]int{}
	for c, err := range explain.List(t.Context(), lim, &explain.ListOptions{Usage: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if counts[c.Rule]++; c.Used == 0 {
			t.Errorf("nothing is used: %+v", c)
		}
	}
	if counts["tenant"] != 30 || counts["user"] != 60 || counts["later"] != 60 {
		t.Errorf("got the callers %v", counts)
	}
	top, err := explain.Top(t.Context(), lim, 3, &explain.ListOptions{Rule: "user", Segments: []string{"tenant19"}})
	if err != nil || top.Listed != 2 || len(top.Callers) != 2 || top.Callers[0].Used != 20 || top.Callers[1].Used != 10 {
		t.Errorf("got %+v, %v", top, err)
	}
}
