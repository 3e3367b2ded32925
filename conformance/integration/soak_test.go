package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/conformance/integration/internal/soak"
	"github.com/weir-go/weir/store"
)

var (
	soakTime   = flag.Duration("soak", 0, "how long TestSoak runs at least; 0 means each fault once, with short rounds")
	soakSeed   = flag.Uint64("soak.seed", 0, "the seed of TestSoak; 0 means a random one")
	soakReport = flag.String("soak.report", "", "a `page` of which TestSoak replaces the part between its marks, if it passes")
)

const (
	soakClients = 8 // two of each adapter

	// At rest, there can be so much more than at the first rest: goroutines that end later
	// and those that a client leaves behind, and memory that a collector or a server keeps
	// for later.
	soakGoroutines = 40
	soakHeap       = 16 << 20
	soakMemory     = 8 << 20
)

// A soaking is a soak on a server.
type soaking struct {
	*soak.Soak
	t      *testing.T
	prefix string
	admin  redis.UniversalClient
	nodes  []*redis.Client
	start  time.Time
	base   *soak.Rest // the first

	patience time.Duration // for what ends later
}

// soakOn returns a soak on the server of e. wrap is around the store of each client, and can be
// nil.
func soakOn(t *testing.T, seed uint64, e servers.Endpoint, nodes []*redis.Client, wrap func(store.Store) store.Store) *soaking {
	k := &soaking{t: t, prefix: fmt.Sprintf("soak-%x", rand.Uint32()), admin: servers.Client(t, e), nodes: nodes, start: time.Now(), patience: 20 * time.Second}
	k.Soak = soak.New(soak.Config{Seed: seed, Prefix: k.prefix, Clients: soakClients, Open: func(i int) (soak.Client, error) {
		a := adapters[i%len(adapters)]
		st, closeClient, err := a.bounded(e, longTimeout)
		if err == nil && wrap != nil {
			st = wrap(st)
		}
		c := soak.Client{Name: a.name, Store: st, Close: closeClient, Stays: a.leaky}
		if a.name == "goredis" {
			c.Repeats = 3 // as in clusterFault
		}
		return c, err
	}})
	t.Cleanup(k.Leave)
	return k
}

// round runs a round, and looks at the TTLs of keys meanwhile.
func (k *soaking) round(d time.Duration, f *soak.Fault) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	for _, node := range k.nodes {
		wg.Go(func() { k.sample(node, ended) })
	}
	k.Round(d, f)
	close(ended)
	wg.Wait()
}

// sample looks at the TTLs of a node's keys until ended is closed.
func (k *soaking) sample(node *redis.Client, ended <-chan struct{}) {
	for cursor := uint64(0); ; {
		select {
		case <-ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
		names, next, err := node.Scan(context.Background(), cursor, k.prefix+":*", 100).Result()
		if err != nil {
			continue // during a fault
		}
		cursor = next
		ttls := make([]*redis.DurationCmd, len(names))
		_, err = node.Pipelined(context.Background(), func(p redis.Pipeliner) error {
			for i, name := range names {
				ttls[i] = p.PTTL(context.Background(), name)
			}
			return nil
		})
		if err != nil {
			continue
		}
		for i, ttl := range ttls {
			k.look(names[i], ttl.Val())
		}
	}
}

// look checks the TTL of a key.
func (k *soaking) look(name string, ttl time.Duration) {
	k.Report.Add(soak.Keys)
	if ttl == -1 {
		k.Violate(soak.Immortal, "%q", name)
	}
}

// rest closes all clients, looks at all TTLs, and deletes the keys. Then it compares what is
// left with the first rest.
func (k *soaking) rest() {
	k.t.Helper()
	k.Leave()
	for name, ttl := range keys(k.t, k.admin, k.prefix) {
		k.look(name, ttl)
	}
	k.delete()
	var r soak.Rest
	growth, abandoned := "", ""
	for deadline := time.Now().Add(k.patience); ; time.Sleep(100 * time.Millisecond) {
		r = k.measure()
		growth, abandoned = "", ""
		if b := k.base; b != nil {
			switch {
			case r.Heap > b.Heap+soakHeap:
				growth = fmt.Sprintf("the heap has %d bytes, and had %d at first", r.Heap, b.Heap)
			case r.Server > b.Server+soakMemory:
				growth = fmt.Sprintf("a server uses %d bytes, and the largest used %d at first", r.Server, b.Server)
			}
			if r.Goroutines > b.Goroutines+soakGoroutines {
				abandoned = fmt.Sprintf("there are %d, and were %d at first", r.Goroutines, b.Goroutines)
			}
		}
		if growth+abandoned == "" || time.Now().After(deadline) {
			break
		}
	}
	if growth != "" {
		k.Violate(soak.Growth, "%s", growth)
	}
	if abandoned != "" {
		k.Violate(soak.Abandoned, "%s", abandoned)
	}
	k.Report.Rests = append(k.Report.Rests, r)
	if k.base == nil {
		k.base = &r
	}
}

// delete deletes the keys of the soak on each master.
func (k *soaking) delete() {
	err := eachMaster(k.t.Context(), k.admin, func(ctx context.Context, node *redis.Client) error {
		for cursor := uint64(0); ; {
			names, next, err := node.Scan(ctx, cursor, k.prefix+":*", 1000).Result()
			if err != nil {
				return err
			}
			if len(names) > 0 {
				_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
					for _, name := range names {
						p.Del(ctx, name)
					}
					return nil
				})
			}
			if cursor = next; err != nil || cursor == 0 {
				return err
			}
		}
	})
	if err != nil {
		k.t.Error(err)
	}
}

