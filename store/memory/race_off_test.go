//go:build !race

package memory_test

// raceEnabled says that the race detector, which allocates, is on.
const raceEnabled = false
