package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// roomForClusters bounds how many clusters run at once: each is six processes, which
// have to answer each other in time.
var roomForClusters = make(chan struct{}, 2)

// A cluster is one that belongs to a test, with a client of each node alone.
type cluster struct {
	*servers.Server
	nodes []*redis.Client
}

// alone returns a client that says what it is told at once, and gives up early if a node is
// paused. A busy node needs up to a second to answer.
func alone(t *testing.T, n *servers.Node) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: n.Addr, ClientName: servers.Name, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newCluster(t *testing.T) *cluster { return newClusterOf(t, "redis-8.0") }

// patientNodes is a timeout of nodes in milliseconds. With it, no replica replaces a master
// because the machine is busy.
const patientNodes = "60000"

// calm gives the nodes patientNodes, and returns c.
func (c *cluster) calm(t *testing.T) *cluster {
	t.Helper()
	for i, n := range c.nodes {
		eventually(t, fmt.Sprintf("node %d", i), func(ctx context.Context) error {
			return n.ConfigSet(ctx, "cluster-node-timeout", patientNodes).Err()
		})
	}
	return c
}

// migrate moves a key from one node to another. It repeats the command, because a busy node
// can answer late.
func (c *cluster) migrate(t *testing.T, from, to int, key string) {
	t.Helper()
	host, port, _ := strings.Cut(c.Nodes[to].Addr, ":")
	eventually(t, "MIGRATE", func(ctx context.Context) error {
		return c.nodes[from].Do(ctx, "MIGRATE", host, port, key, 0, 4000, "REPLACE").Err()
	})
}

// newClusterOf is newCluster of a version.
func newClusterOf(t *testing.T, version string) *cluster {
	roomForClusters <- struct{}{}
	t.Cleanup(func() { <-roomForClusters }) // once the cluster is removed
	c := &cluster{Server: servers.NewCluster(t, version)}
	for _, n := range c.Nodes {
		c.nodes = append(c.nodes, alone(t, n))
	}
	return c
}

// eventually calls f every 20 ms until it succeeds, and fails t if that takes minutes.
func eventually(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := f(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// serving returns the indices of the master of key's slot and of its replicas, as
// the node from sees them.
func (c *cluster) serving(ctx context.Context, from int, key string) ([]int, error) {
	//lint:ignore SA1019 clients of clusters ask for it too
	ranges, err := c.nodes[from].ClusterSlots(ctx).Result()
	if err != nil {
		return nil, err
	}
	slot := store.Slot(key)
	for _, r := range ranges {
		if slot < r.Start || slot > r.End {
			continue
		}
		var found []int
		for _, n := range r.Nodes {
			found = append(found, slices.IndexFunc(c.Nodes, func(m *servers.Node) bool { return m.Addr == n.Addr }))
		}
		return found, nil
	}
	return nil, fmt.Errorf("nobody serves slot %d", slot)
}

// master returns the index of the master of key, and of its replica, while all
// nodes live.
func (c *cluster) master(t *testing.T, key string) (master, replica int) {
	t.Helper()
	eventually(t, "a master with a replica", func(ctx context.Context) error {
		found, err := c.serving(ctx, 0, key)
		if err == nil && len(found) != 2 {
			err = fmt.Errorf("served by %v", found)
		}
		if err == nil {
			master, replica = found[0], found[1]
		}
		return err
	})
	return master, replica
}

// succeeded waits until a node that neither died nor succeeded knows the successor
// of a master.
func (c *cluster) succeeded(t *testing.T, key string, master, replica int) {
	t.Helper()
	witness := 0
	for witness == master || witness == replica {
		witness++
	}
	eventually(t, "a promotion", func(ctx context.Context) error {
		found, err := c.serving(ctx, witness, key)
		if err == nil && found[0] != replica {
			err = fmt.Errorf("served by %v", found)
		}
		return err
	})
}

// agree waits until all nodes say that the cluster serves, and who does.
func (c *cluster) agree(t *testing.T, key string, master int) {
	t.Helper()
	eventually(t, "agreement", func(ctx context.Context) error {
		for i, n := range c.nodes {
			info, err := n.ClusterInfo(ctx).Result()
			if err != nil {
				return fmt.Errorf("node %d: %w", i, err)
			}
			if !strings.Contains(info, "cluster_state:ok") {
				return fmt.Errorf("node %d: %s", i, info)
			}
			if found, err := c.serving(ctx, i, key); err != nil || found[0] != master {
				return fmt.Errorf("node %d: served by %v, error %v", i, found, err)
			}
		}
		return nil
	})
}

// replicates waits until the node is a replica in step.
func replicates(t *testing.T, node *redis.Client) {
	t.Helper()
	eventually(t, "a replica in step", func(ctx context.Context) error {
		info, err := node.Info(ctx, "replication").Result()
		if err == nil && (!strings.Contains(info, "role:slave") || !strings.Contains(info, "master_link_status:up")) {
			err = errors.New(info)
		}
		return err
	})
}

// confirms returns what writes to the node, a master, and waits until its replica
// has acknowledged that, and all before.
func confirms(t *testing.T, node *redis.Client, key string) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn := node.Conn()
		defer conn.Close()
		if err := conn.Set(ctx, key+":confirm", "", time.Minute).Err(); err != nil {
			return err
		}
		n, err := conn.Wait(ctx, 1, 300*time.Millisecond).Result()
		if err == nil && n < 1 {
			err = errors.New("no replica has acknowledged")
		}
		return err
	}
}
