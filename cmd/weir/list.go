package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/explain"
)

var listCommand = &command{
	name:    "list",
	args:    "FILE POLICY [PREFIX…]",
	summary: "List the callers that use most of their limits.",
	example: "weir list -n 10 limits.yaml api",
	text: `
PREFIX has the first segments of the callers, for example a tenant. Callers with an override have
its limits. A server of Redis or Valkey looks at all its keys, a few at a time, so that decisions are
not held up. What callers use is read with peeks, which consume nothing.

With -every, it lists again and again until Ctrl-C. On a terminal, a list replaces the last one.`,
	flags: func(t *tool, set *flag.FlagSet) func(context.Context, []string) error {
		l := &listing{policyFlags: t.policyFlags(set)}
		set.StringVar(&l.rule, "rule", "", "list only callers of the `rule` with this name")
		set.IntVar(&l.n, "n", 20, "the largest `number` of callers in the list")
		set.Var((*span)(&l.every), "every", "the `time` until it lists again; 0s means never")
		return l.run
	},
}

// listTime bounds a listing, and mostListed the keys that it looks at.
const (
	listTime   = 2 * time.Minute
	mostListed = 1_000_000
)

// A listing prints the callers of a policy.
type listing struct {
	*policyFlags
	rule  string
	n     int
	every time.Duration

	limiter func(*explain.Caller) *weir.Limiter // see overridden
}

func (l *listing) run(ctx context.Context, args []string) error {
	if l.n < 1 {
		return usagef("-n is %d: it must be at least 1", l.n)
	}
	s, err := l.open(ctx, args, false)
	if err != nil {
		return err
	}
	defer s.close()
	if _, err := s.base.Only(l.rule); err != nil && l.rule != "" {
		return usageError{err}
	}
	l.limiter = l.overridden(ctx, s)
	for {
		text, err := l.list(ctx, s)
		switch {
		case l.every == 0 && err != nil:
			return err
		case l.every > 0 && ctx.Err() != nil:
			return nil
		case err != nil: // an outage can end
			text = l.secrets.remove(err.Error()) + "\n"
		}
		if l.live && l.every > 0 {
			fmt.Fprint(l.out, clearScreen)
		}
		l.print(l.out, text)
		if l.every == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(l.every):
		}
	}
}

// list returns the list as text or JSON.
func (l *listing) list(ctx context.Context, s *subject) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	ranking, err := explain.Top(ctx, s.base, l.n, &explain.ListOptions{Rule: l.rule, Segments: s.key, Limiter: l.limiter, MaxKeys: mostListed})
	if err != nil {
		return "", err
	}
	if *l.output == "json" {
		return jsonText(ranking), nil
	}
	var pauses []string
	for _, rule := range s.base.Rules() {
		if rule.Type == weir.PauseRule {
			pauses = append(pauses, rule.Name)
		}
	}
	return ranked(ranking, pauses), nil
}

// overridden returns the limiter of a caller. An override sets only rules of which a caller has all
// segments that it names.
func (l *listing) overridden(ctx context.Context, s *subject) func(*explain.Caller) *weir.Limiter {
	return func(c *explain.Caller) *weir.Limiter {
		list := make([]string, len(s.policy.Segments))
		for _, segment := range c.Segments {
			list[slices.Index(s.policy.Segments, segment.Name)] = segment.Value
		}
		lim, err := s.limits.For(ctx, s.policy.Name, l.plan, s.inClear(weir.HashedKeyOf(list...)))
		if err != nil {
			return nil // it has the limits of the policy
		}
		return lim
	}
}

// ranked returns a ranking as a table. pauses are the names of the rules without a limit.
func ranked(r *explain.Ranking, pauses []string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "USED\tOF\t%\tRULE\tCALLER\tSTATE")
	for _, c := range r.Callers {
		used, limit := fmt.Sprint(c.Used), fmt.Sprint(c.Limit)
		if slices.Contains(pauses, c.Rule) { // a pause has no limit
			used, limit = "-", "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%s\t%s\t%s\n", used, limit, 100*c.Share(), quoted(c.Rule), segmentsText(c.Segments), c.State)
	}
	_ = w.Flush() // to a strings.Builder
	fmt.Fprintf(&text, "%d of %d callers with state\n", len(r.Callers), r.Listed)
	if !r.Complete {
		fmt.Fprintf(&text, "The list is not complete: it looked at %d keys. Give more segments.\n", mostListed)
	}
	return text.String()
}

// clearScreen is what a terminal clears itself for.
const clearScreen = "\x1b[H\x1b[2J"
