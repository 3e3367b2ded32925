package main

import (
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
