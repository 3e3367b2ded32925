// Package docs tests the documentation. Every block of Go code in the repository's Markdown
// files compiles, with the oldest versions of the clients that work, and runs, on the
// memory store and without a network.
//
// What runs depends on what the block is:
//
//   - A whole program, "package main": its main function.
//   - Test functions: each of them, which must pass.
//   - Statements: all of them, in a function that has the variables ctx, st (a memory
//     store), lim (10 per second and a burst of 20, for keys of one segment) and opts. An
//     error that they return, or leave in a variable err, fails the test.
//   - An expression: its value is computed.
//   - Declarations, or another whole file: what the line "run" of a comment says.
//
// If a block ends in a comment that begins with "Output:", what it prints must be equal to
// the rest of the comment, as in an example of package testing.
//
// A block can use the packages in the list known. A line "..." stands for code that is left
// out. If a block needs more, a comment before it says so:
//
//	<!-- go: func(w http.ResponseWriter, r *http.Request) -->   the statements are the body of such a function
//	<!-- go: var zones []*time.Location -->                     declarations that the block needs
//	<!-- go: before ip := "192.0.2.1" -->                       statements before those of the block
//	<!-- go: import redis "github.com/gomodule/redigo/redis" -->
//	<!-- go: _ = conformance.Backend{SNIPPET} -->               the block is a part of this statement
//	<!-- go: run given.Unavailable(New(given.Addr)) -->         an expression of type error; it must be nil
//	<!-- go: only compiled: it needs a cluster -->              the block does not run, for this reason
//	<!-- go: package ulule -->                                  a part of this package, which a test in testdata runs
//
// A comment can have several of these, one on each line. A block that makes a client of a
// server runs against a loopback address on which nothing listens, given.Addr, so what runs
// is its way to store.ErrUnavailable.
//
// All blocks are packages of one module, built and run by one go test.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSnippets compiles and runs every block.
func TestSnippets(t *testing.T) {
	var blocks []block
	for file, text := range markdown(t) {
		found := find(file, text)
		if file == filepath.Join(root(t), "README.md") && len(found) == 0 {
			t.Error("README.md has no Go code")
		}
		blocks = append(blocks, found...)
	}
	broken := find(filepath.Join(root(t), "broken.md"), broken)
	results := runAll(t, append(blocks, broken...))
	ran := 0
	for _, b := range blocks {
		switch r := results[b.name(t)]; {
		case r.passed:
			ran++
		case b.onlyCompiled() == "" && b.needs().pkg == "":
			t.Errorf("%s:%d: the block fails:\n%s", b.file, b.line, r.log)
		}
	}
	t.Logf("%d blocks: %d ran, %d only compiled", len(blocks), ran, len(blocks)-ran)
	for i, b := range broken {
		r := results[b.name(t)]
		if want := brokenErrors[i]; r.passed || !strings.Contains(r.log, want) {
			t.Errorf("the test does not find a defect (passed: %v): want %q in its output:\n%s\n%s", r.passed, want, r.log, b.code)
		}
	}
}

// broken is a page whose blocks compile, and fail when they run with brokenErrors.
const (
	broken = "```go\npackage main\n\nimport \"fmt\"\n\nfunc main() {\n\tfmt.Println(1)\n\t// Output: 2\n}\n```\n" +
		"```go\nfmt.Println(3)\n// Output:\n// 4\n```\n" +
		"```go\nres, err := lim.Allow(ctx, \"a key\", \"of two segments\")\n```\n" +
		"```go\nif _, err := lim.AllowN(ctx, 0, \"ann\"); err != nil {\n\treturn err\n}\n```\n" +
		"```go\nvar m map[string]int\nm[\"a\"] = 1\n```\n" +
		"```go\nfunc TestBroken(t *testing.T) { t.Error(\"a failed test\") }\n```\n" +
		"<!-- go: run errors.New(\"a failed run\") -->\n```go\ntype aType struct{}\n```\n" +
		"<!-- go: func(w http.ResponseWriter, r *http.Request) -->\n```go\npanic(r.URL.Path)\n```\n"
)

