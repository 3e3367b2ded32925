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
	"redisstore-new":        "go-redisstore, `New`",
	"rueidislimiter":        "rueidislimiter",
	"floor":                 "a script that does nothing",
}

// own are weir's algorithms, by their names in the results.
var own = map[string]string{
	"weir-gcra":         "weir, GCRA",
	"weir-gcra-clock":   "weir, GCRA, the caller's clock",
	"weir-window":       "weir, FixedWindow",
	"weir-window-clock": "weir, FixedWindow, the caller's clock",
	"weir-counter":      "weir, SlidingCounter",
	"weir-four":         "weir, four rules",
}

// A comparison is a figure of weir and the same figure of a peer.
type comparison struct {
	what       string // of one decision
	row        string // of compare.md; "" if it does not have the ratio
	weir, peer series
}

// implName returns how tables name an implementation.
func implName(impl string) string { return cmp.Or(others[impl], own[impl]) }

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

// comparisons returns everything that is compared. A row of compare.md has its ratios in this
// order.
func comparisons() []comparison {
	var all []comparison
	add := func(what, row, format, unit string, l like) { // format has a verb for the implementation
		all = append(all, comparison{what, row, series{fmt.Sprintf(format, l.weir), unit}, series{fmt.Sprintf(format, l.peer), unit}})
	}
	for _, keys := range keyCounts {
		for _, l := range likes {
			add("in memory, "+keys.text+": time", implName(l.peer), "Memory/impl=%s/keys="+keys.name, "ns/op", l)
		}
	}
	for _, l := range likes {
		add("in memory, 1,000 keys, parallel: time", "", "MemoryParallel/impl=%s/keys=1000", "ns/op", l)
	}
	for _, c := range clients {
		for _, l := range c.likes {
			row := implName(l.peer) + ", " + c.name
			for _, f := range figures {
				add("over "+c.name+": "+f.what, row, fmt.Sprintf("%s/impl=%%s/callers=%d", c.benchmark, f.callers), f.unit, l)
			}
			add("memory of the server for a caller", row, "PeerBytes/impl=%s", "bytes/key", like{l.peer, "weir-gcra"})
		}
	}
	return all
}

// keyCounts are how many keys a limiter in memory has.
var keyCounts = []named{{"1", "one key"}, {"1000", "1,000 keys"}, {"100000", "100,000 keys"}}

// A compared is a comparison with its results.
type compared struct {
	comparison
	w, p, ratio stat
}

// compare returns the comparisons that were measured, those that are worst for weir first.
func (r *Results) compare() []compared {
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

// worse reports whether weir is worse by its ratio to a peer: the whole interval is above 1, also as
// a table shows it.
func (s stat) worse() bool { return hundredths(s.low) > 1 }

// hundredths returns x as tables show small numbers.
func hundredths(x float64) float64 { return math.Round(100*x) / 100 }

// row returns a line of a table with the columns what, weir, peer, ratio.
func (c compared) row() string {
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

// A pair is a comparison in this run, and the ratio of the earlier run.
type pair struct {
	compared
	earlier stat
}

// pairs returns the comparisons that both runs have, in the order of compare.
func (w *writer) pairs() []pair {
	var all []pair
	for _, c := range w.compare() {
		if ratio, ok := w.earlier.ratio(c.weir, c.peer); ok {
			all = append(all, pair{c, ratio})
		}
	}
	return all
}

// overlap reports whether the intervals of both ratios overlap, as the table shows them.
func (p pair) overlap() bool {
	return hundredths(p.ratio.low) <= hundredths(p.earlier.high) && hundredths(p.earlier.low) <= hundredths(p.ratio.high)
}

// factor returns the larger median divided by the smaller median.
func (p pair) factor() float64 {
	return max(p.ratio.median, p.earlier.median) / min(p.ratio.median, p.earlier.median)
}

// A tally is how many of some comparisons have intervals that overlap.
type tally struct{ n, of int }

// again compares the ratios of this run with those of the earlier run.
func (w *writer) again() {
	all := w.pairs()
	if len(all) == 0 {
		return
	}
	w.p("## Compared with an earlier run")
	w.p("%s", w.earlier.ranBefore(w.Results))
	var times, sizes tally
	both, one := 0, 0 // comparisons in which weir is worse
	most := all[0]
	var rows []string
	for _, p := range all {
		t := &sizes
		if p.weir.unit == "ns/op" || p.weir.unit == cpu {
			t = &times
		}
		t.of++
		earlier := p.earlier.String()
		if p.overlap() {
			t.n++
		} else {
			earlier = "**" + earlier + "**"
		}
		switch now, before := p.ratio.worse(), p.earlier.worse(); {
		case now && before:
			both++
		case now != before:
			one++
		}
		if p.factor() > most.factor() {
			most = p
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", p.what, implName(impl(p.peer.name)), p.ratio, earlier))
	}
	bold := ""
	if times.n < times.of || sizes.n < sizes.of {
		bold = "\nIn the others, the earlier ratio is bold."
	}
	w.p(`The 95 %% confidence intervals overlap in %d of %d comparisons of times, and in %d of %d comparisons
of bytes and allocations.%s
The medians differ by at most %.0f %%: %s in this run and %s in the earlier run
(%s, %s).
Weir is worse than the peer in both runs in %d comparisons, and in one run in %d comparisons.`,
		times.n, times.of, sizes.n, sizes.of, bold,
		100*(most.factor()-1), number(most.ratio.median), number(most.earlier.median), most.what, implName(impl(most.peer.name)), both, one)
	w.p(`An interval says how much the rounds of one run vary, and wide intervals overlap more easily. Two
runs can differ more than the rounds of one: the machine can be another one, even if it is of the
same kind, and weir can change between the runs.`)
	w.table("| One decision | peer | ratio in this run | ratio in the earlier run |", rows)
}

// ranBefore says where the run r was made. It names what differs from the run now.
func (r *Results) ranBefore(now *Results) string {
	machine, toolchain, servers := "a machine of the same kind", "the same version of Go", strings.Join(r.servers(), ",\nand ")
	if r.cores() != now.cores() {
		machine = r.cores()
	}
	if r.toolchain() != now.toolchain() {
		toolchain = r.toolchain()
	}
	if slices.Equal(r.servers(), now.servers()) {
		servers = "the same"
	}
	text := fmt.Sprintf("An earlier run of %d rounds was made on %s, with %s.\n", r.rounds(), machine, toolchain)
	switch len(r.servers()) {
	case 0:
		text += "There was no server."
	case 1:
		text += "The server was " + servers + "."
	default:
		text += "The servers were " + servers + "."
	}
	if load := r.config["load"]; load != "" {
		text += fmt.Sprintf("\n**The machine of the earlier run was busy, with a load average of %s.**", load)
	}
	return text
}
