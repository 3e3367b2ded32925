package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// questions are what a reader who chooses a library asks. README.md has a link to the
// first of a question's pages, each page to the next, and the last has the text.
var questions = []struct {
	question string
	pages    []string
	text     string
}{
	{"What is it?", nil, "Weir is a rate limiter for Go"},
	{"Can it limit by calendar month?", []string{"docs/reference/algorithms.md"}, "[Calendar](#calendar)"},
	{"Does it work on a Valkey Cluster?", []string{"docs/conformance/README.md"}, "Valkey 9.1.2, cluster"},
	{"What if Redis is away?", []string{"docs/guide/outage.md"}, "outage.Options"},
	{"Is it proven on my server?", []string{"docs/guide/operate.md"}, "weir conform"},
	{"How fast is it against redis_rate?", nil, "| redis_rate, "},
	{"How do I move from redis_rate?", []string{"docs/migrate/README.md", "docs/migrate/redis_rate.md"}, "| `PerMinute(n)` |"},
	{"Is it stable?", []string{"docs/versioning.md"}, "What a version promises"},
	{"How do I see who is limited?", []string{"docs/guide/operate.md"}, "weir list"},
	{"When should I not use it?", nil, "## When not to use weir"},
	{"Can I correct a cost when the work is done?", []string{"docs/guide/budget.md"}, "`Settle` refunds the difference"},
	{"Can one request cost more than another?", []string{"docs/guide/README.md", "docs/guide/api.md"}, "lim.AllowN(ctx, 5,"},
	{"Can it limit what runs at once?", []string{"docs/guide/README.md", "docs/guide/api.md"}, "algorithm.Concurrency{"},
	{"Can the limits be in a file?", []string{"docs/guide/README.md", "docs/guide/file.md"}, "weirfile.Load("},
	{"What becomes of used tokens if a limit changes?", []string{"docs/guide/production.md"}, "## What carries over"},
	{"Can two versions share a server during an upgrade?", []string{"docs/versioning.md"}, "## Stored values and scripts"},
	{"Which requests does an outage allow?", []string{"docs/guide/outage.md"}, "| `Closed`, the default |"},
	{"Does it run on 32-bit platforms?", []string{"docs/versioning.md"}, "32-bit"},
	{"How do I reset one caller?", []string{"docs/guide/operate.md"}, "weir reset "},
	{"Can it limit the tokens and the money of an LLM?", []string{"docs/guide/README.md", "docs/guide/llm.md"}, "weirhttp.Settle("},
	{"How do I limit the messages of a WebSocket?", []string{"docs/guide/README.md", "docs/guide/connections.md"}, "## Server-sent events"},
	{"Can it limit the jobs of River or asynq?", []string{"docs/guide/README.md", "docs/guide/jobs.md"}, "river.JobSnooze("},
	{"Is a retry free?", []string{"docs/guide/README.md", "docs/guide/idempotency.md"}, "makes a retry free of charge"},
}

// TestAnswers checks that README.md leads to the answer of each question.
func TestAnswers(t *testing.T) {
	pages := markdown(t)
	for _, q := range questions {
		at := filepath.Join(root(t), "README.md")
		for _, page := range q.pages {
			to := filepath.Join(root(t), page)
			leads := slices.ContainsFunc(link.FindAllStringSubmatch(pages[at], -1), func(m []string) bool {
				path, _, _ := strings.Cut(m[1], "#")
				return filepath.Join(filepath.Dir(at), path) == to
			})
			if _, err := os.Stat(to); err != nil || !leads {
				t.Errorf("%s %s has no link to %s", q.question, at, page)
			}
			at = to
		}
		if !strings.Contains(pages[at], q.text) {
			t.Errorf("%s %s does not have %q", q.question, at, q.text)
		}
	}
}
