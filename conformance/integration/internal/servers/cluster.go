package servers

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
)

const (
	masters = 3
	nodes   = 2 * masters // one replica each
	slots   = 16384
)

// loopback is the address of every node of a cluster, for the others as for
// the clients. That takes one network name space for all of them.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// startCluster starts three masters and three replicas. A first container
// that only sleeps holds the network, so that each node can be a container of
// its own, which a test may kill and start again.
func (s *Server) startCluster(ctx context.Context) error {
	ports, err := freePorts(2 * nodes)
	if err != nil {
		return err
	}
	clientPorts, busPorts := ports[:nodes], ports[nodes:]

	var exposed []string
	bindings := make(network.PortMap)
	for _, port := range clientPorts {
		exposed = append(exposed, port+"/tcp")
		bindings[network.MustParsePort(port+"/tcp")] = []network.PortBinding{{HostIP: loopback, HostPort: port}}
	}
	first, err := run(ctx, s.image, []string{"sleep", "infinity"},
		testcontainers.WithExposedPorts(exposed...),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) { c.PortBindings = bindings }))
	if err != nil {
		return err
	}

	for i, port := range clientPorts {
		// The delay and the period (10 s by default) are what a new replica
		// waits for until it is in step, and until CLUSTER SLOTS names it.
		node, err := run(ctx, s.image,
			s.command(port,
				"--cluster-enabled", "yes",
				"--cluster-port", busPorts[i],
				"--cluster-announce-ip", loopback.String(),
				"--cluster-node-timeout", "1500",
				"--repl-diskless-sync-delay", "0",
				"--repl-ping-replica-period", "1"),
			testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
				c.NetworkMode = container.NetworkMode("container:" + first.GetContainerID())
			}))
		if err != nil {
			return err
		}
		s.Nodes = append(s.Nodes, node)
		s.Addrs = append(s.Addrs, net.JoinHostPort(loopback.String(), port))
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	return form(ctx, clientPorts, busPorts)
}

// form makes one cluster of the nodes, of which the first three become its
// masters.
func form(ctx context.Context, clientPorts, busPorts []string) error {
	var all [nodes]*redis.Client
	for i, port := range clientPorts {
		all[i] = dial(net.JoinHostPort(loopback.String(), port))
		defer all[i].Close()
	}

	for i, node := range all {
		// Epochs that differ from the start spare the nodes an election.
		if err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if i < masters {
			if err := node.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
				return err
			}
		}
	}
	for i := 1; i < nodes; i++ {
		err := all[0].Do(ctx, "CLUSTER", "MEET", loopback.String(), clientPorts[i], busPorts[i]).Err()
		if err != nil {
			return err
		}
	}
	for i := masters; i < nodes; i++ {
		master, err := all[i-masters].Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		// Refused until gossip has told the replica of its master.
		err = poll(ctx, func() error { return all[i].ClusterReplicate(ctx, master).Err() })
		if err != nil {
			return err
		}
	}
	for i, node := range all {
		if err := poll(ctx, func() error { return ready(ctx, node, i >= masters) }); err != nil {
			return fmt.Errorf("node %d of the cluster: %w", i, err)
		}
	}
	return nil
}

// ready reports why the node, or what it says of the cluster, is not ready.
func ready(ctx context.Context, node *redis.Client, replica bool) error {
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("cluster info: %s", info)
	}
	// A client that asks this node must learn of every replica. A range is its
	// first slot, its last, the master and the replicas.
	ranges, err := node.Do(ctx, "CLUSTER", "SLOTS").Slice()
	if err != nil {
		return err
	}
	members := 0
	for _, r := range ranges {
		if r, ok := r.([]any); ok {
			members += len(r) - 2
		}
	}
	if len(ranges) != masters || members != nodes {
		return fmt.Errorf("cluster slots: %v", ranges)
	}
	if !replica {
		return nil
	}
	// A replica that has never been in step with its master can't succeed it.
	info, err = node.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "role:slave") || !strings.Contains(info, "master_link_status:up") {
		return fmt.Errorf("replication: %s", info)
	}
	return nil
}

// freePorts returns n ports of the loopback interface that nobody listens on.
func freePorts(n int) ([]string, error) {
	ports := make([]string, n)
	for i := range ports {
		// All stay open until the last is found, so that no two are the same.
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback.String(), "0"))
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports[i] = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
