// Command quickstart sends requests of two users to two limiters, and prints the answer to
// each request:
//
//	go run ./examples/quickstart                          # state in memory, no server
//	go run ./examples/quickstart -redis localhost:6379    # state on that server, the same output
//
// The quickstart for PostgreSQL is in the module of that store, because it needs pgx: see
// store/postgres/examples/quickstart.
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
	addr := flag.String("redis", "", "`address` of a Redis or Valkey server; if empty, state is kept in memory")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q is no flag: for example, the address of a server follows -redis", flag.Arg(0))
	}
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
	// Every run uses its own prefix, so it finds no state of an earlier run.
	opts := &weir.Options{Prefix: fmt.Sprintf("quickstart-%d", time.Now().UnixNano())}

	// Each user has 2 tokens per second, and at most 3 at once.
	api, err := weir.New("api", st, algorithm.TokenBucket{Capacity: 3, Refill: algorithm.PerSecond(2)}, opts)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "TokenBucket: 2 per second, capacity 3, for each user")
	if err := burst(ctx, w, api, [][]string{{"ann"}, {"ann"}, {"bob"}, {"ann"}, {"ann"}, {"bob"}}); err != nil {
		return err
	}

	// All consumers share the limit of a resource. Each consumer also has a smaller limit. A
	// request consumes a token from both rules, or from neither.
	calc, err := weir.NewPolicy(st, weir.Policy{
		Name:     "calc",
		Segments: []string{"resource", "consumer"},
		Rules: []weir.Rule{
			{Name: "resource", By: []string{"resource"}, Algorithm: algorithm.FixedWindow{Limit: 5, Window: 10 * time.Second}},
			{Name: "consumer", Algorithm: algorithm.FixedWindow{Limit: 3, Window: 10 * time.Second}},
		},
	}, opts)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nTwo rules: resource 5 per 10 s, consumer 3 per 10 s")
	return burst(ctx, w, calc, [][]string{
		{"calc", "ann"}, {"calc", "ann"}, {"calc", "ann"}, {"calc", "ann"}, {"calc", "bob"}, {"calc", "bob"}, {"calc", "bob"},
	})
}

// burst sends one request for each of keys and prints a line for each answer.
func burst(ctx context.Context, w io.Writer, lim *weir.Limiter, keys [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "key\tanswer\trule\tremaining\tretry after\t")
	for _, key := range keys {
		res, err := lim.Allow(ctx, key...)
		if err != nil {
			return err
		}
		answer, retry := "allowed", "-"
		if !res.Allowed {
			// Rounded up, so that the output does not depend on the speed of the machine. A caller
			// who waits for the result does not retry too early.
			const unit = 500 * time.Millisecond
			answer, retry = "denied", ((res.RetryAfter + unit - 1) / unit * unit).String()
		}
		fmt.Fprintf(tw, "%v\t%s\t%s\t%d of %d\t%s\t\n", key, answer, res.Rule, res.Remaining, res.Limit, retry)
	}
	return tw.Flush()
}
