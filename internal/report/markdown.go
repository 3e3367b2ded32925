package report

import (
	"fmt"
	"strings"
	"time"
)

// Markdown returns the report as a page.
func (r *Report) Markdown() string {
	var w strings.Builder
	title := r.Store
	if r.Server != "" {
		title += " on " + r.Server
	}
	fmt.Fprintf(&w, "# Conformance of %s\n\n", escape(title))
	switch {
	case r.Result == Passed:
		w.WriteString("**Passed.**")
	case r.Result != Failed:
		w.WriteString("**Incomplete.** Not all checks ran.")
	case r.Failed == 0:
		w.WriteString("**Failed.** The test failed outside of its checks.")
	default:
		w.WriteString("**Failed.**")
	}
	fmt.Fprintf(&w, " Of %d checks: %d passed, %d skipped, %d failed, %d not run.\n\n",
		len(r.Checks), r.Passed, r.Skipped, r.Failed, r.NotRun)

	w.WriteString("| | |\n|---|---|\n")
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&w, "| %s | %s |\n", name, escape(text))
		}
	}
	yes := map[bool]string{true: "yes", false: "no"}
	row("Store", r.Store)
	row("Client", r.Client)
	row("Server", r.Server)
	row("Go type of the store", r.Type)
	row("Version of weir", r.Weir)
	row("Sends batches", yes[r.Batch])
	row("Keys can be listed (`Keys`)", yes[r.Settings.Keys])
	row("A second client exists (`Peer`)", yes[r.Settings.Peer])
	row("Scripts can be lost (`DropScripts`)", yes[r.Settings.DropScripts])
	row("Random checks", map[bool]string{true: "brief", false: "full"}[r.Settings.Brief])
	if r.Settings.Seed != 0 {
		row("Seed", fmt.Sprint(r.Settings.Seed))
	}
	row("Start", r.Started.UTC().Format(time.RFC3339))
	row("Duration", fmt.Sprintf("%.1f s", float64(r.Millis)/1000))

	r.table(&w, Failed, "Failed", "Promise that the check tests, and seed", func(c Check) string {
		if c.Seed == 0 {
			return c.Promise
		}
		return fmt.Sprintf("%s (seed %d)", c.Promise, c.Seed)
	})
	r.table(&w, NotRun, "Not run", "", nil)
	r.table(&w, Skipped, "Skipped", "Reason", func(c Check) string { return c.Reason })
	r.table(&w, Passed, "Passed", "Duration", func(c Check) string { return fmt.Sprintf("%d ms", c.Millis) })
	return w.String()
}

// table writes the checks with a result, if there are any. If of is not nil, it returns the
// text of a second column.
func (r *Report) table(w *strings.Builder, result, title, column string, of func(Check) string) {
	head := fmt.Sprintf("\n## %s\n\n| Check | %s |\n|---|---|\n", title, column)
	if of == nil {
		head = fmt.Sprintf("\n## %s\n\n| Check |\n|---|\n", title)
	}
	for _, c := range r.Checks {
		if c.Result != result {
			continue
		}
		w.WriteString(head + "| " + escape(c.Name) + " |")
		if head = ""; of != nil {
			w.WriteString(" " + escape(of(c)) + " |")
		}
		w.WriteByte('\n')
	}
}

// escaper makes a text that somebody else wrote one cell of a table, without markup.
var escaper = strings.NewReplacer("\\", `\\`, "|", `\|`, "<", "&lt;", "&", "&amp;", "*", `\*`, "_", `\_`, "[", `\[`, "`", "\\`", "\r", "", "\n", " ")

func escape(text string) string { return escaper.Replace(text) }
