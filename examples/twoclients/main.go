// Command twoclients lets two clients call one resource, and shows what became
// of each call on one line for each client:
//
//	go run ./examples/twoclients                                # at once, in memory
//	go run ./examples/twoclients -redis localhost:6379          # the same on that server
//	go run ./examples/twoclients -live                          # in real time: 50 seconds
//	go run ./examples/twoclients -live -redis localhost:6379    # by the clock of that server
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

	// liveWindow is for real time, in which a call comes a little late or early: a
	// token of ten seconds ago has surely left, one of nine has surely not.
	liveWindow = window - 500*time.Millisecond
)

func main() {
	log.SetFlags(0)
	addr := flag.String("redis", "", "`address` of a Redis or Valkey server; empty: keep state in memory")
	live := flag.Bool("live", false, "play in real time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	var st store.Store = memory.New(nil)
	if *addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: *addr})
		defer func() { _ = rdb.Close() }()
		st = goredis.New(rdb)
	}
	play := playVirtual
	if *live {
		play = playLive
	}
	if err := play(ctx, os.Stdout, st); err != nil {
		stop()
		log.Fatal(err)
	}
}

// A client calls in second first, and in every second that is a multiple of
// every behind that.
type client struct {
	name         string
	first, every int
	verdicts     string // one for each second so far
}

// A game is two clients at one resource.
type game struct {
	lim     *weir.Limiter
	clients []*client
}

func newGame(st store.Store, window time.Duration, clock func() time.Time) (*game, error) {
	lim, err := weir.NewRules(st, []weir.Rule{
		{Name: "resource", By: []int{0}, Algorithm: algorithm.SlidingLog{Limit: resourceLimit, Window: window}},
		{Name: "client", By: []int{0, 1}, Algorithm: algorithm.SlidingLog{Limit: clientLimit, Window: window}},
	}, &weir.Options{Prefix: "weir-twoclients-" + rand.Text(), Clock: clock})
	return &game{lim, []*client{{name: "ann", every: 1}, {name: "bob", first: 4, every: 2}}}, err
}

// play lets the clients call whose turn it is in a second, ann first.
func (g *game) play(ctx context.Context, second int) error {
	for _, c := range g.clients {
		if second < c.first || (second-c.first)%c.every != 0 {
			c.verdicts += " "
			continue
		}
		res, err := g.lim.Allow(ctx, "calc", c.name)
		switch {
		case err != nil:
			return err
		case res.Allowed:
			c.verdicts += "A"
		case res.Rule == "resource":
			c.verdicts += "R"
		default:
			c.verdicts += "C"
		}
	}
	return nil
}

// print prints the timeline, which is timelineHeight lines high.
func (g *game) print(w io.Writer) {
	var tens strings.Builder
	for s := 0; s < seconds; s += 10 {
		fmt.Fprintf(&tens, "%-10d", s)
	}
	fmt.Fprintf(w, "second  %s\n", strings.TrimRight(tens.String(), " "))
	fmt.Fprintf(w, "        %s\n", strings.Repeat("|----+----", seconds/10))
	for _, c := range g.clients {
		fmt.Fprintf(w, "%-6s  %s\n", c.name, strings.TrimRight(c.verdicts, " "))
	}
}

const timelineHeight = 4

func printLegend(w io.Writer) {
	fmt.Fprintf(w, "The resource takes %d calls in %v, and %d of one client.\n", resourceLimit, window, clientLimit)
	fmt.Fprintln(w, "Ann calls every second, bob every other from the fourth on.")
	fmt.Fprint(w, "A: admitted.  R: the resource was over.  C: the client was over.\n\n")
}

// printEnd prints how many calls of the last window are remembered.
func (g *game) printEnd(ctx context.Context, w io.Writer) error {
	each := make([]weir.Result, 2)
	var of [2]int64
	for i, c := range g.clients {
		if _, err := g.lim.Do(ctx, weir.Request{Path: []string{"calc", c.name}, Peek: true, Each: each}); err != nil {
			return err
		}
		of[i] = each[1].Limit - each[1].Remaining
	}
	_, err := fmt.Fprintf(w, "\nIn the last %v: the resource %d, ann %d, bob %d.\n", window, each[0].Limit-each[0].Remaining, of[0], of[1])
	return err
}

// playVirtual plays at once, by a clock of its own.
func playVirtual(ctx context.Context, w io.Writer, st store.Store) error {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	g, err := newGame(st, window, func() time.Time { return now })
	if err != nil {
		return err
	}
	for s := range seconds {
		if s > 0 {
			now = now.Add(time.Second)
		}
		if err := g.play(ctx, s); err != nil {
			return err
		}
	}
	printLegend(w)
	g.print(w)
	return g.printEnd(ctx, w)
}

// playLive plays in real time, by the clock of the store. On a terminal the
// timeline grows; elsewhere each second is a line, and the timeline comes last.
func playLive(ctx context.Context, w io.Writer, st store.Store) error {
	g, err := newGame(st, liveWindow, nil)
	if err != nil {
		return err
	}
	terminal := isTerminal(w)
	printLegend(w)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for s := range seconds {
		if s > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
			}
		}
		if err := g.play(ctx, s); err != nil {
			return err
		}
		switch {
		case !terminal:
			fmt.Fprintf(w, "second %d: ann %c, bob %c\n", s, g.clients[0].verdicts[s], g.clients[1].verdicts[s])
		case s > 0:
			fmt.Fprintf(w, "\x1b[%dF", timelineHeight) // back up, to print over what is there
			fallthrough
		default:
			g.print(w)
		}
	}
	if !terminal {
		fmt.Fprintln(w)
		g.print(w)
	}
	return g.printEnd(ctx, w)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
