package conformance

import "testing"

// TestSlidingLogHistories compares 10,000 random histories with a plain list of times.
func TestSlidingLogHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	r := rule{"Histories", "SlidingLog answers as a plain list of times does", func(t *T) {
		t.histories(10_000, 12, 50, single(anySlidingLog))
	}}
	b := mutation{}.backend()
	b.Seed = 0
	if c := check(t, b, r); len(c.failures) > 0 {
		t.Errorf("seed %d: %v", c.seed, c.failures)
	}
}
