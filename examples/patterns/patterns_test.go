package patterns

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocument checks that each block of Go code in docs/reference/patterns.md is part of an
// example, line by line, and that each pattern has a block.
func TestDocument(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/patterns.md")
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
		t.Errorf("docs/reference/patterns.md has %d blocks of code for %d patterns", len(blocks), len(All()))
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
