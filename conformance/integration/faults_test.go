package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// A faultMaker makes a fault for one adapter, and says what its client, as
// adapter.bounded sets it, promises. All keys lie in the slot of key.
type faultMaker func(t *testing.T, a adapter, key string) conformance.Fault

// faultMakers are those of each rule on faults, in the files that are named
// after what suffers.
var faultMakers = map[string]faultMaker{}

// needs are the kinds of servers that some rules need, where that isn't Single.
var needs = map[string]servers.Kind{
	"ClusterDown":       servers.Cluster,
	"ClusterFailover":   servers.Cluster,
	"MasterKilled":      servers.Cluster,
	"MasterKilledStill": servers.Cluster,
	"MasterPaused":      servers.Cluster,
	"Migration":         servers.Cluster,
	"SentinelFailover":  servers.Sentinel,
}

// TestFaults makes real servers suffer, under every adapter, and writes what
// became of it to faults.md.
func TestFaults(t *testing.T) {
	servers.Need(t)
	var mu sync.Mutex
	outcomes := map[string]map[string]conformance.FaultOutcome{} // by rule and adapter
	t.Run("on", func(t *testing.T) {
		for _, a := range adapters {
			makers := map[string]func(t *testing.T, key string) conformance.Fault{}
			for name, maker := range faultMakers {
				if a.lacks[needs[name]] == "" {
					makers[name] = func(t *testing.T, key string) conformance.Fault { return maker(t, a, key) }
				}
			}
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				conformance.RunFaults(t, makers, func(o conformance.FaultOutcome) {
					mu.Lock()
					defer mu.Unlock()
					if outcomes[o.Rule] == nil {
						outcomes[o.Rule] = map[string]conformance.FaultOutcome{}
					}
					outcomes[o.Rule][a.name] = o
				})
			})
		}
	})
	if pattern := flag.Lookup("test.run").Value.String(); pattern != "" && pattern != "TestFaults" {
		t.Logf("no table of a run of %q alone", pattern)
		return
	}
	var text strings.Builder
	for _, rule := range conformance.FaultRules() {
		name := strings.TrimPrefix(rule, "Faults/")
		for _, a := range adapters {
			o, ran := outcomes[rule][a.name]
			switch lacks := a.lacks[needs[name]]; {
			case !ran:
				t.Errorf("%s over %s: not run", rule, a.name)
			case faultMakers[name] == nil:
				continue
			case (o.Skipped != "") != (lacks != ""):
				t.Errorf("%s over %s: skipped %q, declared %q", rule, a.name, o.Skipped, lacks)
			}
			fmt.Fprintln(&text, row(name, a, o))
		}
	}
	if err := os.WriteFile("faults.md", []byte(tableHead+text.String()), 0o644); err != nil {
		t.Error(err)
	}
}

const tableHead = `| Fault | Store | Calls | Admitted | Unavailable | Deadline | Slowest | Served again after | Lost |
|---|---|---|---|---|---|---|---|---|
`

// row is a line of the table.
func row(name string, a adapter, o conformance.FaultOutcome) string {
	if o.Skipped != "" {
		return fmt.Sprintf("| %s | %s | %s | | | | | | |", name, a.name, a.lacks[needs[name]])
	}
	lost := fmt.Sprint(o.Excess)
	if o.Unconfirmed > 0 {
		lost = fmt.Sprintf("%d of %d unconfirmed", o.Excess, o.Unconfirmed)
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d ms | %d ms | %s |", name, a.name,
		o.Calls, o.Allowed, o.Unavailable, o.Cancelled, o.Slowest.Milliseconds(), o.Recovery.Milliseconds(), lost)
}

// suffers returns a fault over the endpoint, of a server of these nodes, to be given
// a beginning and an end.
func (a adapter) suffers(t *testing.T, e servers.Endpoint, nodes ...*redis.Client) conformance.Fault {
	return conformance.Fault{
		Conns: func() int {
			n := 0
			for _, node := range nodes {
				list, err := node.ClientList(context.Background()).Result()
				if err != nil {
					continue // a node that is down has none
				}
				for line := range strings.Lines(list) {
					if !strings.Contains(line, " name="+servers.Name+" ") && strings.Contains(line, " flags=N ") {
						n++
					}
				}
			}
			return n
		},
		Open: func() (store.Store, func()) {
			st, closeClient, err := a.bounded(e)
			if err != nil {
				t.Fatal(err)
			}
			return st, closeClient
		},
		Longest: a.longest,
	}
}

// again calls f every now and then until the function that it returns is called.
func again(every time.Duration, f func()) (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(every):
				f()
			}
		}
	})
	return func() { close(ended); wg.Wait() }
}

// must runs a command on the node.
func must(t *testing.T, rdb doer, words ...any) {
	t.Helper()
	ctx := context.Background()
	if err := rdb.Process(ctx, redis.NewCmd(ctx, words...)); err != nil {
		t.Errorf("%v: %v", words, err)
	}
}

// A doer is a client, or one of its connections.
type doer interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// await waits until f holds.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// answered fails the test unless the node has answered with an error of that code:
// otherwise nobody suffered.
func answered(t *testing.T, rdb *redis.Client, code string) {
	t.Helper()
	info, err := rdb.Info(context.Background(), "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(info, "errorstat_"+code+":") {
		t.Errorf("nobody was told %s: %s", code, strings.ReplaceAll(info, "\r\n", " "))
	}
}

// node returns a client of the node alone, that ends with t.
func node(t *testing.T, n *servers.Node) *redis.Client {
	return servers.Client(t, n.Endpoint()).(*redis.Client)
}

func TestFaultNames(t *testing.T) {
	for name := range faultMakers {
		if !slices.Contains(conformance.FaultRules(), "Faults/"+name) {
			t.Errorf("%s is no rule", name)
		}
	}
}
