package servers

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	sentinels  = 3 // of which two elect, so that one may die
	masterName = "weir"
)

// startSentinel starts a master, a replica and the sentinels.
func (s *Server) startSentinel(ctx context.Context, ports []string) error {
	if err := s.replicate(ctx, ports[:2]); err != nil {
		return err
	}
	s.Master = masterName
	for _, port := range ports[2:] {
		// Too little for a busy machine, unless failing over is what it is for.
		down := "30000"
		if s.mortal {
			down = "1500"
		}
		config := strings.NewReplacer("PORT", port, "BIND", s.bind, "NAME", masterName, "HOST", loopback, "MASTER", ports[0], "DOWN", down).Replace(
			"port PORT\n" +
				"bind BIND\n" +
				"protected-mode no\n" +
				"sentinel announce-ip HOST\n" +
				"sentinel monitor NAME HOST MASTER 2\n" +
				"sentinel down-after-milliseconds NAME DOWN\n" +
				"sentinel failover-timeout NAME 6000\n")
		// It writes what it learns to the file, and needs it in a restart.
		const path = "/data/sentinel.conf"
		flags, command := withFile(path, config, s.binary(), path, "--sentinel")
		node, err := s.startProcess(ctx, s.version, port, flags, command...)
		if err != nil {
			return err
		}
		node.sentinel = true
		s.Sentinels = append(s.Sentinels, node)
		s.Addrs = append(s.Addrs, node.Addr)
	}
	for _, node := range s.Sentinels {
		if err := node.await(ctx); err != nil {
			return err
		}
		if err := node.until(ctx, watches); err != nil {
			return fmt.Errorf("sentinel %w", err)
		}
	}
	return nil
}

// replicate starts a node on each port, the first of which is the master of the
// others, and returns when they are in step.
func (s *Server) replicate(ctx context.Context, ports []string) error {
	for i, port := range ports {
		// Any of them may become the master of the others.
		args := []string{
			"--replica-announce-ip", loopback,
			"--repl-diskless-sync-delay", "0",
			"--repl-ping-replica-period", "1",
		}
		if i > 0 {
			args = append(args, "--replicaof", loopback, ports[0])
		}
		if err := s.startNode(ctx, port, args...); err != nil {
			return err
		}
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	for _, node := range s.Nodes[1:] {
		if err := node.until(ctx, inStep); err != nil {
			return fmt.Errorf("replica %w", err)
		}
	}
	return nil
}

// inStep reports why the node, a replica, could not succeed its master: it must
// have been in step with it once.
func inStep(ctx context.Context, node *redis.Client) error {
	info, err := node.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "role:slave") || !strings.Contains(info, "master_link_status:up") {
		return fmt.Errorf("replication: %s", info)
	}
	return nil
}

// watches makes the sentinel look often, and reports why it could not fail over its master.
func watches(ctx context.Context, sentinel *redis.Client) error {
	// How often it looks for replicas, 10 s by default, and for the other
	// sentinels, 2 s. Redis 6 has no such command, and takes its time.
	_ = sentinel.Do(ctx, "SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "200").Err()
	cmd := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", masterName)
	_ = sentinel.Process(ctx, cmd)
	fields, err := cmd.Result()
	if err != nil {
		return err
	}
	for field, want := range map[string]string{
		"flags":               "master", // and neither down nor disconnected
		"num-slaves":          "1",
		"num-other-sentinels": fmt.Sprint(sentinels - 1),
	} {
		if fields[field] != want {
			return fmt.Errorf("%s is %q, not %q", field, fields[field], want)
		}
	}
	return nil
}
