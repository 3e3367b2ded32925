package rueidis

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/redis/rueidis"

	"github.com/weir-go/weir/store/internal/adapter"
)

// errNotScan is the error of a reply that SCAN or ROLE does not give.
var errNotScan = errors.New("the reply is not a cursor and a list of keys, or not a role")

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
		return parseScan(n.single.Do(ctx, n.single.B().Arbitrary("SCAN").Args(args...).Build()))
	}
	c := n.all[addr]
	results := c.DoMulti(ctx, c.B().Arbitrary("ROLE").Build(), c.B().Arbitrary("SCAN").Args(args...).Build())
	if len(results) < 2 {
		return "", nil, errUnsent
	}
	role, err := results[0].ToArray()
	if err != nil {
		return "", nil, err
	}
	if len(role) == 0 {
		return "", nil, errNotScan
	}
	if name, err := role[0].ToString(); err != nil || name != "master" {
		return "", nil, adapter.ErrReplica
	}
	return parseScan(results[1])
}

// parseScan returns the elements of the reply to a SCAN.
func parseScan(result rueidis.RedisResult) (cursor string, keys []string, err error) {
	reply, err := result.ToArray()
	if err != nil {
		return "", nil, err
	}
	if len(reply) != 2 {
		return "", nil, errNotScan
	}
	cursor, err1 := reply[0].ToString()
	keys, err2 := reply[1].AsStrSlice()
	if err1 != nil || err2 != nil {
		return "", nil, errNotScan
	}
	return cursor, keys, nil
}
