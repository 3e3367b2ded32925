package integration

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

func init() {
	maps.Copy(faultMakers, map[string]faultMaker{
		"ClusterDown":       clusterDown,
		"ClusterFailover":   clusterFailover,
		"MasterKilled":      masterKilled,
		"MasterKilledStill": masterKilled,
		"MasterPaused":      masterPaused,
		"Migration":         migration,
		"SentinelFailover":  sentinelFailover,
	})
}

// clusterFault is fault on a cluster. There go-redis counts a lost reply as a redirection,
// and retries.
func (a adapter) clusterFault(t *testing.T, c *cluster) conformance.Fault {
	f := a.fault(t, c.Endpoint, c.nodes...)
	if a.name == "goredis" {
		f.Repeats = 3 // MaxRedirects
	}
	return f
}

// clusterDown takes a slot away from another master. Then no master serves.
func clusterDown(t *testing.T, a adapter, key string) conformance.Fault {
	c := newCluster(t).calm(t)
	master, _ := c.master(t, key)
	other := (master + 1) % 3
	slot := 0
	//lint:ignore SA1019 clients of clusters ask for it too
	found, err := c.nodes[other].ClusterSlots(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found {
		if r.Nodes[0].Addr == c.Nodes[other].Addr {
			slot = r.Start
		}
	}
	state := func(want string) {
		eventually(t, "cluster_state:"+want, func(ctx context.Context) error {
			for i, n := range c.nodes {
				info, err := n.ClusterInfo(ctx).Result()
				if err != nil {
					return err
				}
				if !strings.Contains(info, "cluster_state:"+want) {
					return fmt.Errorf("node %d: %s", i, info)
				}
			}
			return nil
		})
	}
	f := a.clusterFault(t, c)
	f.Begin = func() {
		// The owner comes first: its next message would restore the slot on the others.
		if err := c.nodes[other].ClusterDelSlots(t.Context(), slot).Err(); err != nil {
			t.Error(err)
		}
		for i, n := range c.nodes {
			if i != other {
				_ = n.ClusterDelSlots(t.Context(), slot).Err() // the node may know it already
			}
		}
		state("fail")
	}
	f.End = func() {
		if err := c.nodes[other].ClusterAddSlots(t.Context(), slot).Err(); err != nil {
			t.Error(err)
		}
		state("ok")
	}
	return f
}

func clusterFailover(t *testing.T, a adapter, key string) conformance.Fault {
	c := newCluster(t)
	master, replica := c.master(t, key)
	replicates(t, c.nodes[replica])
	f := a.clusterFault(t, c)
	f.End = func() { c.agree(t, key, replica) }
	f.Begin = func() {
		if err := c.nodes[replica].ClusterFailover(t.Context()).Err(); err != nil {
			t.Error(err)
		}
		c.succeeded(t, key, master, replica)
	}
	return f
}

func masterKilled(t *testing.T, a adapter, key string) conformance.Fault {
	c := newCluster(t)
	master, replica := c.master(t, key)
	replicates(t, c.nodes[replica])
	f := a.clusterFault(t, c)
	f.Loses = true
	f.Confirm = confirms(t, c.nodes[master], key)
	f.Begin = func() { c.Nodes[master].Kill(t) }
	f.End = func() { c.succeeded(t, key, master, replica) }
	return f
}

func masterPaused(t *testing.T, a adapter, key string) conformance.Fault {
	c := newCluster(t)
	master, replica := c.master(t, key)
	replicates(t, c.nodes[replica])
	f := a.clusterFault(t, c)
	f.Loses = true
	f.Confirm = confirms(t, c.nodes[master], key)
	f.Begin = func() { c.Nodes[master].Pause(t) }
	f.End = func() {
		c.succeeded(t, key, master, replica)
		c.Nodes[master].Unpause(t)
		// Until it knows its successor, it consumes tokens that will be lost.
		c.agree(t, key, replica)
	}
	return f
}

func sentinelFailover(t *testing.T, a adapter, key string) conformance.Fault {
	s := servers.NewSentinel(t, "redis-8.0")
	master, replica := alone(t, s.Nodes[0]), alone(t, s.Nodes[1])
	replicates(t, replica)
	var sentinels []*redis.Client
	for _, n := range s.Sentinels {
		sentinels = append(sentinels, alone(t, n))
	}
	f := a.fault(t, s.Endpoint, master, replica)
	f.Loses = true
	f.Confirm = confirms(t, master, key)
	f.Begin = func() { s.Nodes[0].Kill(t) }
	f.End = func() {
		eventually(t, "another master", func(ctx context.Context) error {
			for _, n := range sentinels {
				addr, err := n.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Master).StringSlice()
				if err != nil {
					return err
				}
				if strings.Join(addr, ":") != s.Nodes[1].Addr {
					return fmt.Errorf("the master is %s", addr)
				}
			}
			return nil
		})
	}
	return f
}

// migration moves the slot of key to another master, key by key: one half in Begin, the
// other half in End.
func migration(t *testing.T, a adapter, key string) conformance.Fault {
	const pause = 50 * time.Millisecond // between keys
	c := newCluster(t).calm(t)
	slot := store.Slot(key)
	from, _ := c.master(t, key)
	to := (from + 1) % 3
	ids := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		var err error
		if ids[i], err = n.Do(t.Context(), "CLUSTER", "MYID").Text(); err != nil {
			t.Fatal(err)
		}
	}
	tell := func(node int, args ...any) {
		t.Helper()
		if err := c.nodes[node].Do(t.Context(), args...).Err(); err != nil {
			t.Errorf("node %d: %v: %v", node, args, err)
		}
	}
	// move moves all keys but leave.
	move := func(leave int) int {
		moved := 0
		for {
			keys, err := c.nodes[from].ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
			if err != nil {
				t.Error(err)
			}
			if err != nil || len(keys) <= leave {
				return moved
			}
			c.migrate(t, from, to, keys[0])
			moved++
			time.Sleep(pause)
		}
	}
	f := a.clusterFault(t, c)
	f.Conns = nil // a server that migrates keys keeps a connection to the other server for a while
	var half int
	f.Begin = func() {
		tell(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
		tell(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
		n, err := c.nodes[from].ClusterCountKeysInSlot(t.Context(), slot).Result()
		if err != nil {
			t.Error(err)
		}
		half = move(int(n) / 2)
	}
	f.End = func() {
		rest := move(0)
		if half == 0 || rest == 0 {
			t.Errorf("%d keys were moved in Begin and %d in End: want some in both", half, rest)
		}
		tell(to, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
		tell(from, "CLUSTER", "SETSLOT", slot, "NODE", ids[to])
		for i, n := range c.nodes {
			if i != from && i != to {
				_ = n.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", ids[to]).Err() // replicas reject it
			}
		}
		c.agree(t, key, to)
	}
	return f
}
