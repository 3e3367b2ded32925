package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// binary is the test binary.
const binary = "bench.test"

func build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, ".")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// A recorder collects the results of runs.
type recorder struct {
	text    strings.Builder   // in Go's benchmark format
	config  map[string]string // of the last line
	skipped []skip            // in the order in which they were skipped
}

// A skip is a reason, and the benchmarks that did not run for this reason.
type skip struct {
	reason string
	names  []string
}

// describe adds lines about this process, which are those of the test binary too.
func (r *recorder) describe() {
	r.set("go", runtime.Version())
	r.set("gomaxprocs", strconv.Itoa(runtime.GOMAXPROCS(0)))
}

// set adds a line of configuration, unless it is the same as before.
func (r *recorder) set(name, value string) {
	if r.config[name] != value {
		r.config[name] = value
		fmt.Fprintf(&r.text, "%s: %s\n", name, value)
	}
}

// run runs a step.
func (r *recorder) run(ctx context.Context, s step) error {
	args := []string{"-test.run", "^$", "-test.timeout", "0", "-test.bench", s.bench, "-test.benchtime", s.benchtime}
	if s.rounds {
		args = append(args, "-test.count", strconv.Itoa(*rounds))
	}
	if s.skip != "" {
		args = append(args, "-test.skip", s.skip)
	}
	if s.short {
		args = append(args, "-test.short")
	}
	path, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "WEIR_BENCH_LARGE=1")
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.Bytes())
	}
	r.read(out.String())
	return nil
}

// read adds the output of a test binary, and notes which benchmarks it skipped.
func (r *recorder) read(output string) {
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		text, ok := strings.CutPrefix(line, "skipped: ")
		if !ok {
			r.add(line)
			continue
		}
		name, reason, _ := strings.Cut(text, ": ")
		i := slices.IndexFunc(r.skipped, func(s skip) bool { return s.reason == reason })
		if i < 0 {
			i = len(r.skipped)
			r.skipped = append(r.skipped, skip{reason: reason})
		}
		if s := &r.skipped[i]; !slices.Contains(s.names, name) {
			s.names = append(s.names, name)
		}
	}
}

// add adds a line of results or of configuration, and no other.
func (r *recorder) add(line string) {
	if fields := strings.Fields(line); strings.HasPrefix(line, "Benchmark") && len(fields) > 2 {
		fmt.Fprintln(&r.text, strings.Join(fields, " "))
		return
	}
	switch name, value, _ := strings.Cut(line, ": "); name {
	case "goos", "goarch", "cpu", "server", "postgres", "go", "gomaxprocs", "load":
		r.set(name, value)
	}
}
