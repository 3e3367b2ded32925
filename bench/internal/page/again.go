package page

import (
	"fmt"
	"slices"
	"strings"
)

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
	w.p(`The 95 %% confidence intervals overlap in %d of %d comparisons of times, and in %d of %d comparisons of bytes and allocations.%s
The medians differ by at most %.0f %%: %s in this run and %s in the earlier run (%s, %s).
Weir is worse than the peer in both runs in %d comparisons, and in one run in %d comparisons.`,
		times.n, times.of, sizes.n, sizes.of, bold,
		100*(most.factor()-1), number(most.ratio.median), number(most.earlier.median), most.what, implName(impl(most.peer.name)), both, one)
	w.p(`An interval says how much the rounds of one run vary, and wide intervals overlap more easily. Two runs can differ more than the rounds
of one: the machine can be another one, even if it is of the same kind, and weir can change between the runs.`)
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
