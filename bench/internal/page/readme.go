package page

import "fmt"

// readme returns the part of README.md: what is worse than a peer first.
func (r *Results) readme() string {
	w := &writer{Results: r}
	w.p("\n%s", w.machine())
	all := r.compare()
	var worst []string
	worse, seen := 0, map[string]bool{}
	for _, c := range all { // the worst first
		if !c.worse() {
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
	w.table("| In memory: time | one key | 1,000 keys | 100,000 keys |", r.localRows())
	head := "| On a server |"
	for _, f := range figures {
		head += " " + f.what + " |"
	}
	w.table(head+" memory of the server |", r.remoteRows())
	w.p("[Performance](docs/performance.md) also helps to size a deployment, and says what the peers do differently.")
	ns := func(what string) string {
		s, _ := r.stat("Around/what="+what, "ns/op")
		return number(s.median)
	}
	if _, ok := r.stat("Around/what=denycache", "ns/op"); ok {
		w.p("A remembered denial of a `DenyCache` takes %s ns. During an outage, an answer of `OnOutage` takes %s ns, and %s ns with a local\nshare.",
			ns("denycache"), ns("failopen"), ns("faillocal"))
	}
	return w.String()
}

// localRows returns a row for each peer in memory.
func (r *Results) localRows() []string {
	var rows []string
	for _, l := range likes {
		row, any := "| "+implName(l.peer)+" |", false
		for _, keys := range keyCounts {
			name := func(impl string) series { return series{fmt.Sprintf("Memory/impl=%s/keys=%d", impl, keys), "ns/op"} }
			row += r.ratioCell(name(l.weir), name(l.peer), &any)
		}
		if any {
			rows = append(rows, row)
		}
	}
	return rows
}

// remoteRows returns a row for each peer on a server.
func (r *Results) remoteRows() []string {
	var rows []string
	for _, c := range clients {
		for _, l := range c.likes {
			row, any := fmt.Sprintf("| %s, %s |", implName(l.peer), c.name), false
			for _, f := range figures {
				name := func(impl string) series {
					return series{fmt.Sprintf("%s/impl=%s/callers=%d", c.benchmark, impl, f.callers), f.unit}
				}
				row += r.ratioCell(name(l.weir), name(l.peer), &any)
			}
			row += r.ratioCell(series{"PeerBytes/impl=weir-gcra", "bytes/key"}, series{"PeerBytes/impl=" + l.peer, "bytes/key"}, &any)
			if any {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// ratioCell returns a cell with a ratio, or with a dash. It sets any if there is a ratio.
func (r *Results) ratioCell(a, b series, any *bool) string {
	ratio, ok := r.ratio(a, b)
	if !ok {
		return " – |"
	}
	*any = true
	return " " + number(ratio.median) + " |"
}
