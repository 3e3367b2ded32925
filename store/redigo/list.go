package redigo

import (
	"context"
	"errors"

	"github.com/gomodule/redigo/redis"

	"github.com/weir-go/weir/store/internal/adapter"
)

// List implements [store.Lister]. It sends one SCAN, to one master. On a cluster, it
// sends a ROLE before it, and the first call of a listing makes redisc read the topology.
func (s *Store) List(ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
	if err := s.Check(); err != nil {
		return keys, "", err
	}
	return s.base.List(ctx, prefix, cursor, keys, nodes{s, cursor == ""})
}

// nodes are the servers of a List.
type nodes struct {
	store *Store
	first bool // the call is the first of its listing
}

// errFound ends a walk over the nodes.
var errFound = errors.New("the node was found")

// Masters implements [adapter.Nodes].
func (n nodes) Masters(ctx context.Context) (addrs []string, err error) {
	cluster := n.store.cluster
	if cluster == nil {
		return []string{""}, nil
	}
	if n.first { // redisc may know only its StartupNodes
		if err := cluster.Refresh(); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	err = cluster.EachNode(false, func(addr string, _ redis.Conn) error {
		addrs = append(addrs, addr)
		return nil
	})
	return addrs, err
}

// Scan implements [adapter.Nodes].
func (n nodes) Scan(ctx context.Context, addr string, args []string) (cursor string, keys []string, err error) {
	scan := &command{name: "SCAN"}
	for _, arg := range args {
		scan.args = append(scan.args, arg)
	}
	if n.store.cluster == nil {
		return adapter.ParseScan(n.store.do(ctx, scan))
	}
	err = adapter.ErrReplica // the node is not among them any more
	walk := n.store.cluster.EachNode(false, func(at string, conn redis.Conn) error {
		if at != addr {
			return nil
		}
		if err = adapter.CheckMaster(exchange(ctx, conn, &command{name: "ROLE"})); err == nil {
			cursor, keys, err = adapter.ParseScan(exchange(ctx, conn, scan))
		}
		return errFound
	})
	if walk != nil && !errors.Is(walk, errFound) {
		err = walk
	}
	return cursor, keys, err
}
