package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/bench/internal/server"
)

// BenchmarkThreads asks Redis 8.6 as 64 callers at once, with all work in its main
// thread, and with one I/O thread more. Only the CPU time of the main thread counts.
func BenchmarkThreads(b *testing.B) {
	type group struct {
		rdb        *redis.Client
		threads    int
		contenders []*remote
	}
	var groups []group
	for _, threads := range []int{1, 2} {
		s, err := server.Start(server.Options{IOThreads: threads})
		check(b, err)
		b.Cleanup(s.Stop)
		rdb := newClient(s.Addr)
		b.Cleanup(func() { _ = rdb.Close() })
		version, err := server.Version(context.Background(), rdb)
		if err != nil || !strings.HasPrefix(version, "Redis 8.6.") {
			b.Fatalf("the server is %q, error %v, want Redis 8.6", version, err)
		}
		groups = append(groups, group{rdb, threads, remotes(b, rdb)})
	}
	for i := range groups[0].contenders {
		for _, g := range groups {
			r := g.contenders[i]
			b.Run(fmt.Sprintf("impl=%s/threads=%d", r.name, g.threads), r.bench(64, g.rdb))
		}
	}
}
