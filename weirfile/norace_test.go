//go:build !race

package weirfile

const raceEnabled = false
