package golden

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// files returns the files of all histories.
func files(t *testing.T) []*File {
	t.Helper()
	all, err := Read("../../testdata")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestGolden records every history on the memory store, and compares the vectors with the
// files.
func TestGolden(t *testing.T) {
	for _, want := range files(t) {
		got, err := want.OnMemory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got.TakeReplies(want)
		if diff := got.Differ(want); diff != "" {
			t.Errorf("%s: %s\nIf the change is on purpose: cd conformance/integration && go test -run TestGolden -update .", want.Name, diff)
		}
	}
}

// TestPublished compares the answers with the published ones.
func TestPublished(t *testing.T) {
	n := 0
	for _, f := range files(t) {
		for i, s := range f.Steps {
			if s.Published == "" || s.Published == "-" {
				continue
			}
			n++
			if got := s.answer(); got != s.Published && got != inSeconds(s.Published) {
				t.Errorf("%s, step %d: got %q, published is %q", f.Name, i, got, s.Published)
			}
		}
	}
	if n < 200 {
		t.Errorf("%d answers are published, want more", n)
	}
}

// answer returns the answer of a step as its source would.
func (s Step) answer() string {
	switch {
	case s.Numbers != nil:
		return strings.Trim(fmt.Sprint(s.Numbers), "[]")
	case s.Published == "allowed" || s.Published == "denied":
		return map[bool]string{true: "allowed", false: "denied"}[s.Answer.Allowed]
	case s.Published == "T" || s.Published == "F":
		return map[bool]string{true: "T", false: "F"}[s.Answer.Allowed]
	case s.Answer.Allowed:
		return "A"
	}
	if slices.Contains(s.Answer.DeniedBy, "resource") {
		return "R"
	}
	return "C"
}

// inSeconds returns limited, remaining, reset and retry in milliseconds as the numbers of
// redis-cell, in whole seconds, for a limit of 5.
func inSeconds(published string) string {
	var limited, remaining, reset int64
	var retry string
	if n, _ := fmt.Sscan(published, &limited, &remaining, &reset, &retry); n != 4 {
		return published
	}
	seconds := func(ms int64) int64 { return (ms + 999) / 1000 }
	after := int64(-1)
	if n, _ := fmt.Sscan(retry, &after); n == 1 {
		after = seconds(after)
	}
	return fmt.Sprint(limited, 5, remaining, after, seconds(reset))
}
