// Package migrate tests that docs/migrate shows the programs of this module.
package migrate

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// A block of code, after a link to its file. Its fence is "``` go", with a space,
	// because package docs compiles blocks without the space, and lacks these libraries.
	shown   = regexp.MustCompile("(?ms)\\]\\(\\.\\./\\.\\./examples/migrate/([^)\\s]+\\.go)\\)\\):\n\n``` go\n(.*?)^```$")
	imports = regexp.MustCompile(`(?ms)\A.*?^import (\(.*?^\)|"[^"]*")\n\n`)
)

// TestPages checks that the blocks of each file, together, are its code after the imports.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/migrate/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("got the pages %q, %v", pages, err)
	}
	blocks := make(map[string]string) // by file
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		found := shown.FindAllStringSubmatch(string(text), -1)
		if n := strings.Count(string(text), "``` go\n"); n != len(found) {
			t.Errorf("%s: %d of %d blocks of code follow a link to their file", page, len(found), n)
		}
		for _, m := range found {
			if blocks[m[1]] != "" {
				blocks[m[1]] += "\n"
			}
			blocks[m[1]] += m[2]
		}
	}
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "compat.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if code := imports.ReplaceAllString(string(text), ""); code != blocks[filepath.ToSlash(file)] {
			t.Errorf("%s: the page shows\n%s\nwant\n%s", file, blocks[filepath.ToSlash(file)], code)
		}
	}
}
