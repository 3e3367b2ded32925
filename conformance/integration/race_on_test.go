//go:build race

package integration

// raceEnabled says that the race detector is on.
const raceEnabled = true
