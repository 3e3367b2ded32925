package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/conformance/internal/algorithms"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
)

// TestBuiltIn shows that RunAlgorithm skips, of a built-in algorithm, exactly the checks
// that Run leaves out, because the algorithm does not have the verb. Only RunAlgorithm has
// Carry, which does not depend on the store.
func TestBuiltIn(t *testing.T) {
	t.Parallel()
	for _, s := range algorithms.BuiltIn {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			b := mutation{}.backend()
			b.Seed, b.Brief = 0, true
			b.Report = &Report{} // invalid, but it is ignored
			b.Record = func(o Outcome) {
				_, name, _ := strings.Cut(o.Check, "/")
				has := name == "Carry" || slices.ContainsFunc(s.Group().Checks, func(c suite.Check) bool { return c.Name == name })
				if o.Passed != has || !has && !strings.HasPrefix(o.Skipped, "algorithm has no ") {
					t.Errorf("%s: passed %v, skipped %q", o.Check, o.Passed, o.Skipped)
				}
			}
			RunAlgorithm(t, b, Subject{New: s.New, Unit: model.Unit, Huge: s.Huge})
		})
	}
}
