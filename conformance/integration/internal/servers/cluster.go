package servers

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	masters = 3
	nodes   = 2 * masters // one replica each
	slots   = 16384
)

// startCluster starts three masters and three replicas.
func (s *Server) startCluster(ctx context.Context, clientPorts []string) error {
	busPorts, err := freePorts(nodes)
	if err != nil {
		return err
	}
	for i, port := range clientPorts {
		// A new replica waits for the delay until it is in step, and for the period,
		// 10 s by default, until CLUSTER SLOTS names it.
		err := s.startNode(ctx, port,
			"--cluster-enabled", "yes",
			"--cluster-port", busPorts[i],
			"--cluster-announce-ip", loopback,
			"--cluster-node-timeout", "1500",
			"--repl-diskless-sync-delay", "0",
			"--repl-ping-replica-period", "1")
		if err != nil {
			return err
		}
		s.Addrs = append(s.Addrs, s.Nodes[i].Addr)
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	return s.form(ctx, clientPorts, busPorts)
}

// form makes one cluster of the nodes, of which the first three become its
// masters.
func (s *Server) form(ctx context.Context, clientPorts, busPorts []string) error {
	var all [nodes]*redis.Client
	for i, node := range s.Nodes {
		all[i] = node.dial()
		defer all[i].Close()
	}

	for i, node := range all {
		// If the epochs differ from the start, the nodes need no election.
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
		err := all[0].Do(ctx, "CLUSTER", "MEET", loopback, clientPorts[i], busPorts[i]).Err()
		if err != nil {
			return err
		}
	}
	for i := masters; i < nodes; i++ {
		master, err := all[i-masters].Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		// It is rejected until the replica has heard of its master.
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
	if s.mortal {
		return nil
	}
	// Nobody kills its nodes. A short timeout would only make it fail on a busy machine.
	for _, node := range all {
		if err := node.ConfigSet(ctx, "cluster-node-timeout", "60000").Err(); err != nil {
			return err
		}
	}
	return nil
}

// ready returns why the node, or the cluster as the node knows it, is not ready.
func ready(ctx context.Context, node *redis.Client, replica bool) error {
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("cluster info: %s", info)
	}
	// A client that asks this node must get every replica. A range is a list of its
	// first slot, its last slot, the master and the replicas.
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
	return inStep(ctx, node)
}
