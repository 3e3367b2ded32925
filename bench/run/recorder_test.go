package main

import (
	"maps"
	"slices"
	"testing"
)

const output = `goos: linux
pkg: example.com/bench
BenchmarkA/impl=a-2         	     100	       12.50 ns/op
BenchmarkA/impl=b
skipped: BenchmarkB: no server can be started: a reason
PASS
`

// TestRead checks what a recorder keeps of two rounds.
func TestRead(t *testing.T) {
	r := &recorder{config: map[string]string{}, skipped: map[string]bool{}}
	r.set("go", "go1.26.0")
	r.read(output)
	r.read(output)
	const a = "BenchmarkA/impl=a-2 100 12.50 ns/op\n"
	if got, want := r.text.String(), "go: go1.26.0\ngoos: linux\n"+a+a; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := slices.Collect(maps.Keys(r.skipped)); len(got) != 1 || got[0] != "skipped: BenchmarkB: no server can be started: a reason" {
		t.Errorf("got %q", got)
	}
}
