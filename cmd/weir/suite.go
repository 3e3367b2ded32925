package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/conformance"
)

// suite runs the checks on b until ctx ends, and returns what the failed checks say. It
// can run once in a process, and not in a process of go test.
func (c *conform) suite(ctx context.Context, b conformance.Backend) (string, error) {
	testing.Init()
	flags := []string{"-test.timeout=0", "-test.run=" + matching(c.checks)}
	if err := flag.CommandLine.Parse(flags); err != nil {
		return "", err
	}
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	os.Stdout = w // testing prints to it
	var said bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&said, r)
	}()
	ran := make(chan struct{})
	// Main ends the process when its last test has ended. This last test never ends, and
	// begins when the output of the first is complete.
	go testing.Main(regexp.MatchString, []testing.InternalTest{
		{Name: suiteName, F: func(t *testing.T) { conformance.Run(t, b) }},
		{Name: "End", F: func(*testing.T) { close(ran); select {} }},
	}, nil, nil)
	select {
	case <-ran:
	case <-ctx.Done():
		return "", ctx.Err() // the process ends
	}
	_ = w.Close()
	<-read
	return failures(said.String()), nil
}

const suiteName = "Suite"

// matching returns the flag -test.run that selects the checks, and the test End.
func matching(checks []string) string {
	var groups, parts []string
	for _, check := range checks {
		group, _, _ := strings.Cut(check, "/")
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	for _, group := range groups {
		var names []string
		for _, check := range checks {
			if name, ok := strings.CutPrefix(check, group+"/"); ok {
				names = append(names, name)
			}
		}
		parts = append(parts, "^"+suiteName+"$/^"+group+"$/^("+strings.Join(names, "|")+")$")
	}
	return strings.Join(append(parts, "^End$"), "|")
}

var (
	failedTest = regexp.MustCompile(`^\s*--- FAIL: (\S+) \(`)
	source     = regexp.MustCompile(`^run\.go:\d+: `)
)

// failures returns the texts of failed checks in the output of a test.
func failures(output string) string {
	var w strings.Builder
	for line := range strings.Lines(output) {
		if m := failedTest.FindStringSubmatch(line); m != nil {
			if name, ok := strings.CutPrefix(m[1], suiteName+"/"); ok && strings.Contains(name, "/") {
				w.WriteString("--- " + name + "\n")
			}
			continue
		}
		if text := strings.TrimLeft(line, " "); text != "" {
			w.WriteString("    " + source.ReplaceAllString(text, ""))
		}
	}
	return w.String()
}
