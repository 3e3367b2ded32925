package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// These are counted, and are rows of the report, in this order.
const (
	Calls   = "Calls"
	Judged  = "Answers compared with a ledger"
	Paced   = "Rates compared with the time between two denials"
	Retried = "Denied callers who waited for `RetryAfter`"
	Left    = "Clients replaced"
	Changes = "Changes of limits"
	Keys    = "TTLs looked at"
)

// These are counted too. The last three begin the name of what is counted.
const (
	Unknown = "calls without a reply"
	unpaced = "rates that were not compared with the time, because the machine was too slow"
	verbs   = "verb "
	limits  = "limit "
	faulted = "fault "
)

// A Report has the counts of a run.
type Report struct {
	About  [][2]string // what is tested: names and values
	Seed   uint64
	Took   time.Duration
	Broken map[Promise]int
	Texts  []string // of the first violations of each promise
	Rests  []Rest

	mu     sync.Mutex
	counts map[string]int
}

// A Rest is a moment in which no client runs, and the keys are deleted.
type Rest struct {
	Heap       uint64 // bytes of this process, after a collection
	Goroutines int
	Server     int64 // bytes of used_memory, of the server with the most
}

// Add adds 1 to a count.
func (r *Report) Add(what ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range what {
		r.counts[what]++
	}
}

// Count returns how often something was added.
func (r *Report) Count(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[what]
}

// Faults returns the names of the faults that happened, and how many there were.
func (r *Report) Faults() (names []string, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		if name, ok := strings.CutPrefix(what, faulted); ok {
			names, times = append(names, name), times+r.counts[what]
		}
	}
	return names, times
}

// Violations returns how often a promise was broken.
func (r *Report) Violations() int {
	n := 0
	for _, count := range r.Broken {
		n += count
	}
	return n
}

// Markdown returns the report as a table.
func (r *Report) Markdown() string {
	var b strings.Builder
	line := func(what string, value any) { fmt.Fprintf(&b, "| %s | %v |\n", what, value) }
	b.WriteString("| | |\n|---|---|\n")
	for _, about := range r.About {
		line(about[0], about[1])
	}
	line("Seed", r.Seed)
	line("Time", r.Took.Round(time.Second))
	for _, what := range []string{Calls, Judged, Paced, Retried, Left, Changes, Keys} {
		line(what, r.Count(what))
	}
	names, times := r.Faults()
	line("Faults", fmt.Sprintf("%d: %s", times, strings.Join(names, "; ")))
	for i, rest := range r.Rests {
		if when := map[int]string{0: "first", len(r.Rests) - 1: "last"}[i]; when != "" {
			line("At the "+when+" rest", fmt.Sprintf("%d goroutines, %.1f MB of heap, %.1f MB of `used_memory`", rest.Goroutines, float64(rest.Heap)/1e6, float64(rest.Server)/1e6))
		}
	}
	line("**Violations**", r.Violations())
	return b.String()
}

// Missing returns the verbs that no call had.
func (r *Report) Missing() []string {
	return slices.DeleteFunc([]string{
		"Consume", "TakeUpTo", "Force", "Peek", "Reset", "DoMany", "DoMany of peeks", "Consume with ID", "TakeUpTo with ID", "a repeated ID",
		"Refund", "Settle", "Reserve", "Wait", "Consume with metadata", "Entries", "Renew", "Release",
	}, func(verb string) bool { return r.Count(verbs+verb) > 0 })
}
