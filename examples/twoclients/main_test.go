package main

import (
	"context"
	"strings"
	"testing"

	"github.com/weir-go/weir/store/memory"
)

const want = `
second  0         10        20        30        40
        |----+----|----+----|----+----|----+----|----+----
ann     AAACCCCRRRAAARCRCRRRAAARCRCRRRAAARCRCRRRAAARCRCRRR
bob         A A R R R A A R R R A A R R R A A R R R A A R

In the last 10s: the resource 5, ann 3, bob 2.
`

// TestVirtual compares the timeline with the published one. From second 10 on, the row of ann
// repeats AAARCRCRRR. From second 4 on, the row of bob repeats AARRR.
func TestVirtual(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), &out, memory.New(nil), false); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got:\n%s\nwant at the end:\n%s", out.String(), want)
	}
}
