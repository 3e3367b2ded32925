package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	code    = regexp.MustCompile("(?ms)^```.*?^```[ \t]*$")
)

// TestLinks checks that each relative link of a Markdown file leads to a file or a
// directory, and to a heading if it names one.
func TestLinks(t *testing.T) {
	for file, text := range markdown(t) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if err := follow(file, m[1]); err != "" {
				t.Errorf("%s: the link %s %s", file, m[1], err)
			}
		}
	}
}

// TestLinkErrors checks that links that lead nowhere are found.
func TestLinkErrors(t *testing.T) {
	file := filepath.Join(root(t), "README.md")
	for _, to := range []string{"LICENSE", "docs", "#status", "docs/reference/stores.md#the-acl-line"} {
		if err := follow(file, to); err != "" {
			t.Errorf("%s %s", to, err)
		}
	}
	for _, to := range []string{"no-such-file.md", "#no-such-heading", "docs/reference/stores.md#no-such-heading"} {
		if err := follow(file, to); err == "" {
			t.Errorf("%s: no error", to)
		}
	}
}

// follow returns what is wrong with the link to, which stands in the file from.
func follow(from, to string) string {
	path, anchor, named := strings.Cut(to, "#")
	target := from
	if path != "" {
		target = filepath.Join(filepath.Dir(from), path)
	}
	if _, err := os.Stat(target); err != nil {
		return "leads to no file"
	}
	if !named {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return "names a heading of what is not a file"
	}
	for _, m := range heading.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
		if slug(m[1]) == anchor {
			return ""
		}
	}
	return "names no heading"
}

// slug returns the anchor that GitHub gives a heading.
func slug(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127:
			b.WriteRune(r)
		}
	}
	return b.String()
}
