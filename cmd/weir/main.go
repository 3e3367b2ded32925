// Command weir is the operator's tool for rate limits: it shows, pauses and resets the
// limits of a policy file, and proves that a server keeps the promises that limiters
// need.
//
//	go run github.com/weir-go/weir/cmd/weir@latest conform redis://localhost:6379
//
// weir -h lists the commands, and weir COMMAND -h starts with an example. The guide is
// docs/guide/operate.md.
package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/signal"
	"slices"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	// A second Ctrl-C ends the process at once.
	context.AfterFunc(ctx, stop)
	t := &tool{
		in: bufio.NewReader(os.Stdin), out: os.Stdout, err: os.Stderr, getenv: os.Getenv, dial: dial,
		ask:   term.IsTerminal(int(os.Stdin.Fd())),
		live:  term.IsTerminal(int(os.Stdout.Fd())),
		shown: term.IsTerminal(int(os.Stderr.Fd())),
	}
	os.Exit(t.run(ctx, os.Args[1:]))
}

// A tool runs commands.
type tool struct {
	in       *bufio.Reader
	out, err io.Writer // see print
	getenv   func(name string) string
	dial     func(ctx context.Context, at *target) (*server, error)

	ask   bool // in is a terminal
	live  bool // out is a terminal
	shown bool // err is a terminal

	secrets secrets
}

// run runs the command in args, and returns the exit code of the process.
func (t *tool) run(ctx context.Context, args []string) int {
	if len(args) == 0 || slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		t.print(t.out, overview())
		if len(args) == 0 {
			return exitUsage
		}
		return exitOK
	}
	if slices.Contains([]string{"version", "-version", "--version"}, args[0]) {
		t.print(t.out, versions())
		return exitOK
	}
	for _, c := range commands() {
		if c.name == args[0] {
			return t.finish(c.name, t.command(ctx, c, args[1:]))
		}
	}
	return t.finish("", usagef("there is no command %q: weir -h lists the commands", args[0]))
}
