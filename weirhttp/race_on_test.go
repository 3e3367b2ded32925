//go:build race

package weirhttp_test

// raceEnabled says that the race detector, which allocates, is on.
const raceEnabled = true
