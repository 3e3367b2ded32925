package conformance

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/dailyquota"
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

// TestLastMinute runs the checks that need a minute without a refill when a day is about to
// end: they wait for the next day.
func TestLastMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - 30*time.Second) // a bubble begins at midnight
		b := Backend{subject: &Subject{New: func(*rand.Rand) algorithm.Algorithm {
			return dailyquota.Quota{Limit: 5, Zone: time.UTC}
		}}}
		r := &T{ctx: t.Context(), test: t, backend: b, id: newID(), seed: 1}
		r.slow(r.rand())
		if now := time.Now().UTC(); now.Hour() != 0 || now.Minute() != 0 {
			t.Errorf("the checks go on at %v, want after midnight", now)
		}
		for _, f := range r.failures {
			t.Error(f)
		}
	})
}
