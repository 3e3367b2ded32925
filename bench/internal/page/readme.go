package page

import "strings"

// readme returns the part of README.md: what is worse than a peer first.
func (r *Results) readme() string {
	w := &writer{Results: r}
	w.p("\n%s", w.machine())
	all := r.compare()
	var worst []string
	worse, seen := 0, map[string]bool{}
	for _, c := range all { // the worst first
		if !c.ratio.worse() {
			continue
		}
		worse++
		if peer := impl(c.peer.name); !seen[peer] {
			seen[peer] = true
			worst = append(worst, c.row())
		}
	}
	w.p("Weir is worse than a peer in %d of the %d comparisons of [Performance](docs/performance.md). These are the worst, one for each peer:", worse, len(all))
	w.table("| One decision | weir | peer | ratio |", worst)
	w.p("These are all ratios. Below 1, weir takes less than the peer:")
	w.table("| In memory: time | one key | 1,000 keys | 100,000 keys |", r.rows(true))
	head := "| On a server |"
	for _, f := range figures {
		head += " " + f.what + " |"
	}
	w.table(head+" memory of the server |", r.rows(false))
	w.p("[Performance](docs/performance.md) also helps to size a deployment, and says what the peers do differently.")
	ns := func(what string) string {
		s, _ := r.stat("Around/what="+what, "ns/op")
		return number(s.median)
	}
	if _, ok := r.stat("Around/what=denycache", "ns/op"); ok {
		w.p("A denial that package denycache remembers takes %s ns. During an outage, an answer of an `outage.Breaker` takes %s ns, and\n%s ns with a local share.",
			ns("denycache"), ns("failopen"), ns("faillocal"))
	}
	return w.String()
}

// rows returns rows of ratios to the peers in memory, or to those on a server. A dash stands
// for a ratio that is missing. A peer without ratios has no row.
func (r *Results) rows(memory bool) []string {
	var peers []string
	rows, measured := map[string]string{}, map[string]bool{}
	for _, c := range comparisons() {
		if c.row == "" || strings.HasPrefix(c.what, "in memory") != memory {
			continue
		}
		if rows[c.row] == "" {
			peers = append(peers, c.row)
			rows[c.row] = "| " + c.row + " |"
		}
		cell := "–"
		if ratio, ok := r.ratio(c.weir, c.peer); ok {
			cell, measured[c.row] = number(ratio.median), true
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
