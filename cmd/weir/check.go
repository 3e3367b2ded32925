package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"strings"

	"github.com/weir-go/weir/weirfile"
)

var checkCommand = &command{
	name:    "check",
	args:    "FILE [CURRENT]",
	summary: "Check a policy file, and say what it would change.",
	example: "weir check new.yaml limits.yaml",
	text: `
With CURRENT, it says what happens to the state of callers when FILE replaces CURRENT:
  kept       what callers have used stays used
  estimated  the state stays, but stands for another number of tokens
  lost       the key in the store changes, and the state stays behind
  renamed    lost, because the rule has another name
  added      the limit or the unit is new
  removed    the limit no longer applies
  rejected   a running program keeps its limits until it is restarted

It also warns of budgets that are refilled while they are spent, and so allow twice as much. It does
not use a store. The exit code is 1 if FILE is not valid, or if it changes limits, and 2 if a file
cannot be read. A file with algorithms of your own is not valid for the tool.`,
	flags: func(t *tool, set *flag.FlagSet) func(context.Context, []string) error {
		f := &policyFlags{tool: t, output: formatFlag(set)}
		return func(_ context.Context, args []string) error {
			if len(args) != 1 && len(args) != 2 {
				return usagef("there are %d arguments: give a file, or a new file and the current one", len(args))
			}
			return f.check(args)
		}
	},
}

// A checked is the result of check in JSON.
type checked struct {
	File     string            `json:"file"`
	Valid    bool              `json:"valid"`
	Errors   []*weirfile.Error `json:"errors"`
	Warnings []*weirfile.Error `json:"warnings,omitempty"`
	Policies []string          `json:"policies"`
	Changes  []weirfile.Change `json:"changes,omitzero"` // only with CURRENT
}

func (f *policyFlags) check(args []string) error {
	c := checked{File: args[0], Errors: []*weirfile.Error{}, Policies: []string{}}
	file, err := f.load(args[0])
	switch {
	case errors.As(err, new(*fs.PathError)):
		return err // there is no such file, or it cannot be read: this says nothing about the limits
	case err != nil:
		c.Errors = listErrors(err)
		return f.checked(c)
	}
	c.Valid = true
	if err := file.Warnings(); err != nil {
		c.Warnings = listErrors(err)
	}
	for _, p := range file.Policies() {
		c.Policies = append(c.Policies, p.Name)
	}
	if len(args) == 2 {
		current, err := f.load(args[1])
		if err != nil {
			return fmt.Errorf("the current file: %w", err)
		}
		c.Changes = append([]weirfile.Change{}, weirfile.Diff(current, file)...)
	}
	return f.checked(c)
}

// listErrors returns the mistakes in a file.
func listErrors(err error) []*weirfile.Error {
	var list []*weirfile.Error
	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		for _, err := range all.Unwrap() {
			list = append(list, listErrors(err)...)
		}
		return list
	}
	e := &weirfile.Error{Text: err.Error()}
	errors.As(err, &e)
	return []*weirfile.Error{e}
}

// checked prints c.
func (f *policyFlags) checked(c checked) error {
	var end error
	if !c.Valid || len(c.Changes) > 0 {
		end = errNo
	}
	if *f.output == "json" {
		f.print(f.out, jsonText(c))
		return end
	}
	for _, e := range append(c.Errors, c.Warnings...) { // only one of them has elements
		place := quoted(c.File)
		if e.Line > 0 {
			place += fmt.Sprintf(":%d:%d", e.Line, e.Column)
		}
		if c.Valid {
			place += ": warning"
		}
		f.printf("%s: %s\n", place, e.Text)
	}
	switch {
	case !c.Valid:
		f.printf("%s is not valid.\n", quoted(c.File))
	case c.Changes == nil:
		f.printf("%s is valid: %s\n", quoted(c.File), strings.Join(c.Policies, ", "))
	case len(c.Changes) == 0:
		f.printf("%s is valid, and changes nothing.\n", quoted(c.File))
	default:
		f.printf("%s is valid, and changes this:\n", quoted(c.File))
		for _, change := range c.Changes {
			f.printf("  %s\n", change)
		}
	}
	return end
}
