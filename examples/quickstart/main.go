// Command quickstart lets a burst of requests of two users through two
// limiters and prints what became of each request:
//
//	go run ./examples/quickstart                          # state in memory, no server
//	go run ./examples/quickstart -redis localhost:6379    # state on that server, the same table
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/memory"
)

func main() {
	log.SetFlags(0)
	addr := flag.String("redis", "", "`address` of a Redis or Valkey server; empty: keep state in memory")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	var st store.Store = memory.New(nil)
	if *addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *addr})
		defer func() { _ = rdb.Close() }()
		st = goredis.New(rdb)
	}
	if err := run(ctx, os.Stdout, st); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer, st store.Store) error {
	// A prefix of its own, so that a second run finds a server as new as the first.
	opts := &weir.Options{Prefix: fmt.Sprintf("quickstart-%d", time.Now().UnixNano())}

	// Two tokens per second, three at once, for each user.
	users, err := weir.NewRules(st, []weir.Rule{
		{Name: "user", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 3}},
	}, opts)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "GCRA: 2 per second, burst 3, per user")
	err = burst(ctx, w, users, [][]string{{"ann"}, {"ann"}, {"bob"}, {"ann"}, {"ann"}, {"bob"}})
	if err != nil {
		return err
	}

	// A resource that all share, and a smaller share for each consumer of it.
	// Both are charged or none.
	calc, err := weir.NewRules(st, []weir.Rule{
		{Name: "resource", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 5, Window: 10 * time.Second}},
		{Name: "consumer", By: []int{0, 1}, Algorithm: algorithm.FixedWindow{Limit: 3, Window: 10 * time.Second}},
	}, opts)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nTwo rules: resource 5 per 10 s, consumer 3 per 10 s")
	return burst(ctx, w, calc, [][]string{
		{"calc", "ann"}, {"calc", "ann"}, {"calc", "ann"}, {"calc", "ann"}, {"calc", "bob"}, {"calc", "bob"}, {"calc", "bob"},
	})
}

// burst asks for each of paths and prints a line for each answer.
func burst(ctx context.Context, w io.Writer, lim *weir.Limiter, paths [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "request\tverdict\trule\tremaining\tretry after\t")
	for _, path := range paths {
		res, err := lim.Allow(ctx, path...)
		if err != nil {
			return err
		}
		verdict, retry := "allowed", "-"
		if !res.Allowed {
			verdict, retry = "denied", roundUp(res.RetryAfter, 500*time.Millisecond).String()
		}
		fmt.Fprintf(tw, "%v\t%s\t%s\t%d of %d\t%s\t\n", path, verdict, res.Rule, res.Remaining, res.Limit, retry)
	}
	return tw.Flush()
}

// roundUp hides how fast this machine is, and never sends anyone back too early.
func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }
