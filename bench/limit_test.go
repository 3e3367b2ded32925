package bench

import (
	"math/rand/v2"
	"strconv"
	"time"
)

// The limit of every limiter here: one per second after a burst of a billion. All
// requests are allowed, as most are in a service that works, and the state of
// every key stays alive: under a faster rate it would expire between two
// requests, or while other keys are made known, and some keys would be new again.
const (
	perSecond = 1
	burst     = 1_000_000_000
)

// burstOf returns the burst of a limiter that refills a token in each period. It takes as
// long to refill with any period, because some limiters count this time in an int64 of
// nanoseconds.
func burstOf(period time.Duration) int {
	return int(burst / (period / time.Second))
}

const key0 = 100_000 // so that the keys of all benchmarks are equally long

// someKeys returns n keys.
func someKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "user-" + strconv.Itoa(key0+i)
	}
	return keys
}

// A draws is a table of keys to ask for, drawn at random. Each is a string of its
// own, as in a server, where the key comes with the request: a limiter that has
// stored an equal one has to compare the bytes.
type draws []string

const drawn = 1 << 18

func drawKeys(n int) draws {
	random := rand.New(rand.NewPCG(1, 2)) // the same draws for every limiter
	d := make(draws, drawn)
	for i := range d {
		d[i] = "user-" + strconv.Itoa(key0+random.IntN(n))
	}
	return d
}

// at returns draw i, from the beginning again after the last.
func (d draws) at(i int) string { return d[i&(drawn-1)] }