var brokenErrors = []string{
	"got \"1\\n\", want \"2\\n\"", "got \"3\\n\", want \"4\\n\"", "the key has 2 segments", "the cost is 0",
	"assignment to entry in nil map", "a failed test", "a failed run", "panic: /",
}

// TestSnippetErrors checks that blocks that do not compile, and blocks with nothing to run,
// are found.
func TestSnippetErrors(t *testing.T) {
	const text = "# Page\n\n" +
		"```go\nres, err := lim.Allow(ctx, \"ann\")\n...\nreturn err\n```\n" + // line 3
		"```go\nalgorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}\n```\n" +
		"<!-- go: func(w http.ResponseWriter) -->\n\n```go\nw.WriteHeader(http.StatusTooManyRequests)\n```\n" +
		"<!-- go: _ = weir.Policy{SNIPPET} -->\n```go\nName: \"api\",\n```\n" +
		"```go\nlim.NoSuchMethod(ctx)\n```\n" + // line 20
		"```go\nfunc (\n```\n" + // line 23
		"```go\nredis.Options{NoSuchField: 1}\n```\n" + // line 26
		"```go\ntype nothingToRun struct{}\n```\n" // line 29
	var got string
	for _, err := range compile(t, find(filepath.Join(root(t), "page.md"), text)) {
		got += err.Error() + "\n"
	}
	for _, want := range []string{`page.md:21:.*NoSuchMethod`, `page.md:2[3-6]:.*expected`, `page.md:27:.*NoSuchField`, `page.md:30:.*run`} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("no error is %q:\n%s", want, got)
		}
	}
	for i := range 19 {
		if strings.Contains(got, fmt.Sprintf("page.md:%d:", i+1)) {
			t.Errorf("a block that compiles is an error:\n%s", got)
		}
	}
}

// root returns the directory of the module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// markdown returns the text of every Markdown file of the module, by its path.
func markdown(t *testing.T) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".github":
			return filepath.SkipDir
		case filepath.Ext(path) != ".md" && d.Name() != "llms.txt" || !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A block is a block of Go code.
type block struct {
	file string
	line int    // of the first line of code
	code string // without the fences
	need string // the text of the comment before it
}

var (
	fence   = regexp.MustCompile("(?ms)^```go\n(.*?)^```[ \t]*$")
	comment = regexp.MustCompile(`(?s)<!-- go:((?:[^-]|-[^-])*?)-->\s*$`)
	omitted = regexp.MustCompile(`(?m)^\s*(\.\.\.|…)\s*$`)
)

// find returns the blocks of a file.
func find(file, text string) []block {
	var found []block
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		b := block{file: file, line: 1 + strings.Count(text[:at[2]], "\n"), code: omitted.ReplaceAllString(text[at[2]:at[3]], "")}
		if m := comment.FindStringSubmatch(text[:at[0]]); m != nil {
			b.need = strings.TrimSpace(m[1])
		}
		found = append(found, b)
	}
	return found
}

// name returns the name of the block in the tests.
func (b block) name(t *testing.T) string {
	t.Helper()
	file, err := filepath.Rel(root(t), b.file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:%d", filepath.ToSlash(file), b.line)
}

// onlyCompiled returns why the block does not run, or "".
func (b block) onlyCompiled() string { return b.directive("only compiled:") }

// directive returns the rest of the line of the block's comment that begins with word.
func (b block) directive(word string) string {
	for line := range strings.Lines(b.need) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), word); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// output returns what the block must print, if it says so: see package testing.
func (b block) output() (want string, ok bool) {
	_, after, ok := strings.Cut(b.code, "// Output:")
	if !ok {
		return "", false
	}
	var lines []string
	for i, line := range strings.Split(after, "\n") {
		line = strings.TrimSpace(line)
		if i > 0 {
			if line, ok = strings.CutPrefix(line, "//"); !ok {
				break
			}
			line = strings.TrimPrefix(line, " ")
		}
		lines = append(lines, line)
	}
	return strings.TrimSpace(strings.Join(lines, "\n")) + "\n", true
}
