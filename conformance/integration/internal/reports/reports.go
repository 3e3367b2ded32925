// Package reports makes the pages of docs/conformance, and a part of README.md, from the
// reports of runs of the suite.
package reports

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/marked"
	"github.com/weir-go/weir/internal/report"
)

// Dir has the pages. It is a path from the root of the repository.
const Dir = "docs/conformance"

// The marks around the part of README.md that [Insert] replaces.
const (
	begin = "<!-- make reports writes this part from docs/conformance. -->\n"
	end   = "<!-- end -->\n"
)

// Read reads the reports in dir, sorted by their file names. A run that did not pass is an
// error, and so is a directory without reports.
func Read(dir string) ([]*report.Report, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []*report.Report
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r := &report.Report{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if r.Result != report.Passed {
			return nil, fmt.Errorf("%s: the result of the run is %q: it must be %q", path, r.Result, report.Passed)
		}
		r.File = filepath.Base(path)
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no report", dir)
	}
	return all, nil
}

// Files returns the files of Dir, by their names.
func Files(all []*report.Report) map[string]string {
	files := map[string]string{"README.md": page(all)}
	for _, r := range all {
		r := timeless(r)
		files[r.File] = string(r.JSON())
		files[report.MarkdownName(r.File)] = r.Markdown()
	}
	return files
}

// timeless returns r without what differs in each run: times, and seeds that were random.
func timeless(r *report.Report) *report.Report {
	same := *r
	same.Started, same.Millis, same.Checks = time.Time{}, 0, slices.Clone(r.Checks)
	for i := range same.Checks {
		same.Checks[i].Millis, same.Checks[i].Seed = 0, 0
	}
	return &same
}

// page returns README.md of Dir.
func page(all []*report.Report) string {
	return `<!-- make reports writes this page. Do not edit it. -->

# Conformance

The conformance suite tests every store of this repository on every server, with the newest clients. This table shows the last run.
Each cell has the number of checks that passed, and in brackets the number of checks that were skipped. No check failed.

` + table("Store", stores(all), servers(all), func(store, server string) string {
		return cell(all, store, server, "[%d (%d)](%s)")
	}) + `
A dash means that the store cannot use the server. The stores for Redis do not work with PostgreSQL, and redigo does not know
Sentinel. Each cell links to its report, which has the versions, and a reason for each skipped check. Beside it is the same report
as JSON.

To make these reports again, run ` + "`make reports`" + `. It needs a Docker engine. These reports have no times and no seeds, because these
differ in each run. A change of a report is a change of what passes, or of a version.

[Testing](../reference/testing.md#a-report) says how to write a report about your own server, with times and seeds.
`
}

// Insert returns readme with a new part about the reports.
func Insert(readme string, all []*report.Report) (string, error) {
	return marked.Replace(readme, begin, end, `
The suite tests every store on every server. Each cell has the number of checks that passed, and in brackets the number of checks
that were skipped. No check failed. A dash means that the store cannot use the server. [Conformance](docs/conformance/README.md)
has the reports.

`+table("Server", servers(all), stores(all), func(server, store string) string {
		return cell(all, store, server, "%d (%d)")
	})+"\n")
}

// table returns a table. of returns a cell by its row and its column.
func table(corner string, rows, columns []string, of func(row, column string) string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "| %s | %s |\n|%s\n", corner, strings.Join(columns, " | "), strings.Repeat("---|", 1+len(columns)))
	for _, row := range rows {
		fmt.Fprintf(&w, "| %s |", row)
		for _, column := range columns {
			fmt.Fprintf(&w, " %s |", of(row, column))
		}
		w.WriteByte('\n')
	}
	return w.String()
}

// cell formats the number of checks that passed, the number that were skipped and, if format
// has a third verb, the name of the page. It returns a dash if there is no report.
func cell(all []*report.Report, store, server, format string) string {
	for _, r := range all {
		if r.Store == store && r.Server == server {
			args := []any{r.Passed, r.Skipped, report.MarkdownName(r.File)}
			return fmt.Sprintf(format, args[:strings.Count(format, "%")]...)
		}
	}
	return "–"
}

func stores(all []*report.Report) []string {
	return sorted(all, func(r *report.Report) string { return r.Store })
}

func servers(all []*report.Report) []string {
	return sorted(all, func(r *report.Report) string { return r.Server })
}

// sorted returns the texts of the reports, each once.
func sorted(all []*report.Report, text func(*report.Report) string) []string {
	texts := map[string]bool{}
	for _, r := range all {
		texts[text(r)] = true
	}
	return slices.Sorted(maps.Keys(texts))
}
