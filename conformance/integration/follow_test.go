package integration

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
)

const (
	followKills  = 5
	followMedian = time.Second // from a promotion to the first decision
)

// TestFollow measures the time from a promotion to the first decision, with clients of
// default settings.
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
			lim := newLimiter(t, a.store(t, c.Endpoint), "follow", algorithm.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour})
			c.follow(t, lim, onlyKey(t, c, lim))
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
