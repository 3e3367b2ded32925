package main

import (
	"errors"
	"os"
	"reflect"
	"testing"
)

const output = `goos: linux
pkg: example.com/bench
BenchmarkA/impl=a-2         	     100	       12.50 ns/op
BenchmarkA/impl=b
skipped: BenchmarkB: no server can be started: a reason
skipped: BenchmarkC/state=c: no server can be started: a reason
PASS
`

// TestRead checks what a recorder keeps of two rounds.
func TestRead(t *testing.T) {
	r := &recorder{config: map[string]string{}}
	r.set("go", "go1.26.0")
	r.read(output)
	r.read(output)
	const a = "BenchmarkA/impl=a-2 100 12.50 ns/op\n"
	if got, want := r.text.String(), "go: go1.26.0\ngoos: linux\n"+a+a; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	want := []skip{{"no server can be started: a reason", []string{"BenchmarkB", "BenchmarkC/state=c"}}}
	if !reflect.DeepEqual(r.skipped, want) {
		t.Errorf("got %q, want %q", r.skipped, want)
	}
}

// former has the results of two commands.
const former = "go: go1.26.0\nserver: Redis 7.0.15\nBenchmarkA-2 1 5 ns/op\nBenchmarkLarge/keys=1-2 1 5 ns/op\n"

// TestKeepOthers checks that large keeps the results that it does not measure, and whether the
// machine was busy then.
func TestKeepOthers(t *testing.T) {
	const (
		mine   = "go: go1.26.0\nserver: Redis 7.0.15\nBenchmarkA-2 1 5 ns/op\n"
		before = "BenchmarkLarge/keys=1-2 1 5 ns/op\n"
		now    = "BenchmarkLarge/keys=1-2 1 7 ns/op\n"
	)
	for _, tt := range []struct{ name, former, want string }{
		{"idle", former, mine + now},
		{"busy during large", mine + "load: 1.6\n" + before, mine + now},
		{"busy during the others", "load: 1.6\n" + former, "load: 1.6\n" + mine + now},
		{"no large", mine, mine + now},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{config: map[string]string{}}
			r.keepOthers(tt.former)
			r.set("go", "go1.26.0")
			r.read(now)
			if got := r.text.String(); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// TestKeepLarge checks that quick and full keep the results of large, with the configuration
// of these results only.
func TestKeepLarge(t *testing.T) {
	for _, tt := range []struct{ name, former, want string }{
		{"measured", former, "go: go1.26.0\nBenchmarkLarge/keys=1-2 1 5 ns/op\ngo: go1.27.0\nBenchmarkA-2 1 7 ns/op\n"},
		{"measured on a busy machine", "load: 5.0\n" + former, "go: go1.27.0\nBenchmarkA-2 1 7 ns/op\n"},
		{"measured before the machine was busy", former + "load: 5.0\nBenchmarkA-2 1 9 ns/op\n", "go: go1.26.0\nBenchmarkLarge/keys=1-2 1 5 ns/op\ngo: go1.27.0\nBenchmarkA-2 1 7 ns/op\n"},
		{"not measured", "go: go1.26.0\nBenchmarkA-2 1 5 ns/op\n", "go: go1.27.0\nBenchmarkA-2 1 7 ns/op\n"},
		{"no former results", "", "go: go1.27.0\nBenchmarkA-2 1 7 ns/op\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{config: map[string]string{}}
			r.keepLarge(tt.former)
			r.set("go", "go1.27.0")
			r.read("BenchmarkA-2 1 7 ns/op\n")
			if got := r.text.String(); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// TestReplace checks that full keeps the results that it replaces, and that the other
// commands do not.
func TestReplace(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, step := range []struct{ command, text, earlier string }{
		{"full", "1", ""}, // there were no results
		{"full", "2", "1"},
		{"quick", "3", "1"},
		{"large", "4", "1"},
		{"full", "5", "4"},
	} {
		if err := replace(step.text, plans[step.command].keep); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{results: step.text, earlier: step.earlier, latest: ""} {
			got, err := os.ReadFile(path)
			if want == "" && !errors.Is(err, os.ErrNotExist) || want != "" && string(got) != want {
				t.Errorf("%s, results %s: %s has %q, %v, want %q", step.command, step.text, path, got, err, want)
			}
		}
	}
}
