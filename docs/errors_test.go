package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestErrors checks that errors.md explains every sentinel of weir and store, every code
// of a Redis server that adapters know, and every code of PostgreSQL that has a hint.
func TestErrors(t *testing.T) {
	page := readFile(t, "docs/reference/errors.md")
	for _, source := range []struct{ file, pattern, format string }{
		{"weir.go", `(?m)^\t(Err\w+) `, "`weir.%`"},
		{"store/errors.go", `(?m)^\t(Err\w+) `, "`store.%`"},
		{"store/internal/errreply/errreply.go", `(?m)^\t"([A-Z]+)": +true`, "`%`"},
		{"store/postgres/errors.go", `(?m)^\t"(\w{5})": +"`, "%"},
	} {
		found := regexp.MustCompile(source.pattern).FindAllStringSubmatch(readFile(t, source.file), -1)
		if len(found) < 5 {
			t.Errorf("%s has %d errors: the test does not find them", source.file, len(found))
		}
		for _, m := range found {
			if want := strings.Replace(source.format, "%", m[1], 1); !strings.Contains(page, want) {
				t.Errorf("errors.md does not explain %s of %s", want, source.file)
			}
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
