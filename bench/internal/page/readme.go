package page

import "strings"

// shown are the comparisons of README.md, besides weir's worst.
var shown = []struct{ what, peer string }{
	{"over go-redis: CPU time of the server", "redis_rate"},
	{"in memory, 1,000 keys: time", "x/time/rate"},
}

// readme returns the part of README.md, the worst comparison first.
func (r *Results) readme() string {
	w := &writer{Results: r}
	all := r.compare()
	worse := 0
	var rows []string
	for i, c := range all { // the worst first
		if c.ratio.worse() {
			worse++
		}
		is := i == 0
		for _, s := range shown {
			is = is || c.what == s.what && implName(impl(c.peer.name)) == s.peer
		}
		if is {
			rows = append(rows, c.row())
		}
	}
	w.p("\nBelow 1, weir takes less than the peer. Measured on %s:", r.cores())
	w.table("| One decision | weir | peer | ratio |", rows)
	w.p("[Performance](docs/performance.md) has all %d comparisons. Weir is worse than a peer in %d.\n[Compared with other limiters](docs/compare.md) says what only weir has, and what it lacks.", len(all), worse)
	return w.String()
}

// ratios returns the part of compare.md.
func (r *Results) ratios() string {
	w := &writer{Results: r}
	w.p("\nRatios: below 1, weir takes less than the other library. Measured on %s.", r.cores())
	median := func(s stat) string { return number(s.median) }
	w.table("| In memory: time | one key | 1,000 keys | 100,000 keys |",
		r.rows(func(c comparison) bool { return c.inMemory() && !strings.Contains(c.what, "parallel") }, median))
	w.table(serverHead(), r.rows(comparison.onServer, median))
	return w.String()
}

// serverHead returns the head of a table of ratios on a server.
func serverHead() string {
	head := "| On a server |"
	for _, f := range figures {
		head += " " + f.what + " |"
	}
	return head + " memory of the server |"
}

// rows returns rows of ratios, as text writes them. A dash stands for a ratio that is missing. A
// peer without ratios has no row.
func (r *Results) rows(of func(c comparison) bool, text func(s stat) string) []string {
	var peers []string
	rows, measured := map[string]string{}, map[string]bool{}
	for _, c := range comparisons() {
		if !of(c) {
			continue
		}
		if rows[c.row] == "" {
			peers = append(peers, c.row)
			rows[c.row] = "| " + c.row + " |"
		}
		cell := "–"
		if ratio, ok := r.ratio(c.weir, c.peer); ok {
			cell, measured[c.row] = text(ratio), true
		}
		rows[c.row] += " " + cell + " |"
	}
	var all []string
	for _, peer := range peers {
		if measured[peer] {
			all = append(all, rows[peer])
		}
	}
	return all
}
