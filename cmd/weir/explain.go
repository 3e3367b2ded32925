package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/weirfile"
)

var explainCommand = &command{
	name:    "explain",
	args:    "FILE POLICY KEY…",
	summary: "Say why a caller is limited, and how much is left in each rule.",
	example: "weir explain limits.yaml api acme ann",
	text: `
KEY has one argument for each segment of the policy. It prints what a request of one token, and
of 1 of each unit, would be answered now, where the caller's limits come from, and for each rule the
limit, the state, the keys in the store and their cluster slot. It consumes nothing. Secret segments
are shown as their hash. The exit code is 0 if the request would be allowed, and 1 if it would be
denied.`,
	flags: func(t *tool, set *flag.FlagSet) func(context.Context, []string) error {
		f := t.policyFlags(set)
		short := set.Bool("short", false, "print only whether the request would be allowed, and why")
		return func(ctx context.Context, args []string) error { return f.explain(ctx, args, *short) }
	},
}

// A document is an explanation, with what the file says about the caller.
type document struct {
	*explain.Document
	Limits string `json:"limits"` // where the caller's limits come from
}

// explain prints the explanation of a key. It returns errNo if a request would be denied.
func (f *policyFlags) explain(ctx context.Context, args []string, short bool) error {
	s, err := f.open(ctx, args, true)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	doc, err := explain.ExplainKey(ctx, s.lim, s.caller)
	if err != nil {
		return err
	}
	switch s.source.Access {
	case weirfile.Blocked:
		doc.Allowed, doc.DeniedBy, doc.RetryAfter, doc.Why = false, "", explain.Duration(weir.Never), "denied, because the file blocks the caller"
	case weirfile.Unlimited:
		doc.Allowed, doc.DeniedBy, doc.RetryAfter, doc.Why = true, "", 0, "allowed, because the file does not limit the caller"
	}
	d := &document{doc, s.source.String()}
	for i, rule := range s.lim.Rules() {
		if d.Rules[i].Words = s.file.Describe(rule.Algorithm); rule.Unit != "" {
			d.Rules[i].Words += ", unit: " + quoted(rule.Unit)
		}
	}
	switch {
	case *f.output == "json":
		f.print(f.out, jsonText(d))
	case short:
		f.printf("%s\n", d.Why)
	default:
		f.explained(d)
	}
	if !doc.Allowed {
		return errNo
	}
	return nil
}

// explained prints a document as text.
func (f *policyFlags) explained(d *document) {
	f.printf("%s\n\n", d.Why)
	f.printf("policy  %s\n", quoted(d.Policy))
	f.printf("key     %s\n", segmentsText(d.Key))
	f.printf("limits  %s\n", d.Limits)
	for _, r := range d.Rules {
		kind := "rule"
		if r.Shadow {
			kind = "shadow rule"
		}
		f.printf("\n%s %s, by %s\n", kind, quoted(r.Name), quotedAll(r.By))
		f.printf("  limit  %s\n", r.Words)
		f.printf("  state  %s\n", r.State)
		for i, key := range r.Keys {
			name := []string{"key ", "    "}[min(i, 1)]
			f.printf("  %s   %s (slot %d)\n", name, quoted(key), r.Slot)
		}
	}
}

// segmentsText returns segments with their names.
func segmentsText(list []explain.Segment) string {
	var words []string
	for _, s := range list {
		words = append(words, fmt.Sprintf("%s=%s", s.Name, quoted(s.Value)))
	}
	return strings.Join(words, " ")
}

// sharedBy reports whether other keys of the policy share the limit of a rule.
func (s *subject) sharedBy(by []string) bool {
	return slices.ContainsFunc(s.policy.Segments, func(name string) bool { return !slices.Contains(by, name) })
}
