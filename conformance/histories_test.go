package conformance

import "testing"

// TestSlidingLogHistories compares 10,000 random histories with a plain list of times.
func TestSlidingLogHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	r := check{"Histories", "SlidingLog answers as a plain list of times does", func(t *T) {
		t.same(10_000, 12)
	}}
	b := mutation{}.backend()
	b.Seed, b.Keys = 0, nil // which would look at all keys after each history
	b.subject = &Subject{New: anySlidingLog, Unit: unitOf}
	if c := runCheck(t, b, r); len(c.failures) > 0 {
		t.Errorf("seed %d: %v", c.seed, c.failures)
	}
}