// measure returns what there is now.
func (k *soaking) measure() soak.Rest {
	runtime.GC()
	runtime.GC() // also what had a finalizer
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	r := soak.Rest{Heap: stats.HeapAlloc, Goroutines: runtime.NumGoroutine()}
	for _, node := range k.nodes {
		var used int64
		eventually(k.t, "used_memory", func(ctx context.Context) error {
			info, err := node.Info(ctx, "memory").Result()
			if err != nil {
				return err
			}
			_, info, _ = strings.Cut(info, "used_memory:")
			_, err = fmt.Sscan(info, &used)
			return err
		})
		r.Server = max(r.Server, used)
	}
	return r
}

// TestSoak runs clients of all adapters on a cluster, while they join and leave, limits change
// and faults happen: see package soak. It is not parallel, because it counts the goroutines and
// the memory of the process.
func TestSoak(t *testing.T) {
	healthy, faulty := 200*time.Millisecond, 400*time.Millisecond
	switch {
	case *soakTime == 0:
		notShort(t)
		notLight(t)
	default:
		healthy, faulty = 3*time.Second, 3*time.Second
	}
	servers.Need(t)
	progress(t)
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	c := newSoakCluster(t, seed)
	k := soakOn(t, seed, c.Endpoint, c.nodes, nil)
	k.Report.About = soakAbout(t, c.nodes[0])
	k.round(healthy, nil)
	k.rest()
	for {
		for _, name := range c.shuffled() {
			k.round(healthy, nil)
			k.round(faulty, c.fault(name, k.Tags()))
			if t.Failed() || k.Err() != nil {
				break
			}
		}
		k.rest()
		if *soakTime > 0 {
			fmt.Fprintf(os.Stderr, "soak: %v, %d calls, %d violations\n", time.Since(k.start).Round(time.Second), k.Report.Count(soak.Calls), k.Report.Violations())
		}
		if time.Since(k.start) > *soakTime || t.Failed() || k.Err() != nil {
			break
		}
	}
	k.Report.Took = time.Since(k.start)
	k.complete()
	if err := k.Err(); err != nil {
		t.Error(err)
	}
	t.Log("\n" + k.Report.Markdown())
	if *soakReport != "" && !t.Failed() {
		put(t, *soakReport, "<!-- soak -->\n", "<!-- end of soak -->\n", k.Report.Markdown())
	}
}

// soakAbout says what is tested.
func soakAbout(t *testing.T, node *redis.Client) [][2]string {
	info, err := node.Info(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	about := [][2]string{
		{"Server", productOf(info) + ", a cluster of three masters and three replicas"},
		{"Go", fmt.Sprintf("%s, %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)},
	}
	for _, a := range adapters {
		c := clients[a.name]
		about = append(about, [2]string{a.name, c.name + " " + versionOf(c.function)})
	}
	return about
}

// complete checks that every verb was called, and that every fault happened.
func (k *soaking) complete() {
	if k.Err() != nil {
		return // it ended early
	}
	if missing := k.Report.Missing(); len(missing) > 0 {
		k.t.Errorf("no call was a %s", missing)
	}
	if names, _ := k.Report.Faults(); len(names) != len(soakFaults) {
		k.t.Errorf("there were %d faults, want %d", len(names), len(soakFaults))
	}
	if k.Report.Count(soak.Unknown) == 0 {
		k.t.Error("every call had a reply, so there was no fault")
	}
	if k.Report.Count(soak.Judged) == 0 || k.Report.Count(soak.Keys) == 0 {
		k.t.Errorf("nothing was checked:\n%s", k.Report.Markdown())
	}
}
