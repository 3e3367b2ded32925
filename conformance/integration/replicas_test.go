package integration

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
)

// fromReplicas are the clients that read from replicas.
var fromReplicas = []struct {
	name string
	open func(addrs []string) (store.Store, func(), error)
	// reads says that at least one of many reads goes to a replica.
	reads bool
	race  string // why it does not run under the race detector; "" means that it does
}{
	{"goredis ReadOnly", goredisFromReplicas(&redis.ClusterOptions{ReadOnly: true}), true, ""},
	{"goredis RouteByLatency", goredisFromReplicas(&redis.ClusterOptions{RouteByLatency: true}), false,
		"go-redis v9.23.0 has a data race: a new node is pinged before its options are complete"},
	{"goredis RouteRandomly", goredisFromReplicas(&redis.ClusterOptions{RouteRandomly: true}), true, ""},
	{"rueidis SendToReplicas", rueidisFromReplicas, true, ""},
	{"valkey SendToReplicas", valkeyFromReplicas, true, ""},
}

func goredisFromReplicas(o *redis.ClusterOptions) func(addrs []string) (store.Store, func(), error) {
	return func(addrs []string) (store.Store, func(), error) {
		o.Addrs, o.DialTimeout, o.ReadTimeout, o.WriteTimeout = addrs, longTimeout, longTimeout, longTimeout
		c := redis.NewClusterClient(o)
		return goredis.New(c), func() { _ = c.Close() }, nil
	}
}

// TestReplicas checks that clients that read from replicas decide and Peek on masters
// alone. DoMany of peeks may read from replicas: its answers are right once the replicas
// have caught up.
func TestReplicas(t *testing.T) {
	t.Parallel()
	const callers, limit, used = 300, 5, 2
	c := newCluster(t).calm(t)
	for n, tt := range fromReplicas {
		t.Run(tt.name, func(t *testing.T) {
			if weirtest.Race && tt.race != "" {
				t.Skip(tt.race)
			}
			st, closeClient, err := tt.open(c.Addrs)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(closeClient)
			name := "replicas" + strconv.Itoa(n)
			lim := newLimiter(t, st, name, algorithm.FixedWindow{Limit: limit, Window: 24 * time.Hour})
			logs := newLimiter(t, st, name, algorithm.SlidingLog{Limit: limit, Window: 24 * time.Hour})
			for _, node := range c.nodes {
				eventually(t, "CONFIG RESETSTAT", func(ctx context.Context) error { return node.ConfigResetStat(ctx).Err() })
			}
			peeks := make([]weir.Request, callers)
			for i := range peeks {
				key := "caller" + strconv.Itoa(i)
				peeks[i] = weir.Request{Key: weir.KeyOf(key), Op: weir.Peek}
				for left := limit - 1; left >= limit-used; left-- {
					if res, err := lim.Allow(t.Context(), key); err != nil || res.Remaining != int64(left) {
						t.Fatalf("%s: got %+v, %v, want %d left", key, res, err, left)
					}
				}
				if res, err := lim.Peek(t.Context(), key); err != nil || res.Remaining != limit-used {
					t.Fatalf("peek %s: got %+v, %v, want %d left", key, res, err, limit-used)
				}
			}
			all := func(ctx context.Context, lim *weir.Limiter, left int64) error {
				for i, answer := range lim.DoMany(ctx, peeks) {
					if answer.Err != nil || answer.Result.Remaining != left {
						return fmt.Errorf("caller %d: got %+v, %w, want %d left", i, answer.Result, answer.Err, left)
					}
				}
				return nil
			}
			eventually(t, "peeks of the current state", func(ctx context.Context) error { return all(ctx, lim, limit-used) })
			// The peeks at a sliding log are a batch of scripts, not an MGET.
			if err := all(t.Context(), logs, limit); err != nil {
				t.Error(err)
			}
			scripts, reads, moved := counts(t, c, scriptCalls), counts(t, c, readCalls), counts(t, c, movedErrors)
			t.Logf("at masters and at replicas: scripts %v, reads %v, MOVED %v", scripts, reads, moved)
			if scripts[0] < 4*callers || scripts[1] != 0 {
				t.Errorf("%d scripts went to masters and %d to replicas: want at least %d and 0", scripts[0], scripts[1], 4*callers)
			}
			if moved[0]+moved[1] != 0 {
				t.Errorf("%d commands got the reply MOVED: want none", moved[0]+moved[1])
			}
			if tt.reads && reads[1] == 0 {
				t.Error("no read went to a replica: the test checked nothing")
			}
		})
	}
}

var (
	scriptCalls = regexp.MustCompile(`cmdstat_(?:evalsha|eval):calls=(\d+)`)
	readCalls   = regexp.MustCompile(`cmdstat_mget:calls=(\d+)`)
	movedErrors = regexp.MustCompile(`errorstat_MOVED:count=(\d+)`)
)

// counts returns the sums of what calls finds at the masters and at the replicas.
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

// commandStats returns the last group of each match in the node's command statistics.
func commandStats(t *testing.T, node *redis.Client, calls *regexp.Regexp) []int64 {
	t.Helper()
	text, err := node.Info(t.Context(), "commandstats", "errorstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var counts []int64
	for _, m := range calls.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseInt(m[len(m)-1], 10, 64)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", m[0], err))
		}
		counts = append(counts, n)
	}
	return counts
}
