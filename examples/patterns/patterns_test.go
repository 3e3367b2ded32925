package patterns

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocument checks that the Go code in docs/patterns.md is that of the
// examples, line by line, and that no pattern goes without.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		code += unindent(string(text))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(doc), -1)
	if len(blocks) < len(All()) {
		t.Errorf("%d patterns have %d blocks of code", len(All()), len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(code, unindent(block[1])) {
			t.Errorf("no example contains:\n%s", block[1])
		}
	}
}

func unindent(text string) string {
	return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(text, "")
}
