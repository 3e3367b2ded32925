// Command quickstart sends requests to two limiters, and prints the answers:
//
//	go run ./examples/quickstart                                # state in memory, no server
//	go run ./examples/quickstart -redis localhost:6379          # state on that server, the same output
//	go run ./examples/quickstart -live                          # the second limiter in real time: 50 seconds
//	go run ./examples/quickstart -live -redis localhost:6379    # in real time, with the clock of that server
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
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
	live := flag.Bool("live", false, "run the second limiter in real time")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q is no flag: for example, the address of a server follows -redis", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	var st store.Store = memory.New(nil)
	if *addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *addr})
		defer func() { _ = rdb.Close() }()
		st = goredis.New(rdb)
	}
	err := oneRule(ctx, os.Stdout, st)
	if err == nil {
		err = twoRules(ctx, os.Stdout, st, *live)
	}
	if err != nil {
		stop()
		log.Fatal(err)
	}
}

// prefix is new in every run, so that it finds no state of an earlier run on the same server.
var prefix = "weir-" + rand.Text()

// oneRule allows each user 2 requests per second, and at most 3 at once.
func oneRule(ctx context.Context, w io.Writer, st store.Store) error {
	lim, err := weir.New("api", st, algorithm.TokenBucket{Capacity: 3, Refill: algorithm.PerSecond(2)}, &weir.Options{Prefix: prefix})
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "TokenBucket: 2 per second, capacity 3, for each user")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "user\tanswer\tremaining\tretry after\t")
	for _, user := range []string{"ann", "ann", "bob", "ann", "ann", "bob"} {
		res, err := lim.Allow(ctx, user)
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
		fmt.Fprintf(tw, "%s\t%s\t%d of %d\t%s\t\n", user, answer, res.Remaining, res.Limit, retry)
	}
	return tw.Flush()
}

// twoRules allows 5 calls to a resource in any 10 seconds, and 3 of them to one client. A call
// consumes a token from both rules, or from neither. Ann calls every second, and Bob every other
// second: at once in virtual time, or live, with the clock of the store.
func twoRules(ctx context.Context, w io.Writer, st store.Store, live bool) error {
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now, window := epoch, 10*time.Second
	opts := &weir.Options{Prefix: prefix, Clock: func() time.Time { return now }}
	if live {
		// Calls are a little early or late. A call ten seconds ago has left this window. A
		// call nine seconds ago has not.
		window, opts.Clock = window-500*time.Millisecond, nil
	}
	lim, err := weir.NewPolicy(st, weir.Policy{
		Name:     "calc",
		Segments: []string{"resource", "client"},
		Rules: []weir.Rule{
			{Name: "resource", By: []string{"resource"}, Algorithm: algorithm.SlidingLog{Limit: 5, Window: window}},
			{Name: "client", Algorithm: algorithm.SlidingLog{Limit: 3, Window: window}},
		},
	}, opts)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\nTwo rules: a resource 5 per 10 s, a client 3 per 10 s\n"+
		"A: allowed.  R: denied by the resource's limit.  C: denied only by the client's limit.\n")

	answers := map[string]string{} // of each client, one character for each second so far
	each := make([]weir.Result, 2) // the results of the rules
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := range 50 {
		now = epoch.Add(time.Duration(second) * time.Second)
		if second > 0 && live {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		for _, client := range []string{"ann", "bob"} {
			if client == "bob" && (second < 4 || second%2 > 0) {
				answers[client] += " "
				continue
			}
			res, err := lim.Decide(ctx, weir.Request{Key: weir.KeyOf("calc", client)}, each)
			switch {
			case err != nil:
				return err
			case res.Allowed:
				answers[client] += "A"
			case !each[0].Allowed:
				answers[client] += "R"
			default:
				answers[client] += "C"
			}
		}
		if live {
			fmt.Fprintf(w, "second %d: ann %c, bob %c\n", second, answers["ann"][second], answers["bob"][second])
		}
	}
	_, err = fmt.Fprintf(w, "\nsecond  0         10        20        30        40\n        %s\nann     %s\nbob     %s\n",
		strings.Repeat("|----+----", 5), answers["ann"], strings.TrimRight(answers["bob"], " "))
	return err
}
