package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPictures draws every picture again and compares it with its file.
func TestPictures(t *testing.T) {
	pictures, err := drawAll(t.Context())
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
		if doc, err := os.ReadFile(filepath.Join("../..", p.page)); err != nil || !strings.Contains(string(doc), p.link()+"\n") {
			t.Errorf("%s does not have this line (%v):\n%s", p.page, err, p.link())
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

// TestRoom checks that no text covers another, the sample of a key, or the picture's
// border, also in a viewer that draws texts in a wider font and ignores their width.
func TestRoom(t *testing.T) {
	pictures, err := drawAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures {
		t.Run(p.file, func(t *testing.T) {
			all := boxes(t, p.svg)
			if len(all) < 10 {
				t.Fatalf("the picture has %d texts", len(all))
			}
			for i, a := range all {
				if a.left < 0 || a.right > width {
					t.Errorf("%q goes from %.0f to %.0f: the picture goes from 0 to %d", a.text, a.left, a.right, width)
				}
				for _, b := range all[i+1:] {
					if a.covers(b) {
						t.Errorf("%q and %q overlap: %.0f to %.0f, and %.0f to %.0f, at the heights %.0f and %.0f",
							a.text, b.text, a.left, a.right, b.left, b.right, a.y, b.y)
					}
				}
			}
		})
	}
}

// TestCovers checks the check.
func TestCovers(t *testing.T) {
	a := textBox{text: "a", left: 10, right: 20, y: 50}
	for _, tt := range []struct {
		b    textBox
		want bool
	}{
		{textBox{left: 19, right: 30, y: 50}, true},
		{textBox{left: 21, right: 30, y: 50}, false},
		{textBox{left: 5, right: 30, y: 55}, true},
		{textBox{left: 5, right: 30, y: 60}, false},
	} {
		if got := a.covers(tt.b); got != tt.want {
			t.Errorf("%+v: got %v, want %v", tt.b, got, tt.want)
		}
	}
}

// A textBox is where a text lies, in points, if its font is wide. With the text of a key
// comes its sample, which lies before it.
type textBox struct {
	text           string
	left, right, y float64
}

func (a textBox) covers(b textBox) bool {
	return a.left < b.right && b.left < a.right && math.Abs(a.y-b.y) < fontSize-1
}

// boxes returns the places of the texts that are not turned.
func boxes(t *testing.T, svg []byte) []textBox {
	t.Helper()
	turned := regexp.MustCompile(`(?s)<g transform="rotate.*?</g>`)
	parts := regexp.MustCompile(`(?s)<text text-anchor="(\w+)" textLength="([\d.]+)"[^>]* x="([\d.-]+)" y="([\d.-]+)"[^>]*>([^<]*)</text>`)
	number := func(s string) float64 {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var all []textBox
	for _, m := range parts.FindAllStringSubmatch(turned.ReplaceAllString(string(svg), ""), -1) {
		wide, x := spare*number(m[2]), number(m[3])
		b := textBox{text: m[5], left: x, right: x + wide, y: -number(m[4])}
		switch m[1] {
		case "middle":
			b.left, b.right = x-wide/2, x+wide/2
		case "end":
			b.left, b.right = x-wide, x
		default:
			if x > 2*margin { // a key, and not the title
				b.left -= sample + gap
			}
		}
		all = append(all, b)
	}
	return all
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
