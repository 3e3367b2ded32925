package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestMistakes shows that each mistake of embedded and optimistic stores in
// docs/reference/mistakes.md is a mutant that fails the check beside it.
func TestMistakes(t *testing.T) {
	t.Parallel()
	text := ""
	for _, file := range []string{"../docs/reference/mistakes.md", "files_test.go", "faults_test.go", "optimistic_test.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b) + "\n"
	}
	_, section, _ := strings.Cut(text, "\n## Embedded and optimistic stores\n")
	_, table, _ := strings.Cut(section, "| Mistake | Check that finds it |\n|---|---|\n")
	table, source, ok := strings.Cut(table, "\n\n")
	if !ok {
		t.Fatal("mistakes.md has no table of embedded and optimistic stores")
	}
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "| "), " | ")
		if len(cells) != 2 {
			t.Fatalf("the row %q has %d cells, want 2", row, len(cells))
		}
		name, check := cells[0], cells[1]
		known := slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name && m.check == check })
		if !known && !strings.Contains(source, `{"`+name+`", "`+strings.TrimPrefix(check, "Faults/")+`", `) {
			t.Errorf("no mutant %q fails %s", name, check)
		}
	}
}
