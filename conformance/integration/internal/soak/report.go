package soak

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Report has the counts of a run.
type Report struct {
	About   [][2]string // what is tested: names and values
	Seed    uint64
	Took    time.Duration
	Left    int // clients that left while others called
	Changes int // of limits
	Judged  int // answers that were compared with a ledger
	Paced   int // rates that were compared with the time
	Unpaced int // rates that were not, because the machine was too slow
	Retried int // denied callers who waited for RetryAfter
	Keys    int // TTLs that were looked at
	Broken  map[Promise]int
	Texts   []string // of the first violations of each promise
	Rests   []Rest
	Faults  []*FaultCount

	mu     sync.Mutex
	counts map[[3]string]int // calls by limit, verb and outcome: "allowed", "denied" or "unknown"
}

// A FaultCount has the counts of the faults of a name.
type FaultCount struct {
	Name        string
	Times       int
	Unconfirmed int64 // tokens that were granted after the last confirmed write
	Lost        int64 // tokens of these that the store does not count
}

// A Rest is a moment in which no client runs, and the keys are deleted.
type Rest struct {
	Heap       uint64 // bytes of this process, after a collection
	Goroutines int
	Server     int64 // bytes of used_memory, of the server with the most
}

// count counts a call.
func (r *Report) count(kind, verb, outcome string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[[3]string{kind, verb, outcome}]++
}

// add adds 1 to a count of r.
func (r *Report) add(count *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*count++
}

// fault returns the counts of the faults of that name.
func (r *Report) fault(name string) *FaultCount {
	for _, f := range r.Faults {
		if f.Name == name {
			return f
		}
	}
	f := &FaultCount{Name: name}
	r.Faults = append(r.Faults, f)
	return f
}

// Violations returns how often a promise was broken.
func (r *Report) Violations() int {
	n := 0
	for _, count := range r.Broken {
		n += count
	}
	return n
}

// Calls returns the number of calls of a verb, or of all verbs if verb is empty.
func (r *Report) Calls(verb string) int { return r.sum(verb, "allowed", "denied", "unknown") }

// Unknown returns the number of calls without a reply.
func (r *Report) Unknown() int { return r.sum("", "unknown") }

func (r *Report) sum(verb string, of ...string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, count := range r.counts {
		if (verb == "" || name[1] == verb) && slices.Contains(of, name[2]) {
			n += count
		}
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
	line("Calls", r.Calls(""))
	line("Answers compared with a ledger", r.Judged)
	line("Rates compared with the time between two denials", r.Paced)
	line("Denied callers who waited for `RetryAfter`", r.Retried)
	line("Clients replaced", r.Left)
	line("Changes of limits", r.Changes)
	line("TTLs looked at", r.Keys)
	var names []string
	var times, lost, unconfirmed int64
	for _, f := range r.Faults {
		names = append(names, f.Name)
		times, lost, unconfirmed = times+int64(f.Times), lost+f.Lost, unconfirmed+f.Unconfirmed
	}
	slices.Sort(names)
	line("Faults", fmt.Sprintf("%d: %s", times, strings.Join(names, "; ")))
	line("Tokens lost, of the unconfirmed", fmt.Sprintf("%d of %d", lost, unconfirmed))
	for i, rest := range r.Rests {
		if when := map[int]string{0: "first", len(r.Rests) - 1: "last"}[i]; when != "" {
			line("At the "+when+" rest", fmt.Sprintf("%d goroutines, %.1f MB of heap, %.1f MB of `used_memory`", rest.Goroutines, float64(rest.Heap)/1e6, float64(rest.Server)/1e6))
		}
	}
	line("**Violations**", r.Violations())
	return b.String()
}

// Verbs returns the names of the calls that a soak makes.
func Verbs() []string {
	return []string{
		"Consume", "TakeUpTo", "Force", "Peek", "Reset", "DoMany", "DoMany of peeks", "Consume with ID", "TakeUpTo with ID", "a repeated ID",
		"Refund", "Settle", "Reserve", "Wait", "Consume with metadata", "Entries", "Renew", "Release",
	}
}
