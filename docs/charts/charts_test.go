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

// TestPictures draws every picture anew, and compares it with the file.
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
			t.Errorf("%s is not what is drawn now: look why, and run make docs", p.file)
		}
		if !strings.Contains(string(doc), p.link()+"\n") {
			t.Errorf("docs/algorithms.md does not have this line:\n%s", p.link())
		}
		if len(p.svg) > 40_000 {
			t.Errorf("%s has %d bytes, more than a page should load", p.file, len(p.svg))
		}
	}
	got, err := filepath.Glob("*.svg")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("there are %v, and drawn are %v", got, want)
	}
}

// TestPromises checks that the plays show what docs/algorithms.md says of each
// algorithm: how many are admitted at most within one window.
func TestPromises(t *testing.T) {
	want := map[string]int{
		"GCRA":                 2*limit - 1, // all at once, and those that come back
		"TokenBucket":          2*limit - 1,
		"TokenBucket, at once": limit, // as it was last full at the burst
		"LeakyBucket":          limit,
		"FixedWindow":          2 * limit,
		"SlidingBuckets":       limit + 3, // what came in the rest of a bucket
		"SlidingCounter":       2*limit - 2,
		"SlidingLog":           limit,
		"Concurrency":          2 * limit, // those of the burst make room after half a window
	}
	for _, s := range subjects {
		p, err := playTrace(t.Context(), s)
		if err != nil {
			t.Fatalf("%s: %v", s.title(), err)
		}
		if got, asked := len(p.admitted)+len(p.denied), len(arrivals()); got != asked {
			t.Errorf("%s: %d answers to %d requests", s.name(), got, asked)
		}
		if got := most(p.turns, window); got != want[s.name()] {
			t.Errorf("%s admits %d within one window, want %d", s.name(), got, want[s.name()])
		}
	}
}

// TestMost checks the two counts that are drawn: what is as old as the window has
// left it.
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
