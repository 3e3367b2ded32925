package main

import (
	"os"
	"strings"
	"testing"
)

func Example() {
	main()
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// TestPage checks that docs/guide/grpc.md shows main.go, without its package comment.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guide/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(program), "package main")
	if !strings.Contains(string(page), "```golang\npackage main"+text+"```\n") {
		t.Error("the page does not show main.go as it is")
	}
}
