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

	// liveWindow is the window in real time, where calls are a little early or late. A call
	// ten seconds ago has left this window. A call nine seconds ago has not.
	liveWindow = window - 500*time.Millisecond
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
	run := runVirtual
	if *live {
		run = runLive
	}
	if err := run(ctx, os.Stdout, st); err != nil {
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

// A simulation is two clients that call one resource.
type simulation struct {
	lim     *weir.Limiter
	clients []*client
}

func newSimulation(st store.Store, window time.Duration, clock func() time.Time) (*simulation, error) {
	lim, err := weir.NewPolicy(st, weir.Policy{
		Name:     "twoclients",
		Segments: []string{"resource", "client"},
		Rules: []weir.Rule{
			{Name: "resource", By: []string{"resource"}, Algorithm: algorithm.SlidingLog{Limit: resourceLimit, Window: window}},
			{Name: "client", Algorithm: algorithm.SlidingLog{Limit: clientLimit, Window: window}},
		},
	}, &weir.Options{Prefix: "weir-" + rand.Text(), Clock: clock})
	return &simulation{lim, []*client{{name: "ann", every: 1}, {name: "bob", first: 4, every: 2}}}, err
}

// step makes the calls of one second. The calls of ann come first.
func (s *simulation) step(ctx context.Context, second int) error {
	each := make([]weir.Result, 2) // the results of the rules "resource" and "client"
	for _, c := range s.clients {
		if second < c.first || (second-c.first)%c.every != 0 {
			c.answers += " "
			continue
		}
		res, err := s.lim.Decide(ctx, weir.Request{Key: weir.KeyOf("calc", c.name)}, each)
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
	}
	return nil
}

// print prints the timeline, which is timelineHeight lines high.
func (s *simulation) print(w io.Writer) {
	var tens strings.Builder
	for second := 0; second < seconds; second += 10 {
		fmt.Fprintf(&tens, "%-10d", second)
	}
	fmt.Fprintf(w, "second  %s\n", strings.TrimRight(tens.String(), " "))
	fmt.Fprintf(w, "        %s\n", strings.Repeat("|----+----", seconds/10))
	for _, c := range s.clients {
		fmt.Fprintf(w, "%-6s  %s\n", c.name, strings.TrimRight(c.answers, " "))
	}
}

const timelineHeight = 4

func printLegend(w io.Writer) {
	fmt.Fprintf(w, "The resource allows %d calls in %v, and %d of them to one client.\n", resourceLimit, window, clientLimit)
	fmt.Fprintln(w, "Ann calls every second. Bob calls every other second, from second 4 on.")
	fmt.Fprint(w, "A: allowed.  R: denied by the resource's limit.  C: denied only by the client's limit.\n\n")
}

// printEnd prints the number of calls in the last window, for each rule.
func (s *simulation) printEnd(ctx context.Context, w io.Writer) error {
	each := make([]weir.Result, 2)
	var used [2]int64
	for i, c := range s.clients {
		if _, err := s.lim.Decide(ctx, weir.Request{Key: weir.KeyOf("calc", c.name), Op: weir.Peek}, each); err != nil {
			return err
		}
		used[i] = each[1].Limit - each[1].Remaining
	}
	_, err := fmt.Fprintf(w, "\nIn the last %v: the resource %d, ann %d, bob %d.\n", window, each[0].Limit-each[0].Remaining, used[0], used[1])
	return err
}

// runVirtual runs all seconds at once, in virtual time.
func runVirtual(ctx context.Context, w io.Writer, st store.Store) error {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := newSimulation(st, window, func() time.Time { return now })
	if err != nil {
		return err
	}
	for second := range seconds {
		if second > 0 {
			now = now.Add(time.Second)
		}
		if err := s.step(ctx, second); err != nil {
			return err
		}
	}
	printLegend(w)
	s.print(w)
	return s.printEnd(ctx, w)
}

// runLive runs in real time, with the clock of the store. On a terminal, it prints the growing
// timeline each second. Otherwise it prints a line for each second, and then the timeline.
func runLive(ctx context.Context, w io.Writer, st store.Store) error {
	s, err := newSimulation(st, liveWindow, nil)
	if err != nil {
		return err
	}
	terminal := isTerminal(w)
	printLegend(w)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := range seconds {
		if second > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		if err := s.step(ctx, second); err != nil {
			return err
		}
		switch {
		case !terminal:
			fmt.Fprintf(w, "second %d: ann %c, bob %c\n", second, s.clients[0].answers[second], s.clients[1].answers[second])
		case second > 0:
			fmt.Fprintf(w, "\x1b[%dF", timelineHeight) // move the cursor up, to overwrite the timeline
			fallthrough
		default:
			s.print(w)
		}
	}
	if !terminal {
		fmt.Fprintln(w)
		s.print(w)
	}
	return s.printEnd(ctx, w)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
