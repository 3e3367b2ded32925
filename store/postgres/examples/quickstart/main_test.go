package main

import (
	"os"
	"strings"
	"testing"
)

// TestRun checks the output on the server that WEIR_POSTGRES_URL names.
func TestRun(t *testing.T) {
	url := os.Getenv("WEIR_POSTGRES_URL")
	if url == "" {
		t.Skip("WEIR_POSTGRES_URL is not set: it must be the URL of a PostgreSQL database")
	}
	var text strings.Builder
	if err := run(t.Context(), &text, url); err != nil {
		t.Fatal(err)
	}
	want := `Two rules: resource 5 per minute, consumer 3 per minute
ann  allowed  consumer: 2 of 3 remain
ann  allowed  consumer: 1 of 3 remain
ann  allowed  consumer: 0 of 3 remain
ann  denied   consumer: 0 of 3 remain
bob  allowed  resource: 1 of 5 remain
bob  allowed  resource: 0 of 5 remain
bob  denied   resource: 0 of 5 remain
`
	if got := text.String(); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}
