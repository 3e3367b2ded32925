//go:build race

package weirtest

// Race says that the race detector, which allocates, is on.
const Race = true
