package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/conformance/integration/internal/soak"
	"github.com/weir-go/weir/store"
)

// A soakCluster is a cluster whose replicas replace a master only if a fault asks for it: a busy
// machine is no fault.
type soakCluster struct {
	*cluster
	t      *testing.T
	random *rand.Rand
}

func newSoakCluster(t *testing.T, seed uint64) *soakCluster {
	roomForClusters <- struct{}{}
	t.Cleanup(func() { <-roomForClusters }) // once the cluster is removed
	c := &soakCluster{
		cluster: &cluster{Server: servers.NewCluster(t, "redis-8.0", "--cluster-replica-no-failover", "yes", "--cluster-replica-validity-factor", "0")},
		t:       t, random: rand.New(rand.NewPCG(seed, 2)),
	}
	for _, n := range c.Nodes {
		c.nodes = append(c.nodes, n.Client(t))
	}
	c.all("CONFIG", "SET", "cluster-node-timeout", patientNodes)
	c.settled()
	return c
}

// all runs a command on every node.
func (c *soakCluster) all(words ...any) {
	c.t.Helper()
	for i := range c.nodes {
		c.tell(i, words...)
	}
}

// tell runs a command on a node, until it succeeds: a client refuses for a while to dial a node
// that was killed.
func (c *soakCluster) tell(node int, words ...any) {
	c.t.Helper()
	eventually(c.t, fmt.Sprint(words...), func(ctx context.Context) error { return c.nodes[node].Do(ctx, words...).Err() })
}

// soakFaults are the faults of a soak. Each is on the master of the slot of tag, or on all
// nodes.
var soakFaults = map[string]func(c *soakCluster, tag string) *soak.Fault{
	"all connections are closed, again and again": func(c *soakCluster, _ string) *soak.Fault {
		return c.during(50*time.Millisecond, func() {
			_ = c.nodes[c.random.IntN(len(c.nodes))].Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal").Err()
		})
	},
	"all scripts are lost, again and again": func(c *soakCluster, _ string) *soak.Fault {
		return c.during(5*time.Millisecond, func() {
			_ = c.nodes[c.random.IntN(len(c.nodes))].ScriptFlush(context.Background()).Err()
		})
	},
	"a master does not answer": func(c *soakCluster, tag string) *soak.Fault {
		master, _ := c.master(c.t, tag)
		return &soak.Fault{
			Begin: func() { c.Nodes[master].Pause(c.t) },
			End:   func() { c.Nodes[master].Unpause(c.t) },
		}
	},
	"the masters have no memory": func(c *soakCluster, _ string) *soak.Fault {
		return &soak.Fault{
			Begin: func() { c.all("CONFIG", "SET", "maxmemory", "1") },
			End:   func() { c.all("CONFIG", "SET", "maxmemory", "0") },
		}
	},
	"a master forbids scripts": func(c *soakCluster, tag string) *soak.Fault {
		master, _ := c.master(c.t, tag)
		return &soak.Fault{
			Begin: func() { c.tell(master, "ACL", "SETUSER", "default", "-eval", "-evalsha") },
			End:   func() { c.tell(master, "ACL", "SETUSER", "default", "+eval", "+evalsha") },
		}
	},
	"a slot moves to another master": soakMigration,
	"a replica replaces a master, as planned": func(c *soakCluster, tag string) *soak.Fault {
		master, replica := c.master(c.t, tag)
		replicates(c.t, c.nodes[replica])
		return &soak.Fault{
			Begin: func() {
				// The replica gives up after 5 s, for example on a busy machine. A master votes
				// for a replica of the same master only once in twice the timeout.
				c.all("CONFIG", "SET", "cluster-node-timeout", "5000")
				var asked time.Time
				eventually(c.t, "a promotion", func(ctx context.Context) error {
					found, err := c.serving(ctx, replica, tag)
					if err == nil && found[0] == replica {
						return nil
					}
					if time.Since(asked) > 6*time.Second {
						asked = time.Now()
						err = errors.Join(err, c.nodes[replica].ClusterFailover(ctx).Err())
					}
					return fmt.Errorf("served by %v, error %v", found, err)
				})
			},
			End: func() {
				c.all("CONFIG", "SET", "cluster-node-timeout", patientNodes)
				c.agree(c.t, tag, replica)
				replicates(c.t, c.nodes[master])
			},
		}
	},
	"a master is killed, and its replica replaces it": soakKill,
}

