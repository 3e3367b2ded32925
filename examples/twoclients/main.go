// Command twoclients simulates two clients that call one resource. For each client, it prints
// a line with the answers to its calls:
//
//	go run ./examples/twoclients                                # in virtual time, in memory
//	go run ./examples/twoclients -redis localhost:6379          # in virtual time, on that server
//	go run ./examples/twoclients -live                          # in real time: 50 seconds
//	go run ./examples/twoclients -live -redis localhost:6379    # in real time, with the clock of that server
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/goredis"
	"github.com/weir-go/weir/store/memory"
)

const (
	seconds       = 50
	resourceLimit = 5
	clientLimit   = 3
	window        = 10 * time.Second
)

func main() {
	log.SetFlags(0)
	addr := flag.String("redis", "", "`address` of a Redis or Valkey server; if empty, state is kept in memory")
	live := flag.Bool("live", false, "run in real time")
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
	if err := run(ctx, os.Stdout, st, *live); err != nil {
		stop()
		log.Fatal(err)
	}
}

// A client makes its first call in second first, and then a call every few seconds.
type client struct {
	name         string
	first, every int
	answers      string // one character for each second so far
}

// run simulates all seconds: at once in virtual time, or live, with the clock of the store.
func run(ctx context.Context, w io.Writer, st store.Store, live bool) error {
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := epoch
	span, opts := window, &weir.Options{Prefix: "weir-" + rand.Text(), Clock: func() time.Time { return now }}
	if live {
		// Calls are a little early or late. A call ten seconds ago has left this window. A
		// call nine seconds ago has not.
		span, opts.Clock = window-500*time.Millisecond, nil
	}
	lim, err := weir.NewPolicy(st, weir.Policy{
		Name:     "twoclients",
		Segments: []string{"resource", "client"},
		Rules: []weir.Rule{
			{Name: "resource", By: []string{"resource"}, Algorithm: algorithm.SlidingLog{Limit: resourceLimit, Window: span}},
			{Name: "client", Algorithm: algorithm.SlidingLog{Limit: clientLimit, Window: span}},
		},
	}, opts)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "The resource allows %d calls in %v, and %d of them to one client.\n", resourceLimit, window, clientLimit)
	fmt.Fprintln(w, "Ann calls every second. Bob calls every other second, from second 4 on.")
	fmt.Fprint(w, "A: allowed.  R: denied by the resource's limit.  C: denied only by the client's limit.\n")

	ann, bob := &client{name: "ann", every: 1}, &client{name: "bob", first: 4, every: 2}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := range seconds {
		now = epoch.Add(time.Duration(second) * time.Second)
		if second > 0 && live {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		if err := errors.Join(ann.call(ctx, lim, second), bob.call(ctx, lim, second)); err != nil {
			return err
		}
		if live {
			fmt.Fprintf(w, "second %d: ann %c, bob %c\n", second, ann.answers[second], bob.answers[second])
		}
	}

	var tens strings.Builder
	for second := 0; second < seconds; second += 10 {
		fmt.Fprintf(&tens, "%-10d", second)
	}
	fmt.Fprintf(w, "\nsecond  %s\n", strings.TrimRight(tens.String(), " "))
	fmt.Fprintf(w, "        %s\n", strings.Repeat("|----+----", seconds/10))
	fmt.Fprintf(w, "ann     %s\nbob     %s\n", ann.answers, strings.TrimRight(bob.answers, " "))

	each := make([]weir.Result, 2)
	var used [2]int64
	for i, c := range []*client{ann, bob} {
		if _, err := lim.Decide(ctx, weir.Request{Key: weir.KeyOf("calc", c.name), Op: weir.Peek}, each); err != nil {
			return err
		}
		used[i] = each[1].Limit - each[1].Remaining
	}
	_, err = fmt.Fprintf(w, "\nIn the last %v: the resource %d, ann %d, bob %d.\n", window, each[0].Limit-each[0].Remaining, used[0], used[1])
	return err
}

// call makes the call of one second, if there is one, and notes the answer.
func (c *client) call(ctx context.Context, lim *weir.Limiter, second int) error {
	if second < c.first || (second-c.first)%c.every != 0 {
		c.answers += " "
		return nil
	}
	each := make([]weir.Result, 2) // the results of the rules "resource" and "client"
	res, err := lim.Decide(ctx, weir.Request{Key: weir.KeyOf("calc", c.name)}, each)
	switch {
	case err != nil:
		return err
	case res.Allowed:
		c.answers += "A"
	case !each[0].Allowed:
		c.answers += "R"
	default:
		c.answers += "C"
	}
	return nil
}
