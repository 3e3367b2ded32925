package rueidis

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store/internal/adapter"
)

// List implements [store.Lister]. It sends one SCAN, to one master. In a cluster, a ROLE
// goes with it, and up to one more to each replica.
func (s *Store) List(ctx context.Context, prefix, cursor string, keys []string) ([]string, string, error) {
	if err := s.Check(); err != nil {
		return keys, "", err
	}
	n := nodes{single: s.client}
	if !s.single {
		n = nodes{all: s.client.Nodes()}
	}
	return s.base.List(ctx, prefix, cursor, keys, &n)
}

// nodes are the servers of a List: single, or all, which have replicas among them.
type nodes struct {
	single rueidis.Client
	all    map[string]rueidis.Client
}

// Masters implements [adapter.Nodes].
func (n *nodes) Masters(context.Context) ([]string, error) {
	if n.single != nil {
		return []string{""}, nil
	}
	return slices.Collect(maps.Keys(n.all)), nil
}

// Scan implements [adapter.Nodes]. The command is not marked as one that only reads, so
// that the client does not send it to a replica.
func (n *nodes) Scan(ctx context.Context, addr string, args []string) (string, []string, error) {
	if n.single != nil {
		reply := n.single.Do(ctx, n.single.B().Arbitrary("SCAN").Args(args...).Build())
		return adapter.ParseScan(reply.ToAny())
	}
	c := n.all[addr]
	results := c.DoMulti(ctx, c.B().Arbitrary("ROLE").Build(), c.B().Arbitrary("SCAN").Args(args...).Build())
	if len(results) < 2 {
		return "", nil, errUnsent
	}
	if err := adapter.CheckMaster(results[0].ToAny()); err != nil {
		return "", nil, err
	}
	return adapter.ParseScan(results[1].ToAny())
}
