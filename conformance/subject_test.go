package conformance

import (
	"slices"
	"strings"
	"testing"
)

// TestBuiltIn shows that RunAlgorithm skips, of a built-in algorithm, exactly the checks
// that Run leaves out, because the algorithm does not have the verb.
func TestBuiltIn(t *testing.T) {
	t.Parallel()
	for _, g := range builtins {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			b := mutation{}.backend()
			b.Seed, b.Brief = 0, true
			b.Report = &Report{} // invalid, but it is ignored
			b.Record = func(o Outcome) {
				_, name, _ := strings.Cut(o.Check, "/")
				has := slices.ContainsFunc(g.checks, func(c check) bool { return c.name == name })
				if o.Passed != has || !has && !strings.HasPrefix(o.Skipped, "algorithm has no ") {
					t.Errorf("%s: passed %v, skipped %q", o.Check, o.Passed, o.Skipped)
				}
			}
			s := *g.subject
			s.builtin = false
			RunAlgorithm(t, b, s)
		})
	}
}
