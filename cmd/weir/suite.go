package main

import (
	"context"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-go/weir/conformance"
)

// suite runs the checks on b until ctx ends. It can run once in a process, and not in a process
// of go test.
func suite(ctx context.Context, checks []string, b conformance.Backend) error {
	testing.Init()
	flags := []string{"-test.timeout=0", "-test.run=" + matching(checks)}
	if err := flag.CommandLine.Parse(flags); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	stdout := os.Stdout
	defer func() { os.Stdout = stdout; _ = null.Close() }()
	os.Stdout = null // testing prints to it
	ran := make(chan struct{})
	// Main ends the process when its last test has ended. This last test never ends.
	go testing.Main(regexp.MatchString, []testing.InternalTest{
		{Name: suiteName, F: func(t *testing.T) { conformance.Run(t, b) }},
		{Name: "End", F: func(*testing.T) { close(ran); select {} }},
	}, nil, nil)
	select {
	case <-ran:
	case <-ctx.Done():
		return ctx.Err() // the process ends
	}
	return nil
}

const suiteName = "Suite"

// matching returns the flag -test.run that selects the checks, and the test End.
func matching(checks []string) string {
	tests := []string{"^End$"}
	for _, check := range checks {
		tests = append(tests, "^"+suiteName+"$/^"+strings.ReplaceAll(check, "/", "$/^")+"$")
	}
	return strings.Join(tests, "|")
}
