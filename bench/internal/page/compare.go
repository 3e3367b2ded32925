package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// peers are the other limiters, by their names in the results.
var peers = map[string]string{
	"xtimerate-syncmap":     "x/time/rate",
	"sethvargo-memorystore": "go-limiter",
	"throttled":             "throttled",
	"ulule":                 "ulule",
	"httprate":              "httprate",
	"redis_rate":            "redis_rate",
	"redisstore":            "go-redisstore",
	"redisstore-new":        "go-redisstore, `New`",
	"rueidislimiter":        "rueidislimiter",
}

// A comparison is a figure of weir and the same figure of a peer.
type comparison struct {
	what       string // of one decision
	row        string // of README.md; "" if it does not have the ratio
	weir, peer series
}

// implName returns how tables name an implementation.
func implName(impl string) string {
	if name, ok := peers[impl]; ok {
		return name
	}
	switch impl {
	case "floor":
		return "a script that does nothing"
	case "weir-gcra-clock":
		return "weir, GCRA, the caller's clock"
	case "weir-window-clock":
		return "weir, FixedWindow, the caller's clock"
	case "weir-four":
		return "weir, four rules"
	}
	return "weir, " + map[string]string{"weir-gcra": "GCRA", "weir-window": "FixedWindow", "weir-counter": "SlidingCounter"}[impl]
}

// implNames returns the names of implementations for a table.
func implNames(impls []string) []named {
	var all []named
	for _, impl := range impls {
		all = append(all, named{impl, implName(impl)})
	}
	return all
}

// A like is a peer, and weir's algorithm that is most like it.
type like struct{ peer, weir string }

// likes are the peers in memory.
var likes = []like{
	{"xtimerate-syncmap", "weir-gcra"},
	{"sethvargo-memorystore", "weir-gcra"},
	{"throttled", "weir-gcra"},
	{"ulule", "weir-window"},
	{"httprate", "weir-counter"},
}

// A client has a benchmark of its own.
type client struct {
	benchmark, name string
	impls           []string
	likes           []like
}

var clients = []client{
	{"Redis", "go-redis", []string{"weir-gcra", "weir-gcra-clock", "weir-window", "redis_rate", "throttled", "ulule", "floor"},
		[]like{{"redis_rate", "weir-gcra"}, {"throttled", "weir-gcra"}, {"ulule", "weir-window"}}},
	{"Rueidis", "rueidis", []string{"weir-gcra", "weir-window", "weir-window-clock", "rueidislimiter", "floor"},
		[]like{{"rueidislimiter", "weir-window"}}},
	{"Redigo", "redigo", []string{"weir-gcra", "weir-gcra-clock", "redisstore", "redisstore-new", "floor"},
		[]like{{"redisstore", "weir-gcra"}}},
}

// A figure is a unit of the results on a server that is compared.
type figure struct {
	what    string
	unit    string
	callers int
}

var figures = []figure{
	{"time, one caller", "ns/op", 1},
	{"time, 32 callers", "ns/op", 32},
	{"allocations", "allocs/op", 1},
	{"CPU time of the server", cpu, 32},
	{"bytes on the wire", "wire-B/op", 1},
}

// comparisons returns everything that is compared. A row of README.md has its ratios in this
// order.
func comparisons() []comparison {
	var all []comparison
	for _, keys := range keyCounts {
		for _, l := range likes {
			name := func(impl string) series { return series{fmt.Sprintf("Memory/impl=%s/keys=%d", impl, keys), "ns/op"} }
			all = append(all, comparison{fmt.Sprintf("in memory, %s: time", keysText(keys)), implName(l.peer), name(l.weir), name(l.peer)})
		}
	}
	for _, l := range likes {
		name := func(impl string) series { return series{"MemoryParallel/impl=" + impl + "/keys=1000", "ns/op"} }
		all = append(all, comparison{"in memory, 1,000 keys, parallel: time", "", name(l.weir), name(l.peer)})
	}
	for _, c := range clients {
		for _, l := range c.likes {
			row := implName(l.peer) + ", " + c.name
			for _, f := range figures {
				name := func(impl string) series {
					return series{fmt.Sprintf("%s/impl=%s/callers=%d", c.benchmark, impl, f.callers), f.unit}
				}
				all = append(all, comparison{"over " + c.name + ": " + f.what, row, name(l.weir), name(l.peer)})
			}
			all = append(all, comparison{"memory of the server for a caller", row, series{"PeerBytes/impl=weir-gcra", "bytes/key"}, series{"PeerBytes/impl=" + l.peer, "bytes/key"}})
		}
	}
	return all
}

var keyCounts = []int{1, 1000, 100_000}

func keysText(n int) string {
	if n == 1 {
		return "one key"
	}
	return number(float64(n)) + " keys"
}

// A compared is a comparison with its results.
type compared struct {
	comparison
	w, p, ratio stat
}

// compare returns the comparisons that were measured, those that are worst for weir first.
func (r *Results) compare() []compared {
	var all []compared
	for _, c := range comparisons() {
		w, okWeir := r.stat(c.weir.name, c.weir.unit)
		p, okPeer := r.stat(c.peer.name, c.peer.unit)
		ratio, ok := r.ratio(c.weir, c.peer)
		if okWeir && okPeer && ok {
			all = append(all, compared{c, w, p, ratio})
		}
	}
	slices.SortStableFunc(all, func(a, b compared) int { return -cmp.Compare(a.ratio.median, b.ratio.median) })
	return all
}

// worse reports whether weir is worse than the peer.
func (c compared) worse() bool { return c.ratio.worse() }

// worse reports whether a ratio to a peer is worse: the whole interval is above 1, also as
// a table shows it.
func (s stat) worse() bool { return hundredths(s.low) > 1 }

// hundredths returns x as tables show small numbers.
func hundredths(x float64) float64 { return math.Round(100*x) / 100 }

// row returns a line of a table with the columns what, weir, peer, ratio.
func (c compared) row() string {
	return fmt.Sprintf("| %s | %s | %s, %s | %s |", c.what, withUnit(c.w, c.weir.unit), implName(impl(c.peer.name)), withUnit(c.p, c.peer.unit), c.ratio)
}

func withUnit(s stat, unit string) string {
	switch {
	case unit == "ns/op" && s.median >= 10_000:
		return number(s.median/1000) + " µs"
	case unit == "ns/op":
		return number(s.median) + " ns"
	case unit == cpu:
		return number(s.median) + " µs"
	case unit == "wire-B/op", unit == "bytes/key":
		return number(s.median) + " bytes"
	}
	return number(s.median)
}

// impl returns the value of impl in a benchmark's name.
func impl(name string) string {
	_, rest, _ := strings.Cut(name, "impl=")
	value, _, _ := strings.Cut(rest, "/")
	return value
}
