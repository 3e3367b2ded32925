// Package reports makes docs/conformance from the reports of runs of the suite.
package reports

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/report"
)

// The files that the reports give, as paths from the root of the repository.
const (
	Data = "docs/conformance/reports.json"
	Page = "docs/conformance/README.md"
)

// Reports are the reports of runs that passed, without what differs in each run: times, and
// seeds that were random.
type Reports struct {
	Checks []string `json:"checks"` // the names of all checks, in the order of the suite
	Runs   []Run    `json:"runs"`   // sorted by their names
}

// A Run is the report of a run. Its checks are those that were skipped: the others passed.
type Run struct {
	Name string `json:"name"` // of the file, without .json
	*report.Report
}

// Collect collects the reports in dir. A run that did not pass is an error, and so are runs
// of different checks and a directory without reports.
func Collect(dir string) (*Reports, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	all := &Reports{}
	for _, path := range paths { // sorted
		r, err := decode[report.Report](path)
		if err != nil {
			return nil, err
		}
		if r.Result != report.Passed {
			return nil, fmt.Errorf("%s: the result of the run is %q: it must be %q", path, r.Result, report.Passed)
		}
		var names []string
		var skipped []report.Check
		for _, c := range r.Checks {
			names = append(names, c.Name)
			if c.Result == report.Skipped {
				c.Millis, c.Seed = 0, 0
				skipped = append(skipped, c)
			}
		}
		if all.Checks == nil {
			all.Checks = names
		}
		if !slices.Equal(names, all.Checks) {
			return nil, fmt.Errorf("%s: the checks are not those of %s", path, paths[0])
		}
		r.Started, r.Millis, r.Checks = time.Time{}, 0, skipped
		all.Runs = append(all.Runs, Run{strings.TrimSuffix(filepath.Base(path), ".json"), r})
	}
	if len(all.Runs) == 0 {
		return nil, fmt.Errorf("%s has no report", dir)
	}
	return all, nil
}

// Read reads the file Data. root is the root of the repository.
func Read(root string) (*Reports, error) { return decode[Reports](filepath.Join(root, Data)) }

// decode reads a file of JSON.
func decode[T any](path string) (*T, error) {
	v := new(T)
	text, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return v, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// Write replaces the files, or none if the reports in dir are not complete.
func Write(root, dir string) error {
	all, err := Collect(dir)
	if err != nil {
		return err
	}
	for name, text := range all.Files() {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return err
}

// Files returns the files by their paths from the root of the repository.
func (all *Reports) Files() map[string]string {
	return map[string]string{Page: all.page(), Data: all.data()}
}

// data returns the file Data.
func (all *Reports) data() string {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	if err := e.Encode(all); err != nil {
		panic(err) // no value is one that JSON lacks
	}
	return text.String()
}

// page returns the file Page.
func (all *Reports) page() string {
	clients, skips := map[string][]string{}, map[string][]string{} // by the start of a row
	for _, r := range all.Runs {
		add(clients, r.Client, r.Store)
		for _, c := range r.Checks {
			add(skips, r.Store, c.Name, c.Reason)
		}
	}
	return fmt.Sprintf(`<!-- make reports writes this page. Do not edit it. -->

# Conformance

This table shows the last run of the %d checks of the conformance suite, for each store on each
server. A cell has the number of checks that passed and, in brackets, of those that were skipped.
No check failed. These runs were brief, with short random histories and no faults. Other tests
have long histories and [faults](../../conformance/reports/faults.md). The stores over memory,
SQLite and NATS pass the suite in tests of their own.

%s
A dash means that the store cannot use the server: the stores for Redis do not work with PostgreSQL,
and redigo does not know Sentinel. These are the newest clients:

%[4]s
The stores skip these checks:

%[5]s
[reports.json](reports.json) has the same, the settings of each run, and the name of every check.
%[3]smake reports%[3]s writes both files again with Docker. Neither has times or seeds, so a file
changes only if a version changes, or what passes. [Testing](../reference/testing.md#a-report) says
how to write a report about your own server, with the duration and the seed of each check.
`, len(all.Checks), all.counts(), "`", table("Store | Client", clients), table("Check | Reason | Stores", skips))
}

// counts returns the table of the checks that passed and of those that were skipped.
func (all *Reports) counts() string {
	cells, stores := map[[2]string]string{}, map[string]bool{} // cells by server and store
	for _, r := range all.Runs {
		cells[[2]string{r.Server, r.Store}] = fmt.Sprintf("%d (%d)", r.Passed, r.Skipped)
		stores[r.Store] = true
	}
	columns, rows := slices.Sorted(maps.Keys(stores)), map[string][]string{}
	for _, r := range all.Runs {
		var row []string
		for _, store := range columns {
			row = append(row, cmp.Or(cells[[2]string{r.Server, store}], "–"))
		}
		rows[r.Server] = []string{strings.Join(row, " | ")}
	}
	return table("Server | "+strings.Join(columns, " | "), rows)
}

// add adds a text to the row that starts with cells, unless it has the text.
func add(rows map[string][]string, text string, cells ...string) {
	start := strings.Join(cells, " | ")
	if !slices.Contains(rows[start], text) {
		rows[start] = append(rows[start], text)
	}
}

// table returns a table: the rows, sorted by their starts, each with its texts in the last
// cell.
func table(head string, rows map[string][]string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "| %s |\n|%s\n", head, strings.Repeat("---|", 1+strings.Count(head, " | ")))
	for _, start := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&w, "| %s | %s |\n", start, strings.Join(rows[start], "; "))
	}
	return w.String()
}
