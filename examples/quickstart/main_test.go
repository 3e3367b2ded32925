package main

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/store/memory"
)

const want = `
second  0         10        20        30        40
        |----+----|----+----|----+----|----+----|----+----
ann     AAACCCCRRRAAARCRCRRRAAARCRCRRRAAARCRCRRRAAARCRCRRR
bob         A A R R R A A R R R A A R R R A A R R R A A R
`

// TestRun compares the timeline with the published one. From second 10 on, the row of ann
// repeats AAARCRCRRR. From second 4 on, the row of bob repeats AARRR.
func TestRun(t *testing.T) {
	var out strings.Builder
	st := memory.New(nil)
	if err := oneRule(t.Context(), &out, st); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "allowed") != 5 || !strings.Contains(got, "ann   denied   0 of 3     500ms") {
		t.Errorf("got:\n%s", got)
	}
	if err := twoRules(t.Context(), &out, st, false); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got:\n%s\nwant at the end:\n%s", out.String(), want)
	}
}
