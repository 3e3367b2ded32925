package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPictures draws every picture again and compares it with its file.
func TestPictures(t *testing.T) {
	charts, err := all(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, c := range charts {
		file, svg := c.file+".svg", c.draw()
		want = append(want, file)
		got, err := os.ReadFile(file)
		switch {
		case err != nil:
			t.Errorf("%v: run make docs", err)
		case !bytes.Equal(got, svg):
			t.Errorf("%s differs from the picture that is drawn now: find out why, then run make docs", file)
		}
		if doc, err := os.ReadFile(filepath.Join("../..", c.page)); err != nil || !strings.Contains(string(doc), c.link()+"\n") {
			t.Errorf("%s does not have this line (%v):\n%s", c.page, err, c.link())
		}
		if len(svg) > 40_000 {
			t.Errorf("%s has %d bytes: a picture must have at most 40,000", file, len(svg))
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

// TestRoom checks that the title and the keys end before the border, even in a wide font.
func TestRoom(t *testing.T) {
	charts, err := all(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	texts := regexp.MustCompile(`<text x="([\d.]+)" y="[\d.]+" text-anchor="start"[^>]*>([^<]*)<`)
	for _, c := range charts {
		found := texts.FindAllStringSubmatch(string(c.draw()), -1)
		if len(found) != 1+len(c.keys) {
			t.Fatalf("%s has %d texts, want the title and %d keys", c.file, len(found), len(c.keys))
		}
		for _, m := range found {
			if x, err := strconv.ParseFloat(m[1], 64); err != nil || x+letter*float64(utf8.RuneCountInString(m[2])) > width {
				t.Errorf("%s: %q begins at %s, so it does not end before %d (%v)", c.file, m[2], m[1], width, err)
			}
		}
	}
}

// TestPromises checks that the simulations show what docs/reference/algorithms.md says of each
// algorithm: how many requests are allowed at most within one window.
func TestPromises(t *testing.T) {
	want := map[string]int64{
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
		p, err := simulateSetup(t.Context(), s)
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
