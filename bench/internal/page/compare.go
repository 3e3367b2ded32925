package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// others are the other limiters, and a script that does nothing, by their names in the results.
var others = map[string]string{
	"xtimerate-syncmap":     "x/time/rate",
	"sethvargo-memorystore": "go-limiter",
	"throttled":             "throttled",
	"ulule":                 "ulule",
	"httprate":              "httprate",
	"redis_rate":            "redis_rate",
	"redisstore":            "go-redisstore",
	"rueidislimiter":        "rueidislimiter",
	"floor":                 "a script that does nothing",
}

// own are weir's algorithms, by their names in the results.
var own = map[string]string{
	"weir-bucket":  "weir, TokenBucket",
	"weir-gcra":    "weir, GCRA",
	"weir-window":  "weir, FixedWindow",
	"weir-counter": "weir, SlidingCounter",
	"weir-four":    "weir, four rules",
}

// A comparison is a figure of weir and the same figure of a peer.
type comparison struct {
	what       string // of one decision
	row        string // of the tables of ratios
	weir, peer series
}

// implName returns how tables name an implementation.
func implName(impl string) string { return cmp.Or(others[impl], own[impl]) }

// A like is a peer, and weir's algorithm that is most like it. For a GCRA and a token bucket, that
// is the one that README.md recommends.
type like struct{ peer, weir string }

// likes are the peers in memory.
var likes = []like{
	{"xtimerate-syncmap", "weir-bucket"},
	{"sethvargo-memorystore", "weir-bucket"},
	{"throttled", "weir-bucket"},
	{"ulule", "weir-window"},
	{"httprate", "weir-counter"},
}

// A client has a benchmark of its own.
type client struct {
	benchmark, name string
	likes           []like
}

