package integration

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
)

// A faultMaker makes a fault for one adapter, whose client adapter.bounded made. All keys
// have the slot of key.
type faultMaker func(t *testing.T, a adapter, key string) conformance.Fault

// faultMakers has the maker of each check of faults: see server_faults_test.go and
// cluster_faults_test.go.
var faultMakers = map[string]faultMaker{}

// needs are the kinds of servers that some checks need. The others need a Single.
var needs = map[string]servers.Kind{
	"ClusterDown":       servers.Cluster,
	"ClusterFailover":   servers.Cluster,
	"MasterKilled":      servers.Cluster,
	"MasterKilledStill": servers.Cluster,
	"MasterPaused":      servers.Cluster,
	"Migration":         servers.Cluster,
	"SentinelFailover":  servers.Sentinel,
}

// served are the checks in which calls must be served. On a busy machine, a short timeout of the
// client would fail some.
var served = map[string]bool{"ScriptFlush": true, "Eviction": true, "Migration": true}

// A faulty is an adapter, and the checks of faults that it takes part in.
type faulty struct {
	adapter
	checks []string // nil means all
}

// faulties returns all adapters; go-redis with its default retries; and all adapters on
// Redis 6.0, whose errors have other texts.
func faulties() []faulty {
	var all []faulty
	for _, a := range adapters {
		all = append(all, faulty{adapter: a})
	}
	for _, a := range adapters {
		a.name, a.version = a.name+", Redis 6.0", "redis-6.0"
		all = append(all, faulty{a, []string{"MasterDown", "Misconf", "Busy", "OutOfMemory"}})
	}
	if !light() { // under the race detector, calls can take longer than its short timeout
		all = append(all, faulty{
			adapter{name: "goredis, MaxRetries 3", bounded: retryingGoredis, repeats: 3}, []string{"Latency", "Reset", "HalfOpen"},
		})
	}
	return all
}

// left reports whether f, the faulty at index i, leaves the check at index j to the other
// share. A client that retries runs only without the race detector, and so leaves none.
func (f faulty) left(i, j int) bool { return f.repeats == 0 && !shared(i+j) }

// spared returns why f does not take part in a check, or "" if it does.
func (f faulty) spared(name string) string {
	if f.checks != nil && !slices.Contains(f.checks, name) {
		return "not for " + f.name
	}
	return f.lacks[needs[name]]
}

var update = flag.Bool("update", false, "write the cells of conformance/reports/faults.md")

// TestFaults makes real servers fail while callers use every adapter. It can update the outcomes
// in ../reports/faults.md. In a share, each adapter takes part in every second fault, and each
// fault has every second adapter.
func TestFaults(t *testing.T) {
	notShort(t)
	servers.Need(t)
	var mu sync.Mutex
	outcomes := map[string]conformance.Outcome{} // by check and faulty
	t.Run("on", func(t *testing.T) {
		for i, s := range faulties() {
			makers := map[string]func(t *testing.T, key string) conformance.Fault{}
			for j, check := range conformance.FaultChecks() {
				name := strings.TrimPrefix(check, "Faults/")
				if maker := faultMakers[name]; maker != nil && s.spared(name) == "" && !s.left(i, j) {
					a := s.adapter
					if served[name] {
						a.timeout = longTimeout
					}
					makers[name] = func(t *testing.T, key string) conformance.Fault { return maker(t, a, key) }
				}
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				progress(t)
				conformance.RunFaults(t, conformance.Backend{Faults: makers, Record: func(o conformance.Outcome) {
					mu.Lock()
					defer mu.Unlock()
					outcomes[o.Check+" "+s.name] = o
				}})
			})
		}
	})
	if pattern := flag.Lookup("test.run").Value.String(); pattern != "" && pattern != "TestFaults" {
		t.Logf("no table of a run of %q alone", pattern)
		return
	}
	rows := map[string][]*conformance.FaultOutcome{}
	for j, check := range conformance.FaultChecks() {
		name := strings.TrimPrefix(check, "Faults/")
		for i, s := range faulties() {
			if s.left(i, j) {
				continue
			}
			o, ran := outcomes[check+" "+s.name]
			spared := s.spared(name)
			switch {
			case ran != (spared == ""):
				t.Errorf("%s: %s: run is %v, and it is spared because of %q", check, s.name, ran, spared)
			case o.Skipped != "":
				t.Errorf("%s: %s was skipped: %s", check, s.name, o.Skipped)
			}
			if o.Fault != nil {
				t.Logf("%s: %s: %s", check, s.name, o.Fault)
				rows[name+": "+o.Promise] = append(rows[name+": "+o.Promise], o.Fault)
			}
		}
	}
	if *update && *share == 0 && !t.Failed() { // a share has half of the outcomes
		putFaults(t, 2, rows)
	}
}

