package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestMistakes shows that each mistake of embedded and optimistic stores in
// reports/mistakes.md is a mutant that fails its check.
func TestMistakes(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, file := range []string{"reports/mistakes.md", "files_test.go", "faults_test.go", "optimistic_test.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	_, list, ok := strings.Cut(texts[0], "\n## Embedded and optimistic stores\n\n- `")
	if !ok {
		t.Fatal("mistakes.md has no list of embedded and optimistic stores")
	}
	source := strings.Join(texts[1:], "\n")
	for item := range strings.SplitSeq(strings.Join(strings.Fields(list), " "), " - `") {
		check, names, _ := strings.Cut(item, "`: ")
		for name := range strings.SplitSeq(names, "; ") {
			known := slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name && m.check == check })
			if !known && !strings.Contains(source, `{"`+name+`", "`+strings.TrimPrefix(check, "Faults/")+`", `) {
				t.Errorf("no mutant %q fails %s", name, check)
			}
		}
	}
}
