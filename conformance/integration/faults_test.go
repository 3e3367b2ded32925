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

// mild are the rules that no call may have to notice.
var mild = map[string]bool{
	"ScriptFlush": true, "Eviction": true, "ClusterFailover": true, "MasterKilledStill": true,
}

// A sufferer is an adapter, with the rules that it is to suffer.
type sufferer struct {
	adapter
	rules []string // nil: all
}

// sufferers are all adapters, and again where a client does something else by
// default, or an older server words its errors otherwise.
func sufferers() []sufferer {
	var all []sufferer
	for _, a := range adapters {
		all = append(all, sufferer{adapter: a})
	}
	all = append(all, sufferer{
		adapter{name: "goredis, MaxRetries 3", bounded: retryingGoredis, repeats: 3}, []string{"Latency", "Reset", "HalfOpen"},
	})
	for _, a := range adapters {
		a.name, a.version = a.name+", Redis 6.0", "redis-6.0"
		all = append(all, sufferer{a, []string{"MasterDown", "Misconf", "Busy", "OutOfMemory"}})
	}
	return all
}

// suffers reports why s does not suffer a rule, "" if it does.
func (s sufferer) spared(name string) string {
	if s.rules != nil && !slices.Contains(s.rules, name) {
		return "not for " + s.name
	}
	return s.lacks[needs[name]]
}

var update = flag.Bool("update", false, "put the table of TestFaults into docs/stores.md")

// TestFaults makes real servers suffer, under every adapter, and writes what
// became of it to faults.md.
func TestFaults(t *testing.T) {
	servers.Need(t)
	var mu sync.Mutex
	outcomes := map[string]conformance.FaultOutcome{} // by rule and sufferer
	t.Run("on", func(t *testing.T) {
		for _, s := range sufferers() {
			makers := map[string]func(t *testing.T, key string) conformance.Fault{}
			for name, maker := range faultMakers {
				if s.spared(name) == "" {
					makers[name] = func(t *testing.T, key string) conformance.Fault { return maker(t, s.adapter, key) }
				}
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				conformance.RunFaults(t, makers, func(o conformance.FaultOutcome) {
					mu.Lock()
					defer mu.Unlock()
					outcomes[o.Rule+" "+s.name] = o
				})
			})
		}
	})
	if pattern := flag.Lookup("test.run").Value.String(); pattern != "" && pattern != "TestFaults" {
		t.Logf("no table of a run of %q alone", pattern)
		return
	}
	var text strings.Builder
	text.WriteString("| Fault | Store | Calls | Admitted | Unavailable | Deadline | Slowest | Served again after | Lost |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, rule := range conformance.FaultRules() {
		name := strings.TrimPrefix(rule, "Faults/")
		promise := ""
		for _, s := range sufferers() {
			o, ran := outcomes[rule+" "+s.name]
			spared := s.spared(name)
			switch {
			case !ran:
				t.Errorf("%s: %s was not run", rule, s.name)
			case (o.Skipped != "") != (spared != ""):
				t.Errorf("%s: %s was skipped %q, and is declared spared %q", rule, s.name, o.Skipped, spared)
			case spared == "" && !mild[name] && s.repeats == 0 && o.Unavailable+o.Cancelled == 0:
				t.Errorf("%s: %s: no call failed, so there was no fault", rule, s.name)
			}
			if spared != "" {
				continue
			}
			if promise == "" {
				promise = name + ": " + o.Promise
				fmt.Fprintf(&text, "| %s ", promise)
			} else {
				text.WriteString("| ")
			}
			lost := fmt.Sprint(o.Excess)
			if o.Unconfirmed > 0 {
				lost = fmt.Sprintf("%d of %d unconfirmed", o.Excess, o.Unconfirmed)
			}
			fmt.Fprintf(&text, "| %s | %d | %d | %d | %d | %d ms | %d ms | %s |\n", s.name,
				o.Calls, o.Allowed, o.Unavailable, o.Cancelled, o.Slowest.Milliseconds(), o.Recovery.Milliseconds(), lost)
		}
	}
	if err := os.WriteFile("faults.md", []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
	if *update && !t.Failed() {
		put(t, "../../docs/stores.md", "<!-- faults -->\n", "<!-- end of faults -->\n", text.String())
	}
}

// put replaces what stands in a file between two lines.
func put(t *testing.T, file, begin, end, text string) {
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no lines %q and %q", file, begin, end)
	}
	if err := os.WriteFile(file, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
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
					own := strings.Contains(line, " name="+servers.Name+" ") || strings.Contains(line, " name=sentinel-")
					if !own && strings.Contains(line, " flags=N ") {
						n++
					}
				}
			}
			return n
		},
		Open: func() (store.Store, func()) {
			// A client that connects has little time to, for a machine that is slow.
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				st, closeClient, err := a.bounded(e)
				if err == nil {
					return st, closeClient
				}
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
		},
		Longest: max(a.longest, 2*time.Second), // a machine that runs the matrix is slow
		Within:  10 * time.Second,
		Repeats: a.repeats,
		Leaky:   a.leaky && e.Kind != servers.Single,
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
	if info == "" {
		return // Redis 6.0 does not count
	}
	if !strings.Contains(info, "errorstat_"+code+":") {
		t.Errorf("nobody was told %s: %s", code, strings.ReplaceAll(info, "\r\n", " "))
	}
}

func TestFaultNames(t *testing.T) {
	for name := range faultMakers {
		if !slices.Contains(conformance.FaultRules(), "Faults/"+name) {
			t.Errorf("%s is no rule", name)
		}
	}
}
