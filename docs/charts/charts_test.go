package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPictures draws every picture again and compares it with its file.
func TestPictures(t *testing.T) {
	pictures, err := drawAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, p := range pictures {
		want = append(want, p.file)
		got, err := os.ReadFile(p.file)
		switch {
		case err != nil:
			t.Errorf("%v: run make docs", err)
		case !bytes.Equal(got, p.svg):
			t.Errorf("%s differs from the picture that is drawn now: find out why, then run make docs", p.file)
		}
		if !strings.Contains(string(doc), p.link()+"\n") {
			t.Errorf("docs/algorithms.md does not have this line:\n%s", p.link())
		}
		if len(p.svg) > 40_000 {
			t.Errorf("%s has %d bytes: a picture must have at most 40,000", p.file, len(p.svg))
		}
	}
	got, err := filepath.Glob("*.svg")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the directory has %v: drawn are %v", got, want)
	}
}

// TestPromises checks that the simulations show what docs/algorithms.md says of each
// algorithm: how many requests are allowed at most within one window.
func TestPromises(t *testing.T) {
	want := map[string]int{
		"GCRA":                 2*limit - 1, // the burst, and the tokens that come back
		"TokenBucket":          2*limit - 1,
		"TokenBucket, at once": limit, // because it was full at the burst
		"LeakyBucket":          limit,
		"FixedWindow":          2 * limit,
		"SlidingBuckets":       limit + 3, // those of the rest of a bucket
		"SlidingCounter":       2*limit - 2,
		"SlidingLog":           limit,
		"Concurrency":          2 * limit, // those of the burst release their leases after half a window
	}
	for _, s := range setups {
		p, err := simulate(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", s.title(), err)
		}
		if got, asked := len(p.allowed)+len(p.denied), len(arrivals()); got != asked {
			t.Errorf("%s: %d answers to %d requests", s.name(), got, asked)
		}
		if got := most(p.turns, window); got != want[s.name()] {
			t.Errorf("%s allows %d within one window, want %d", s.name(), got, want[s.name()])
		}
	}
}

// TestMost checks the two counts that are drawn. A time exactly one window ago does not
// lie in the window.
func TestMost(t *testing.T) {
	times := []time.Duration{0, time.Second, time.Second, window, window + time.Second}
	want := []count{{0, 1}, {time.Second, 3}, {window + time.Second, 2}, {2 * window, 1}, {2*window + time.Second, 0}}
	if got := inWindow(times); !slices.Equal(got, want) {
		t.Errorf("inWindow: got %v, want %v", got, want)
	}
	if got := most(times, window); got != 3 {
		t.Errorf("most: got %d, want 3", got)
	}
}
