package goredis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store/internal/adapter"
)

// List implements [store.Lister]. It sends one SCAN, to one master. With a ClusterClient,
// the client may read the topology first. A client that is neither a [redis.Client] nor a
// [redis.ClusterClient], and embeds none of them, does not tell which servers it has:
// List then returns an error.
func (s *Store) List(ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
	if err := s.Check(); err != nil {
		return keys, "", err
	}
	n := nodes{store: s}
	switch c := s.inner.(type) {
	case clusterClient:
		n.cluster = c
	case interface{ Options() *redis.Options }:
	default:
		return keys, "", fmt.Errorf("goredis: list: the client is a %T, which does not tell whether it is a cluster: it must be a *redis.Client or a *redis.ClusterClient", s.client)
	}
	return s.base.List(ctx, prefix, cursor, keys, &n)
}

// A clusterClient is a client of a cluster.
type clusterClient interface {
	ForEachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error
}

// nodes are the servers of a List.
type nodes struct {
	store   *Store
	cluster clusterClient // nil if there is one server
	masters map[string]*redis.Client
}

// Masters implements [adapter.Nodes].
func (n *nodes) Masters(ctx context.Context) ([]string, error) {
	if n.cluster == nil {
		return []string{""}, nil
	}
	var mu sync.Mutex
	n.masters = map[string]*redis.Client{}
	err := n.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		n.masters[c.Options().Addr] = c
		return nil
	})
	return slices.Collect(maps.Keys(n.masters)), err
}

// Scan implements [adapter.Nodes].
func (n *nodes) Scan(ctx context.Context, addr string, args []string) (string, []string, error) {
	words := []any{"scan"}
	for _, arg := range args {
		words = append(words, arg)
	}
	cmd := redis.NewCmd(ctx, words...)
	if n.cluster == nil {
		_ = n.store.client.Process(ctx, cmd) // cmd holds the error
	} else {
		_ = n.masters[addr].Process(ctx, cmd)
	}
	return adapter.ParseScan(cmd.Result())
}
