package main

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/weir-go/weir/internal/weirtest"
)

// The marks around the part of README.md that is written.
const (
	begin = "<!-- bench/run writes this part from bench/results.txt. -->\n"
	end   = "<!-- end -->\n"
)

//go:embed page.tmpl
var source string

var templates = template.Must(template.New("").Parse(source))

// write returns the files, by their paths from root: the page, README.md, and the results without
// what the page does not show. The results are read from the files results and many, which has
// what the command large measured.
func write(root, results, many string) (map[string]string, error) {
	m := &measured{map[string]string{}, map[string][]float64{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	largeResults, err := m.add(many)
	if err != nil {
		return nil, err
	}
	others, err := m.add(results) // whose configuration the page shows
	if err != nil {
		return nil, err
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return nil, err
	}
	var page, part strings.Builder
	if err := errors.Join(templates.ExecuteTemplate(&page, "page", m), templates.ExecuteTemplate(&part, "readme", m)); err != nil {
		return nil, err
	}
	files := map[string]string{"docs/performance.md": page.String()}
	var errs [3]error
	files["README.md"], errs[0] = weirtest.ReplacePart(string(readme), begin, end, part.String())
	files["bench/results.txt"], errs[1] = m.text(others)
	files["bench/large.txt"], errs[2] = m.text(largeResults)
	return files, errors.Join(errs[:]...)
}

// names are what tables call limiters, by their names in the results.
var names = map[string]string{
	"xtimerate-syncmap": "x/time/rate", "sethvargo-memorystore": "go-limiter", "throttled": "throttled", "ulule": "ulule", "httprate": "httprate",
	"redis_rate": "redis_rate", "redisstore": "go-redisstore", "rueidislimiter": "rueidislimiter",
}

// A duel is weir's algorithm that is most like a peer, and the peer. For a GCRA and a token bucket,
// that is the one that README.md recommends.
type duel struct{ where, benchmark, weir, peer string }

// A column is a figure that is compared. In the query, BENCHMARK and IMPL stand for those of a duel.
type column struct{ what, query string }

// A comparison is a table of ratios.
type comparison struct {
	duels   []duel
	columns []column
}

var comparisons = map[string]comparison{
	"memory": {
		[]duel{
			{"in memory", "", "weir-bucket", "xtimerate-syncmap"},
			{"in memory", "", "weir-bucket", "sethvargo-memorystore"},
			{"in memory", "", "weir-bucket", "throttled"},
			{"in memory", "", "weir-window", "ulule"},
			{"in memory", "", "weir-counter", "httprate"},
		},
		[]column{
			{"time, one key", "Memory/impl=IMPL/keys=1 ns"},
			{"time, 1,000 keys", "Memory/impl=IMPL/keys=1000 ns"},
			{"time, 100,000 keys", "Memory/impl=IMPL/keys=100000 ns"},
			{"time, 1,000 keys, parallel", "MemoryParallel/impl=IMPL/keys=1000 ns"},
		},
	},
	"server": {
		[]duel{
			{"over go-redis", "Redis", "weir-bucket", "redis_rate"},
			{"over go-redis", "Redis", "weir-bucket", "throttled"},
			{"over go-redis", "Redis", "weir-window", "ulule"},
			{"over rueidis", "Rueidis", "weir-window", "rueidislimiter"},
			{"over redigo", "Redigo", "weir-bucket", "redisstore"},
		},
		[]column{
			{"time, one caller", "BENCHMARK/impl=IMPL/callers=1 ns"},
			{"time, 32 callers", "BENCHMARK/impl=IMPL/callers=32 ns"},
			{"allocations", "BENCHMARK/impl=IMPL/callers=1 allocs"},
			{"CPU time of the server", "BENCHMARK/impl=IMPL/callers=32 cpu"},
			{"bytes on the wire", "BENCHMARK/impl=IMPL/callers=1 wire"},
			{"memory of the server", "PeerBytes/impl=IMPL bytes/key"},
		},
	},
}

// queries returns the queries of weir and of the peer.
func (c column) queries(d duel) (weir, peer string) {
	of := func(impl string) string {
		if impl != d.peer && strings.HasPrefix(c.query, "PeerBytes") {
			impl = "weir-bucket"
		}
		return strings.NewReplacer("BENCHMARK", d.benchmark, "IMPL", impl).Replace(c.query)
	}
	return of(d.weir), of(d.peer)
}

// A compared is a row of a table with the columns what, weir, peer, ratio.
type compared struct {
	what       string
	duel       duel
	weir, peer string
	ratio      stat
}

func (c compared) String() string {
	return fmt.Sprintf("| %s: %s | %s | %s, %s | %s |", c.duel.where, c.what, c.weir, names[c.duel.peer], c.peer, c.ratio)
}

// Compared returns what was measured of all comparisons, worst for weir first.
func (m *measured) Compared() []compared {
	var all []compared
	for _, table := range slices.Sorted(maps.Keys(comparisons)) {
		for _, d := range comparisons[table].duels {
			for _, col := range comparisons[table].columns {
				weir, peer := col.queries(d)
				if ratio, ok := m.ratio(weir, peer); ok {
					all = append(all, compared{col.what, d, m.withUnit(weir), m.withUnit(peer), ratio})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b compared) int { return -cmp.Compare(a.ratio.Center, b.ratio.Center) })
	return all
}

// withUnit returns the median of a query with its unit.
func (m *measured) withUnit(query string) string {
	name, unit, _ := strings.Cut(query, " ")
	s, _ := m.stat(query)
	if unit == "ns" && s.Center >= 10_000 {
		return m.withUnit(name + " µs")
	}
	return number(s.Center) + units[unit].text
}

// Worse returns the comparisons in which weir is worse: the whole interval is above 1, also as a
// table shows it.
func (m *measured) Worse() []compared {
	return slices.DeleteFunc(m.Compared(), func(c compared) bool { return math.Round(100*c.ratio.Lo) <= 100 })
}

// Shown returns the comparisons of README.md: weir's worst, and two more.
func (m *measured) Shown() []compared {
	var shown []compared
	for i, c := range m.Compared() {
		ordinary := c.duel.peer == "redis_rate" && c.what == "CPU time of the server" || c.duel.peer == "xtimerate-syncmap" && c.what == "time, 1,000 keys"
		if i == 0 || ordinary {
			shown = append(shown, c)
		}
	}
	return shown
}

// Ratios returns a table of ratios: a row for each peer, and a column for each figure.
func (m *measured) Ratios(table string) string {
	c := comparisons[table]
	head, line := "| In memory |", "|---|"
	if table != "memory" {
		head = "| On a server |"
	}
	for _, col := range c.columns {
		head, line = head+" "+col.what+" |", line+"---|"
	}
	rows := []string{head, line}
	for _, d := range c.duels {
		row := "| " + names[d.peer]
		if client, ok := strings.CutPrefix(d.where, "over "); ok {
			row += ", " + client
		}
		for _, col := range c.columns {
			row += " | " + m.Ratio(col.queries(d))
		}
		rows = append(rows, row+" |")
	}
	return strings.Join(rows, "\n")
}

// Ratio returns the ratio of two queries, or a dash.
func (m *measured) Ratio(a, b string) string {
	if s, ok := m.ratio(a, b); ok {
		return s.String()
	}
	return "–"
}

// N returns the median of a query, or a dash.
func (m *measured) N(query string) string {
	if s, ok := m.stat(query); ok {
		return number(s.Center)
	}
	return "–"
}

// Rows returns a row of a table for each of the names, such as "weir-gcra=GCRA|weir-four=four
// rules". In the queries of the columns, a star stands for the name. "-" is a column without a
// value.
func (m *measured) Rows(names string, columns ...string) string {
	var rows []string
	for name := range strings.SplitSeq(names, "|") {
		name, text, _ := strings.Cut(name, "=")
		row := "| " + text + " |"
		for _, column := range columns {
			cell := "–"
			if column != "-" {
				cell = m.N(strings.ReplaceAll(column, "*", name))
			}
			row += " " + cell + " |"
		}
		rows = append(rows, row)
	}
	return strings.Join(rows, "\n")
}

// Config returns a setting of the run, such as the version of Go.
func (m *measured) Config(name string) string { return m.config[name] }

// Rounds returns how many rounds the benchmark with the most rounds has.
func (m *measured) Rounds() (most int) {
	for _, values := range m.series {
		most = max(most, len(values))
	}
	return most
}

// Missing returns the benchmarks that were not measured.
func (m *measured) Missing() string {
	return strings.Join(slices.Sorted(maps.Keys(m.missing)), ", ")
}

// A Sizing is what the example of a deployment needs: each decision with 4 rules, for 20,000 per
// second and 2,000,000 callers.
type Sizing struct {
	Network, Each, Cores, Megabytes string
	Shards                          int
}

// Sizing sizes the example from the measured figures.
func (m *measured) Sizing() Sizing {
	network, _ := summarize(both(m.values("Redis/impl=weir-gcra/callers=32 cpu"), m.values("Server/impl=weir-gcra cpu"), func(a, b float64) float64 { return a - b }))
	script, _ := m.stat("Rules/impl=rules-4 cpu")
	bytes, _ := m.stat("Bytes/state=gcra bytes/key")
	each := rounded(rounded(script.Center) + rounded(network.Center)) // the reader adds what is printed
	cores := each * 20_000 / 1e6
	return Sizing{number(network.Center), number(each), number(cores), number(2_000_000 * 4 * bytes.Center / 1e6), max(1, int(math.Ceil(2*cores)))}
}
