//go:build race

package store_test

// raceEnabled reports whether the race detector, which allocates, is on.
const raceEnabled = true
