package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/bench/internal/server"
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range kept {
		s.Stop()
	}
	os.Exit(code)
}

// counted is set if instructions are counted, and not time.
var counted = os.Getenv("WEIR_BENCH_CALLGRIND") == "1"

// kept are the servers that are stopped at the end.
var kept []*server.Server

// own is the server that this process starts if WEIR_REDIS_ADDR is not set.
var own *server.Server

var startOwn = sync.OnceValue(func() (err error) {
	if own, err = server.Start(server.Options{Counted: counted}); err == nil {
		kept = append(kept, own)
	}
	return err
})

// connect returns a client of the server that WEIR_REDIS_ADDR names, or of a server
// that is started for this run. It skips tb if neither is there, or fails tb if
// WEIR_REQUIRE_DOCKER is 1.
func connect(tb testing.TB) *redis.Client {
	tb.Helper()
	addr, kind := os.Getenv("WEIR_REDIS_ADDR"), "that was running"
	if addr == "" {
		check(tb, startOwn())
		addr, kind = own.Addr, own.Kind
	}
	rdb := newClient(addr)
	tb.Cleanup(func() { _ = rdb.Close() })
	version, err := server.Version(context.Background(), rdb)
	if err != nil {
		tb.Fatalf("the server at %s: %v", addr, err)
	}
	say.Do(func() { note("server: %s %s", version, kind) })
	return rdb
}

var say sync.Once

// newServer starts another server. The caller stops it.
func newServer(tb testing.TB, o server.Options) *server.Server {
	tb.Helper()
	s, err := server.Start(o)
	check(tb, err)
	return s
}

// check skips tb if a server could not be started, or fails tb if WEIR_REQUIRE_DOCKER is 1.
func check(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case os.Getenv("WEIR_REQUIRE_DOCKER") == "1":
		tb.Fatalf("no server can be started, and WEIR_REQUIRE_DOCKER is 1: %v", err)
	default:
		skip(tb, fmt.Sprintf("no server can be started: %v", err))
	}
}

// skip skips tb. In a run of benchmarks it says so, which package testing does not.
func skip(tb testing.TB, reason string) {
	tb.Helper()
	note("skipped: %s: %s", tb.Name(), strings.ReplaceAll(reason, "\n", "; "))
	tb.Skip(reason)
}

// note writes a line for bench/run into the results, in a run of benchmarks.
func note(format string, args ...any) {
	if f := flag.Lookup("test.bench"); f != nil && f.Value.String() != "" {
		fmt.Printf(format+"\n", args...)
	}
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 32, MaxRetries: -1})
}
