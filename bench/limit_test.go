package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
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

// user returns key i of most benchmarks.
func user(i int) string { return "user:" + strconv.Itoa(key0+i) }

// A keyKind is what people use as keys.
type keyKind struct {
	name     string
	segments []string // before the last one
	key      func(i int) string
}

var keyKinds = []keyKind{
	{"user", nil, user},
	{"email", nil, func(i int) string { return fmt.Sprintf("ann.%d@example.com", i) }},
	{"ipv4", nil, func(i int) string { return fmt.Sprintf("192.0.2%02d.%d", i/100, 100+i%100) }},
	{"ipv6", nil, func(i int) string { return fmt.Sprintf("2001:db8:85a3::8a2e:%x", 0x1000+i) }},
	{"uuid", nil, func(i int) string { return fmt.Sprintf("c3b5a1d2-7f04-4e19-9b6a-%012x", i) }},
	{"path", nil, func(i int) string { return fmt.Sprintf("/v1/users/%d/orders", key0+i) }},
	{"60-bytes", nil, func(i int) string {
		return fmt.Sprintf("arn:aws:iam::123456789012:user/division/team/engineer-%06d", i)
	}},
	{"two-segments", []string{"acme"}, user},
	{"three-segments", []string{"acme", "login"}, user},
}

// plain returns a key of one segment that is as long, and has letters in place of other
// characters.
func (k keyKind) plain(i int) string {
	return strings.NewReplacer(":", "x", "/", "x", "@", "x").Replace(strings.Join(append(slices.Clone(k.segments), k.key(i)), ":"))
}

// someKeys returns n keys.
func someKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = user(i)
	}
	return keys
}

// A draws is a table of keys to ask for, drawn at random. Each is a string of its
// own, as in a server, where the key comes with the request: a limiter that has
// stored an equal one has to compare the bytes.
type draws []string

const drawn = 1 << 18

func drawKeys(n int) draws { return drawKeysOf(drawn, n, user) }

// drawKeysOf draws count of n keys. count is a power of two.
func drawKeysOf(count, n int, key func(int) string) draws {
	random := rand.New(rand.NewPCG(1, 2)) // the same draws for every limiter
	d := make(draws, count)
	for i := range d {
		d[i] = key(random.IntN(n))
	}
	return d
}

// at returns draw i, from the beginning again after the last.
func (d draws) at(i int) string { return d[i&(len(d)-1)] }
