package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-go/weir/weirfile"
)

// A command is one of the tool's verbs.
type command struct {
	name    string
	args    string // its arguments, for people
	summary string // one line
	example string // with what it prints, if that is short
	text    string // what the flags do not say
	// flags adds its flags to set, and returns the function that runs it.
	flags func(t *tool, set *flag.FlagSet) func(ctx context.Context, args []string) error
}

// commands returns all commands in the order of weir -h.
func commands() []*command {
	return []*command{explainCommand, listCommand, pauseCommand, resumeCommand, resetCommand, checkCommand, conformCommand}
}

// exits is the part about exit codes of weir -h.
const exits = `Exit codes:
  0  yes: done, allowed, valid, the same, passed
  1  no: denied, not valid, different, a check that failed, nothing to resume
  2  the command cannot be run as given: an argument, a URL or a file is wrong
  3  the store does not answer, or cannot be used
`

// keys is the part about callers of weir COMMAND -h.
const keys = `A secret or long segment of a caller can be the hash that weir list prints. The argument - stands for
a line of standard input, because other users of the machine can see arguments.
`

// overview returns the text of weir -h.
func overview() string {
	var w strings.Builder
	w.WriteString("See, pause, change and repair rate limits.\n\n")
	w.WriteString("  export WEIR_STORE=redis://limiter:PASSWORD@localhost:6379\n")
	for _, c := range commands() {
		fmt.Fprintf(&w, "  %s\n", strings.SplitN(c.example, "\n", 2)[0])
	}
	w.WriteString("\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(&w, "  %-8s %s\n", c.name, c.summary)
	}
	w.WriteString("  version  Print the version: " + versions())
	w.WriteString("\nweir COMMAND -h says more. Every other command has -o json.\n\n" + urls + "\n" + exits)
	return w.String()
}

// command runs c.
func (t *tool) command(ctx context.Context, c *command, args []string) error {
	set := flag.NewFlagSet("weir "+c.name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	run := c.flags(t, set)
	args, err := parse(set, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		t.help(c, set)
		return nil
	case err != nil:
		return usagef("%w: weir %s -h lists the flags, and -- ends them", err, c.name)
	}
	return run(ctx, args)
}

// parse parses the flags in args, which can stand between the other arguments, up to an
// argument "--". It returns the others.
func parse(set *flag.FlagSet, args []string) ([]string, error) {
	var others []string
	for {
		if err := set.Parse(args); err != nil {
			return nil, err
		}
		rest := set.Args()
		if n := len(args) - len(rest); len(rest) == 0 || n > 0 && args[n-1] == "--" {
			return append(others, rest...), nil
		}
		others, args = append(others, rest[0]), rest[1:]
	}
}

// help prints the help of c: first an example.
func (t *tool) help(c *command, set *flag.FlagSet) {
	var w strings.Builder
	fmt.Fprintf(&w, "%s\n\nExample:\n", c.summary)
	for line := range strings.Lines(c.example) {
		w.WriteString("  " + line)
	}
	fmt.Fprintf(&w, "\n\nUsage:\n  weir %s [flags] %s\n", c.name, c.args)
	if c.text != "" {
		w.WriteString("\n" + strings.TrimSpace(c.text) + "\n")
	}
	if strings.Contains(c.args, "POLICY") {
		w.WriteString("\n" + keys)
	}
	w.WriteString("\nFlags:\n")
	set.SetOutput(&w)
	set.PrintDefaults()
	w.WriteString("\n" + exits)
	t.print(t.out, w.String())
}

// A span is the value of a flag that is a time, which is written as in a policy file.
type span time.Duration

func (s *span) String() string { return time.Duration(*s).String() }

func (s *span) Set(text string) error {
	d, err := weirfile.ParseDuration(text)
	*s = span(d)
	return err
}

// A format is the value of the flag -o.
type format string

func (f *format) String() string { return string(*f) }

func (f *format) Set(s string) error {
	if s != "text" && s != "json" {
		return errors.New("it must be text or json")
	}
	*f = format(s)
	return nil
}

// formatFlag adds the flag -o.
func formatFlag(set *flag.FlagSet) *format {
	f := format("text")
	set.Var(&f, "o", "the `format` of the output: text or json")
	return &f
}
