//go:build !race

package weir_test

// raceEnabled says that the race detector, which allocates, is on.
const raceEnabled = false
