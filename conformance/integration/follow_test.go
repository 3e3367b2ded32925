package integration

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

const (
	followKills  = 5
	followMedian = time.Second     // from a promotion to the first decision
	stormTime    = 3 * time.Second // without a master
	stormCallers = 1000
	// stormTopology bounds the requests for the topology to each node per second, while
	// 1000 callers fail about 10,000 times a second. The adapters send a few; rueidis
	// and valkey-go send up to 14 of their own.
	stormTopology = 20
)

// TestFollow measures the time from a promotion to the first decision, with clients of
// default settings, and the requests for the topology that the other nodes get.
func TestFollow(t *testing.T) {
	notShort(t)
	t.Parallel()
	for i, a := range adapters {
		if !shared(i) {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			progress(t)
			if reason := a.lacks[servers.Cluster]; reason != "" {
				t.Skip(reason)
			}
			c := newCluster(t)
			st := a.store(t, c.Endpoint)
			lim, err := weir.New("follow", st, algorithm.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour}, nil)
			if err != nil {
				t.Fatal(err)
			}
			key := onlyKey(t, c, lim)
			c.follow(t, lim, key)
			c.storm(t, lim, key)
		})
	}
}

func decide(t *testing.T, lim *weir.Limiter) error {
	ctx, cancel := context.WithTimeout(t.Context(), conformance.CallTime)
	defer cancel()
	_, err := lim.Allow(ctx, "one")
	return err
}

// onlyKey returns the only key of lim.
func onlyKey(t *testing.T, c *cluster, lim *weir.Limiter) string {
	t.Helper()
	eventually(t, "a first decision", func(context.Context) error { return decide(t, lim) })
	for found := range keys(t, servers.Client(t, c.Endpoint), "follow") {
		return found
	}
	t.Fatal("no key was written")
	return ""
}

// follow kills the master of key several times.
func (c *cluster) follow(t *testing.T, lim *weir.Limiter, key string) {
	var took []time.Duration
	for range followKills {
		master, replica := c.master(t, key)
		replicates(t, c.nodes[replica])
		var mu sync.Mutex
		var served []time.Time // the times of decisions
		ended := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ended:
					return
				case <-tick.C:
				}
				if decide(t, lim) == nil {
					mu.Lock()
					served = append(served, time.Now())
					mu.Unlock()
				}
			}
		})
		time.Sleep(200 * time.Millisecond) // under way
		c.Nodes[master].Kill(t)
		killed := time.Now()
		c.succeeded(t, key, master, replica)
		promoted := time.Now()
		var back time.Duration
		eventually(t, "service", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			for _, at := range served {
				if at.After(killed) {
					back = max(0, at.Sub(promoted))
					return nil
				}
			}
			return errors.New("not served")
		})
		close(ended)
		wg.Wait()
		took = append(took, back)
		c.Nodes[master].Restart(t)
		replicates(t, c.nodes[master])
		c.agree(t, key, replica)
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("from a promotion to service: median %v, worst %v, of %v", median, took[len(took)-1], took)
	if median > followMedian {
		t.Errorf("service is back %v after a promotion, in the median of %v: want %v at most", median, took, followMedian)
	}
}

// storm kills the master of key and prevents a promotion, while many callers fail.
func (c *cluster) storm(t *testing.T, lim *weir.Limiter, key string) {
	master, replica := c.master(t, key)
	if err := c.nodes[replica].ConfigSet(t.Context(), "cluster-replica-no-failover", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var served, unavailable, cancelled atomic.Int64
	var wg sync.WaitGroup
	c.Nodes[master].Kill(t)
	before := c.topologyRequests(t, master)
	start := time.Now()
	for range stormCallers {
		wg.Go(func() {
			for {
				select {
				case <-ended:
					return
				case <-time.After(10 * time.Millisecond):
				}
				switch err := decide(t, lim); {
				case err == nil:
					served.Add(1)
				case errors.Is(err, store.ErrUnavailable):
					unavailable.Add(1)
				default:
					cancelled.Add(1)
				}
			}
		})
	}
	time.Sleep(stormTime)
	close(ended)
	wg.Wait()
	took := time.Since(start)
	after := c.topologyRequests(t, master)
	if served.Load() > 0 || unavailable.Load()+cancelled.Load() < stormCallers {
		t.Errorf("%d served, %d unavailable, %d cancelled: want %d to fail", served.Load(), unavailable.Load(), cancelled.Load(), stormCallers)
	}
	var total, most int64
	for i := range after {
		n := after[i] - before[i]
		total, most = total+n, max(most, n)
	}
	t.Logf("%d failures (%d by their deadline) within %v: %d topology requests at %d nodes, %.1f a second at the most asked",
		unavailable.Load()+cancelled.Load(), cancelled.Load(), took, total, len(c.nodes)-1, float64(most)/took.Seconds())
	if limit := int64(stormTopology*took.Seconds()) + stormTopology; most > limit {
		t.Errorf("a node was asked %d times for the topology within %v, want %d at most", most, took, limit)
	}
	if err := c.nodes[replica].ConfigSet(t.Context(), "cluster-replica-no-failover", "no").Err(); err != nil {
		t.Fatal(err)
	}
	c.succeeded(t, key, master, replica)
	eventually(t, "service after the storm", func(context.Context) error { return decide(t, lim) })
}

var topologyCalls = regexp.MustCompile(`cmdstat_cluster\|(slots|shards|nodes):calls=(\d+)`)

// topologyRequests returns how many requests for the topology each node got, except the
// node but.
func (c *cluster) topologyRequests(t *testing.T, but int) []int64 {
	t.Helper()
	counts := make([]int64, len(c.nodes))
	for i, n := range c.nodes {
		if i == but {
			continue
		}
		for _, m := range commandStats(t, n, topologyCalls) {
			counts[i] += m
		}
	}
	return counts
}

// commandStats returns the last group of each match in the node's command statistics.
func commandStats(t *testing.T, node *redis.Client, calls *regexp.Regexp) []int64 {
	t.Helper()
	text, err := node.Info(t.Context(), "commandstats", "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var counts []int64
	for _, m := range calls.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseInt(m[len(m)-1], 10, 64)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", m[0], err))
		}
		counts = append(counts, n)
	}
	return counts
}