var clients = []client{
	{"Redis", "go-redis", []like{{"redis_rate", "weir-bucket"}, {"throttled", "weir-bucket"}, {"ulule", "weir-window"}}},
	{"Rueidis", "rueidis", []like{{"rueidislimiter", "weir-window"}}},
	{"Redigo", "redigo", []like{{"redisstore", "weir-bucket"}}},
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

// comparisons returns everything that is compared. The ratios of a row have this order.
func comparisons() []comparison {
	var all []comparison
	add := func(what, row, format, unit string, l like) { // format has a verb for the implementation
		all = append(all, comparison{what, row, series{fmt.Sprintf(format, l.weir), unit}, series{fmt.Sprintf(format, l.peer), unit}})
	}
	for _, keys := range []struct{ name, text string }{{"1", "one key"}, {"1000", "1,000 keys"}, {"100000", "100,000 keys"}} {
		for _, l := range likes {
			add("in memory, "+keys.text+": time", implName(l.peer), "Memory/impl=%s/keys="+keys.name, "ns/op", l)
		}
	}
	for _, l := range likes {
		add("in memory, 1,000 keys, parallel: time", implName(l.peer), "MemoryParallel/impl=%s/keys=1000", "ns/op", l)
	}
	for _, c := range clients {
		for _, l := range c.likes {
			row := implName(l.peer) + ", " + c.name
			for _, f := range figures {
				add("over "+c.name+": "+f.what, row, fmt.Sprintf("%s/impl=%%s/callers=%d", c.benchmark, f.callers), f.unit, l)
			}
			add("memory of the server for a caller", row, "PeerBytes/impl=%s", "bytes/key", like{l.peer, "weir-bucket"})
		}
	}
	return all
}

// A compared is a comparison with its results.
type compared struct {
	comparison
	w, p, ratio stat
}

// Compared returns the comparisons that were measured, those that are worst for weir first.
func (r *Results) Compared() []compared {
	var all []compared
	for _, c := range comparisons() {
		if ratio, ok := r.ratio(c.weir, c.peer); ok {
			w, _ := r.stat(c.weir.name, c.weir.unit)
			p, _ := r.stat(c.peer.name, c.peer.unit)
			all = append(all, compared{c, w, p, ratio})
		}
	}
	slices.SortStableFunc(all, func(a, b compared) int { return -cmp.Compare(a.ratio.median, b.ratio.median) })
	return all
}

// Worse returns the comparisons in which weir is worse.
func (r *Results) Worse() []compared {
	return slices.DeleteFunc(r.Compared(), func(c compared) bool { return !c.ratio.worse() })
}

// Shown returns the comparisons of README.md: weir's worst, and two more.
func (r *Results) Shown() []compared {
	var shown []compared
	for i, c := range r.Compared() {
		switch peer := impl(c.peer.name); {
		case i == 0, c.what == "over go-redis: CPU time of the server" && peer == "redis_rate", c.what == "in memory, 1,000 keys: time" && peer == "xtimerate-syncmap":
			shown = append(shown, c)
		}
	}
	return shown
}

// Ratios returns a row for each peer, in memory or on a server, with up to n ratios, and their
// intervals if those are wanted. A dash stands for a ratio that is missing. A peer without ratios
// has no row.
func (r *Results) Ratios(where string, n int, intervals bool) string {
	var peers []string
	cells, measured := map[string][]string{}, map[string]bool{}
	for _, c := range comparisons() {
		if strings.HasPrefix(c.what, "in memory") != (where == "in memory") || len(cells[c.row]) == n {
			continue
		}
		if cells[c.row] == nil {
			peers = append(peers, c.row)
		}
		cell := "–"
		if ratio, ok := r.ratio(c.weir, c.peer); ok {
			cell, measured[c.row] = number(ratio.median), true
			if intervals {
				cell = ratio.String()
			}
		}
		cells[c.row] = append(cells[c.row], cell)
	}
	peers = slices.DeleteFunc(peers, func(peer string) bool { return !measured[peer] })
	for i, peer := range peers {
		peers[i] = "| " + peer + " | " + strings.Join(cells[peer], " | ") + " |"
	}
	return strings.Join(peers, "\n")
}

// worse reports whether weir is worse by its ratio to a peer: the whole interval is above 1, also as
// a table shows it.
func (s stat) worse() bool { return hundredths(s.low) > 1 }

// hundredths returns x as tables show small numbers.
func hundredths(x float64) float64 { return math.Round(100*x) / 100 }

// String returns a line of a table with the columns what, weir, peer, ratio.
func (c compared) String() string {
	return fmt.Sprintf("| %s | %s | %s, %s | %s |", c.what, withUnit(c.w, c.weir.unit), implName(impl(c.peer.name)), withUnit(c.p, c.peer.unit), c.ratio)
}

func withUnit(s stat, unit string) string {
	if unit == "ns/op" && s.median >= 10_000 {
		return number(s.median/1000) + " µs"
	}
	return number(s.median) + map[string]string{"ns/op": " ns", cpu: " µs", "wire-B/op": " bytes", "bytes/key": " bytes"}[unit]
}

// impl returns the value of impl in a benchmark's name.
func impl(name string) string {
	_, rest, _ := strings.Cut(name, "impl=")
	value, _, _ := strings.Cut(rest, "/")
	return value
}

// Before returns the ratio of the earlier run, or a dash.
func (w *writer) Before(c compared) string {
	if before, ok := w.earlier.ratio(c.weir, c.peer); ok {
		return before.String()
	}
	return "–"
}

// Again returns how far the ratios of the earlier run differ, or "" if there is nothing to compare.
func (w *writer) Again() string {
	all, overlap, factor := 0, 0, 0.0
	var most compared
	for _, c := range w.Compared() {
		before, ok := w.earlier.ratio(c.weir, c.peer)
		if !ok {
			continue
		}
		all++
		if hundredths(c.ratio.low) <= hundredths(before.high) && hundredths(before.low) <= hundredths(c.ratio.high) {
			overlap++
		}
		if f := max(c.ratio.median/before.median, before.median/c.ratio.median); f > factor {
			factor, most = f, c
		}
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("%s\nTwo runs can differ more than the rounds of one.\nThe intervals of both overlap in %d of %d comparisons, and the ratios differ by at most %.0f %%\n(%s, %s).",
		w.earlier.ranBefore(w.Results), overlap, all, 100*(factor-1), most.what, implName(impl(most.peer.name)))
}

// ranBefore returns where the run r was made, if that differs from the run now.
func (r *Results) ranBefore(now *Results) string {
	var other []string
	for _, of := range []func(r *Results) string{(*Results).Cores, (*Results).toolchain, (*Results).servers} {
		if of(r) != of(now) {
			other = append(other, of(r))
		}
	}
	if load := r.config["load"]; load != "" {
		other = append(other, "a load average of "+load)
	}
	if len(other) == 0 {
		return fmt.Sprintf("An earlier run of %d rounds had the same kind of machine, Go and servers.", r.rounds())
	}
	return fmt.Sprintf("Unlike this run, an earlier run of %d rounds had %s.", r.rounds(), strings.Join(other, ", "))
}
