package main

import (
	"flag"
	"strings"
)

// sure adds the flag -yes, and returns a function that asks whether to go on, unless the flag is
// given.
func (t *tool) sure(set *flag.FlagSet) func(question string) error {
	yes := set.Bool("yes", false, "do not ask")
	return func(question string) error {
		switch {
		case *yes:
			return nil
		case !t.ask:
			return usagef("%s Without a terminal to ask, it needs -yes", question)
		}
		t.print(t.err, question+" Go on? [y/N] ")
		answer, ok := t.line()
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
		if !ok {
			t.print(t.err, "\n")
		}
		t.print(t.err, "Nothing was changed.\n")
		return errNo
	}
}

// line reads a line of the input. It returns false if there is none.
func (t *tool) line() (string, bool) {
	text, err := t.in.ReadString('\n')
	return strings.TrimRight(text, "\r\n"), err == nil || text != ""
}