// putFaults replaces the cells of a column in the table of ../reports/faults.md, of which each row
// begins with a name and a promise. A cell has the most tokens that were lost and, if it took longer
// than 100 ms, the time until callers were served again.
func putFaults(t *testing.T, column int, rows map[string][]*conformance.FaultOutcome) {
	const page = "../reports/faults.md"
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(old), "\n")
	for i, line := range lines {
		cells := strings.Split(line, " | ")
		row := strings.TrimPrefix(cells[0], "| ")
		if rows[row] == nil {
			continue
		}
		var lost int64
		var recovery time.Duration
		for _, o := range rows[row] {
			lost, recovery = max(lost, o.Excess), max(recovery, o.Recovery)
		}
		cell := fmt.Sprint(lost)
		if recovery > 100*time.Millisecond {
			cell += fmt.Sprintf("; %d ms", recovery.Milliseconds())
		}
		cells[column-1] = cell
		if column == len(cells) {
			cells[column-1] += " |"
		}
		lines[i] = strings.Join(cells, " | ")
		delete(rows, row)
	}
	if len(rows) > 0 {
		t.Errorf("%s has no row for %q", page, slices.Sorted(maps.Keys(rows)))
	}
	if err := os.WriteFile(page, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// put replaces the text between two lines of a file.
func put(t *testing.T, file, begin, end, text string) {
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page, err := weirtest.ReplacePart(string(old), begin, end, "\n"+text+"\n")
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fault returns a fault over the endpoint, of a server of these nodes, without Begin and
// End.
func (a adapter) fault(t *testing.T, e servers.Endpoint, nodes ...*redis.Client) conformance.Fault {
	f := conformance.Fault{
		Conns: func() int {
			n := 0
			for _, node := range nodes {
				list, err := node.ClientList(context.Background()).Result()
				if err != nil {
					continue // a node that is down has no connections
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
			// The timeout of a connection is short for a slow machine: try again.
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				st, closeClient, err := a.bounded(e, cmp.Or(a.timeout, shortTimeout))
				if err == nil {
					return st, closeClient
				}
				if time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
		},
		// A machine that runs the whole matrix is slow, so that some calls fail without a
		// fault. The usual times are in ../reports/faults.md.
		Longest: 2 * time.Second,
		Within:  time.Minute,
		Repeats: a.repeats,
		Leaky:   a.leaky && e.Kind != servers.Single,
	}
	if a.forgets && e.Kind == servers.Cluster {
		f.Conns = nil
	}
	return f
}

// again calls f at intervals, until the function that it returns is called.
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

// await waits until f returns true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it took too long: %s", what)
		}
	}
}

// answered fails the test unless the node has replied with an error of that code:
// otherwise there was no fault.
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
		t.Errorf("no caller got the error %s: %s", code, strings.ReplaceAll(info, "\r\n", " "))
	}
}

func TestFaultNames(t *testing.T) {
	for name := range faultMakers {
		if !slices.Contains(conformance.FaultChecks(), "Faults/"+name) {
			t.Errorf("there is no check %s", name)
		}
	}
}
