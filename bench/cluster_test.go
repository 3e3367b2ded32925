package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/bench/internal/server"
	"github.com/weir-go/weir/store/goredis"
)

const slots = 16384 // of a cluster

// A cluster is a number of masters, which share the slots equally.
type cluster struct {
	client *redis.ClusterClient
	nodes  []*redis.Client
}

// clusters are clusters of 1, 2 and 3 masters. They serve every round, because a node of a
// cluster serves no request in the first two seconds.
var clusters = sync.OnceValues(func() (made [3]cluster, err error) {
	for i := range made {
		if made[i], err = newCluster(i + 1); err != nil {
			break
		}
	}
	return made, err
})

// newCluster starts masters that do not know each other. The client knows which of them
// has a slot.
func newCluster(masters int) (cluster, error) {
	var c cluster
	var owned []redis.ClusterSlot
	ctx := context.Background()
	for i := range masters {
		s, err := server.Start(server.Options{Cluster: true})
		if err != nil {
			return c, err
		}
		kept = append(kept, s)
		first, end := i*slots/masters, (i+1)*slots/masters
		owned = append(owned, redis.ClusterSlot{Start: first, End: end - 1, Nodes: []redis.ClusterNode{{Addr: s.Addr}}})
		node := newClient(s.Addr)
		if err := node.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, node)
	}
	c.client = redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return owned, nil },
		PoolSize:     32,
	})
	return c, nil
}

// BenchmarkCluster asks clusters, whose callers spread over the masters, as 32 callers at
// once, and reports what a decision costs all masters together.
func BenchmarkCluster(b *testing.B) {
	made, err := clusters()
	check(b, err)
	var contenders []*remote
	for i, c := range made {
		r := newWeirOver(b, goredis.New(c.client), fmt.Sprintf("masters=%d", i+1), benchName, gcra, nil)
		serves(b, r)
		contenders = append(contenders, r)
	}
	known(b, contenders)
	for i, r := range contenders {
		b.Run(r.name, r.bench(32, made[i].nodes...))
	}
}

// serves returns when all nodes of a cluster serve.
func serves(tb testing.TB, r *remote) {
	tb.Helper()
	end := time.Now().Add(time.Minute)
	for _, key := range someKeys(100) { // of all nodes
		for {
			_, err := r.allow(context.Background(), key)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				tb.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}