// shuffled returns the names of the faults, in a random order.
func (c *soakCluster) shuffled() []string {
	names := slices.Sorted(maps.Keys(soakFaults))
	c.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// fault returns a fault on one of the tags.
func (c *soakCluster) fault(name string, tags []string) *soak.Fault {
	f := soakFaults[name](c, tags[c.random.IntN(len(tags))])
	f.Name = name
	end := f.End
	f.End = func() { end(); c.settled() }
	return f
}

// settled waits until each node knows a master of every slot, and that all nodes are well: a
// client that joins reads the topology from any of them.
func (c *soakCluster) settled() {
	c.t.Helper()
	eventually(c.t, "a topology", func(ctx context.Context) error {
		for i, n := range c.nodes {
			shards, err := n.ClusterShards(ctx).Result()
			if err != nil {
				return fmt.Errorf("node %d: %w", i, err)
			}
			slots, well := int64(0), 0
			for _, shard := range shards {
				for _, r := range shard.Slots {
					slots += r.End - r.Start + 1
				}
				for _, node := range shard.Nodes {
					if node.Health == "online" {
						well++
					}
				}
			}
			if slots != 1<<14 || well != len(c.nodes) {
				return fmt.Errorf("node %d knows %d slots, and %d nodes that are well", i, slots, well)
			}
		}
		return nil
	})
}

// during returns a fault in which f is called at intervals.
func (c *soakCluster) during(every time.Duration, f func()) *soak.Fault {
	var stop func()
	return &soak.Fault{Begin: func() { stop = again(every, f) }, End: func() { stop() }}
}

// soakKill kills a master when its replica has all writes.
func soakKill(c *soakCluster, tag string) *soak.Fault {
	master, replica := c.master(c.t, tag)
	replicates(c.t, c.nodes[replica])
	confirm := confirms(c.t, c.nodes[master], tag)
	return &soak.Fault{
		Still: func() {
			eventually(c.t, "a confirmed write", func(context.Context) error { return confirm() })
			c.Nodes[master].Kill(c.t)
		},
		Begin: func() {
			c.tell(replica, "CONFIG", "SET", "cluster-replica-no-failover", "no")
			for i := range c.nodes {
				if i != master {
					c.tell(i, "CONFIG", "SET", "cluster-node-timeout", "1500")
				}
			}
			c.succeeded(c.t, tag, master, replica)
			c.tell(replica, "CONFIG", "SET", "cluster-replica-no-failover", "yes")
		},
		End: func() {
			c.Nodes[master].Restart(c.t)
			c.all("CONFIG", "SET", "cluster-node-timeout", patientNodes)
			c.agree(c.t, tag, replica)
			replicates(c.t, c.nodes[master])
		},
	}
}

// soakMigration moves the slot of tag to another master, one half of the keys in Begin, and the
// other half in End.
func soakMigration(c *soakCluster, tag string) *soak.Fault {
	slot := store.Slot(tag)
	from, _ := c.master(c.t, tag)
	var others []int // masters
	for i, n := range c.nodes {
		role, err := n.Do(c.t.Context(), "ROLE").Slice()
		if err != nil {
			c.t.Fatal(err)
		}
		if role[0] == "master" && i != from {
			others = append(others, i)
		}
	}
	to := others[c.random.IntN(len(others))]
	host, port, _ := strings.Cut(c.Nodes[to].Addr, ":")
	id := func(node int) string {
		text, err := c.nodes[node].Do(c.t.Context(), "CLUSTER", "MYID").Text()
		if err != nil {
			c.t.Fatal(err)
		}
		return text
	}
	// move moves keys until that number is left.
	move := func(leave int) {
		for {
			found, err := c.nodes[from].ClusterGetKeysInSlot(c.t.Context(), slot, 10+leave).Result()
			if err != nil {
				c.t.Error(err)
			}
			if err != nil || len(found) <= leave {
				return
			}
			for _, key := range found[leave:] {
				c.tell(from, "MIGRATE", host, port, key, 0, 5000, "REPLACE")
			}
		}
	}
	return &soak.Fault{
		Begin: func() {
			c.tell(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", id(from))
			c.tell(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", id(to))
			n, err := c.nodes[from].ClusterCountKeysInSlot(c.t.Context(), slot).Result()
			if err != nil {
				c.t.Error(err)
			}
			move(int(n) / 2)
		},
		End: func() {
			move(0)
			c.tell(to, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
			c.tell(from, "CLUSTER", "SETSLOT", slot, "NODE", id(to))
			for i, n := range c.nodes {
				if i != from && i != to {
					_ = n.Do(c.t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", id(to)).Err() // replicas reject it
				}
			}
			c.agree(c.t, tag, to)
		},
	}
}
