package integration

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/rueidis"
)

// fromReplicas are the clients that read from replicas.
var fromReplicas = []struct {
	name string
	open func(t *testing.T, addrs []string) store.Store
	// reads says that some of many reads go to a replica for sure.
	reads bool
}{
	{"goredis ReadOnly", goredisFromReplicas(&redis.ClusterOptions{ReadOnly: true}), true},
	{"goredis RouteByLatency", goredisFromReplicas(&redis.ClusterOptions{RouteByLatency: true}), false},
	{"goredis RouteRandomly", goredisFromReplicas(&redis.ClusterOptions{RouteRandomly: true}), true},
	{"rueidis SendToReplicas", rueidisFromReplicas, true},
}

func goredisFromReplicas(o *redis.ClusterOptions) func(*testing.T, []string) store.Store {
	return func(t *testing.T, addrs []string) store.Store {
		o.Addrs = addrs
		c := redis.NewClusterClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return goredis.New(c)
	}
}

func rueidisFromReplicas(t *testing.T, addrs []string) store.Store {
	c, err := rueidisclient.NewClient(rueidisclient.ClientOption{
		// A replica among these would answer MOVED: rueidis does not send READONLY to
		// a node that it knew before it knew its role.
		InitAddress: addrs[:len(addrs)/2], DisableCache: true,
		SendToReplicas: func(cmd rueidisclient.Completed) bool { return cmd.IsReadOnly() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return rueidis.New(c)
}

// TestReplicas checks that clients that read from replicas decide on masters alone,
// and peek there, one by one; and that peeks of many, which may be answered by
// replicas, are true once those are in step.
func TestReplicas(t *testing.T) {
	t.Parallel()
	const callers, limit, taken = 300, 5, 2
	c := newCluster(t)
	for n, tt := range fromReplicas {
		t.Run(tt.name, func(t *testing.T) {
			st := tt.open(t, c.Addrs)
			limiter := func(a algorithm.Algorithm) *weir.Limiter {
				lim, err := weir.NewRules(st, []weir.Rule{{Algorithm: a}}, &weir.Options{Prefix: "replicas" + strconv.Itoa(n)})
				if err != nil {
					t.Fatal(err)
				}
				return lim
			}
			lim := limiter(algorithm.FixedWindow{Limit: limit, Window: 24 * time.Hour})
			logs := limiter(algorithm.SlidingLog{Limit: limit, Window: 24 * time.Hour})
			for _, node := range c.nodes {
				if err := node.ConfigResetStat(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			paths := make([][]string, callers)
			for i := range paths {
				paths[i] = []string{"caller" + strconv.Itoa(i)}
			}
			for _, path := range paths {
				for left := limit - 1; left >= limit-taken; left-- {
					if res, err := lim.Allow(t.Context(), path...); err != nil || res.Remaining != int64(left) {
						t.Fatalf("%s: got %+v, %v, want %d left", path, res, err, left)
					}
				}
				if res, err := lim.Peek(t.Context(), path...); err != nil || res.Remaining != limit-taken {
					t.Fatalf("peek %s: got %+v, %v, want %d left", path, res, err, limit-taken)
				}
			}
			eventually(t, "true peeks", func(ctx context.Context) error {
				results, err := lim.PeekMany(ctx, paths)
				for i, res := range results {
					if res.Remaining != limit-taken {
						return fmt.Errorf("%s: got %+v, want %d left", paths[i], res, limit-taken)
					}
				}
				return err
			})
			// A sliding log is not read by MGET, but by a batch of scripts.
			if results, err := logs.PeekMany(t.Context(), paths); err != nil || results[0].Remaining != limit {
				t.Errorf("got %+v, %v, want %d left", results, err, limit)
			}
			scripts, reads, moved := counts(t, c, scriptCalls), counts(t, c, readCalls), counts(t, c, movedErrors)
			t.Logf("at masters and at replicas: scripts %v, reads %v, MOVED %v", scripts, reads, moved)
			if scripts[0] < 4*callers || scripts[1] != 0 {
				t.Errorf("%d scripts went to masters and %d to replicas: want %d or more, and none", scripts[0], scripts[1], 4*callers)
			}
			if moved[0]+moved[1] != 0 {
				t.Errorf("%d commands went to nodes that do not serve them", moved[0]+moved[1])
			}
			if tt.reads && reads[1] == 0 {
				t.Error("no read went to a replica: nothing was shown")
			}
		})
	}
}

var (
	scriptCalls = regexp.MustCompile(`cmdstat_(?:evalsha|eval):calls=(\d+)`)
	readCalls   = regexp.MustCompile(`cmdstat_mget:calls=(\d+)`)
	movedErrors = regexp.MustCompile(`errorstat_MOVED:count=(\d+)`)
)

// counts returns the sum of what calls finds at the masters and at the replicas.
func counts(t *testing.T, c *cluster, calls *regexp.Regexp) [2]int64 {
	t.Helper()
	var sums [2]int64
	for i, node := range c.nodes {
		for _, n := range commandStats(t, node, calls) {
			sums[i/(len(c.nodes)/2)] += n
		}
	}
	return sums
}
