// Package docs tests the documentation: every block of Go code in the module's Markdown
// files must compile, with the versions of the clients that go.mod requires.
//
// A block can be a whole file, declarations, statements, or an expression. It can use the
// packages in the list known, and the variables in the text given. A line "..." stands
// for code that is left out. If a block needs more, a comment before it says so:
//
//	<!-- go: func(w http.ResponseWriter, r *http.Request) -->   the statements are the body of such a function
//	<!-- go: var zones []*time.Location -->                     declarations that the block needs
//	<!-- go: import redis "github.com/gomodule/redigo/redis" -->
//	<!-- go: _ = conformance.Backend{SNIPPET} -->               the block is a part of this statement
//
// A comment can have several of these, one on each line.
package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weir-go/weir"

// known are the packages that a block can use without an import, by their names.
var known = map[string]string{
	"weir":         module,
	"algorithm":    module + "/algorithm",
	"contract":     module + "/algorithm/contract",
	"rediscell":    module + "/algorithm/rediscell",
	"conformance":  module + "/conformance",
	"dailyquota":   module + "/examples/dailyquota",
	"store":        module + "/store",
	"memory":       module + "/store/memory",
	"goredis":      module + "/store/goredis",
	"redigo":       module + "/store/redigo",
	"rueidisstore": module + "/store/rueidis",

	"redis":   "github.com/redis/go-redis/v9", // in a block that uses redigo or redisc, the client of redigo
	"redisc":  "github.com/mna/redisc",
	"rueidis": "github.com/redis/rueidis",

	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "log": "log", "math": "math", "net": "net", "os": "os",
	"rand": "math/rand/v2", "slices": "slices", "slog": "log/slog", "strconv": "strconv", "strings": "strings", "sync": "sync",
	"testing": "testing", "time": "time", "tls": "crypto/tls",
}

// given are the variables that a block can use without declaring them.
const given = `
import (
	"context"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

var (
	ctx  context.Context
	st   store.Store
	lim  *weir.Limiter
	opts *weir.Options
)
`

// TestSnippets compiles every block.
func TestSnippets(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		found := find(path, string(text))
		if path == filepath.Join(root, "README.md") && len(found) == 0 {
			t.Error("README.md has no Go code")
		}
		blocks = append(blocks, found...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range compile(t, root, blocks) {
		t.Error(err)
	}
}

// TestSnippetErrors checks that blocks that do not compile are found.
func TestSnippetErrors(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	const text = "# Page\n\n" +
		"```go\nres, err := lim.Allow(ctx, \"ann\")\n...\nreturn err\n```\n" + // line 3
		"```go\nalgorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}\n```\n" +
		"<!-- go: func(w http.ResponseWriter) -->\n\n```go\nw.WriteHeader(http.StatusTooManyRequests)\n```\n" +
		"<!-- go: _ = weir.Policy{SNIPPET} -->\n```go\nName: \"api\",\n```\n" +
		"```go\nlim.NoSuchMethod(ctx)\n```\n" + // line 20
		"```go\nfunc (\n```\n" + // line 23
		"```go\nredis.Options{NoSuchField: 1}\n```\n" // line 26
	var got string
	for _, err := range compile(t, root, find(filepath.Join(root, "page.md"), text)) {
		got += err.Error() + "\n"
	}
	for _, want := range []string{`page.md:21:.*NoSuchMethod`, `page.md:2[3-6]:.*expected`, `page.md:27:.*NoSuchField`} {
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

// compile compiles each block as a package of a module that requires what the module at
// root requires, and returns the errors.
func compile(t *testing.T, root string, blocks []block) []error {
	t.Helper()
	var errs []error
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(string) string{
		"go.mod": func(text string) string {
			text = strings.Replace(text, "module "+module, "module example.com/snippets", 1)
			return text + fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %[1]s => %s\n", module, root)
		},
		"go.sum": func(text string) string { return text },
	} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, change(string(text)))
	}
	for i, b := range blocks {
		name := fmt.Sprintf("snippet%d", i)
		code, whole, err := b.source()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		write(name+"/snippet.go", code)
		if !whole {
			write(name+"/given.go", "package snippet\n"+given)
		}
	}
	cmd := exec.Command("go", "vet", "-unreachable=false", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		errs = append(errs, fmt.Errorf("go vet: %w\n%s", err, out))
	}
	return errs
}

// source returns the file for a block, and whether the block is a whole file.
func (b block) source() (code string, whole bool, err error) {
	if _, err := parser.ParseFile(token.NewFileSet(), "", b.code, parser.PackageClauseOnly); err == nil {
		return fmt.Sprintf("//line %s:%d\n%s", b.file, b.line, b.code), true, nil
	}
	signature, template := "func() error", ""
	var declarations, imports string
	for line := range strings.Lines(b.need) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "import "):
			imports += line + "\n"
		case strings.HasPrefix(line, "func("):
			signature = line
		case strings.Contains(line, "SNIPPET"):
			template = line
		default:
			declarations += line + "\n"
		}
	}
	own, body, skipped := cutImports(b.code)
	imports += own
	at := fmt.Sprintf("//line %s:%d\n", b.file, b.line+skipped)
	switch {
	case template != "":
		before, after, _ := strings.Cut(template, "SNIPPET")
		body = fmt.Sprintf("func _() {\n%s\n%s%s\n%s\n}\n", before, at, body, after)
	case parses("package p\n" + body):
		body = at + body
	default:
		used, err := b.statements(&body, skipped)
		if err != nil {
			return "", false, err
		}
		end := used
		if strings.TrimSpace(signature[strings.LastIndex(signature, ")")+1:]) != "" || strings.Count(signature, "(") > 1 {
			end += `panic("the end of the block")` + "\n"
		}
		body = fmt.Sprintf("var _ = %s {\n%s%s\n%s}\n", signature, at, body, end)
	}
	rest := declarations + body
	for _, name := range slices.Sorted(maps.Keys(known)) {
		path := known[name]
		if name == "redis" && regexp.MustCompile(`\b(redigo|redisc)\.`).MatchString(b.code) {
			path = "github.com/gomodule/redigo/redis"
		}
		if uses(rest, name) && !imported(imports, name) {
			imports += fmt.Sprintf("import %s %q\n", name, path)
		}
	}
	return "package snippet\n\n" + imports + rest, false, nil
}

// cutImports cuts the imports that code begins with, and returns how many lines they are.
func cutImports(code string) (imports, rest string, lines int) {
	const head = "package p\n"
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", head+code, parser.ImportsOnly)
	if err != nil || len(f.Decls) == 0 {
		return "", code, 0
	}
	end := fset.Position(f.Decls[len(f.Decls)-1].End()).Offset - len(head)
	return code[:end] + "\n", code[end:], strings.Count(code[:end], "\n")
}

func parses(file string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", file, parser.SkipObjectResolution)
	return err == nil
}

// statements checks that body is a list of statements, assigns expressions to nothing, and
// returns statements that use the variables that body declares.
func (b block) statements(body *string, skipped int) (used string, err error) {
	head := "package p\nfunc _() {\n"
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", fmt.Sprintf("%s//line %s:%d\n%s\n}\n", head, b.file, b.line+skipped, *body), parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	start := strings.Count(head, "\n") + 2 // the line on which body begins
	for _, s := range slices.Backward(f.Decls[0].(*ast.FuncDecl).Body.List) {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if _, call := s.X.(*ast.CallExpr); !call {
				at := fset.PositionFor(s.Pos(), false)
				lines := strings.SplitAfter(*body, "\n")
				line := at.Line - start
				lines[line] = lines[line][:at.Column-1] + "_ = " + lines[line][at.Column-1:]
				*body = strings.Join(lines, "")
			}
		case *ast.AssignStmt:
			for _, x := range s.Lhs {
				if id, ok := x.(*ast.Ident); ok && s.Tok == token.DEFINE && id.Name != "_" {
					used += "_ = " + id.Name + "\n"
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, id := range v.Names {
						used += "_ = " + id.Name + "\n"
					}
				}
			}
		}
	}
	return used, nil
}

// uses reports whether code uses a package of that name: an identifier that nothing
// declares, before a dot.
func uses(code, name string) bool {
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0)
	if f == nil || err != nil && len(f.Decls) == 0 {
		return false
	}
	found := false
	for _, id := range f.Unresolved { //nolint:staticcheck // names without types are enough
		found = found || id.Name == name
	}
	return found
}

// imported reports whether one of imports has that name.
func imported(imports, name string) bool {
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+imports, parser.ImportsOnly)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(f.Imports, func(s *ast.ImportSpec) bool {
		if s.Name != nil {
			return s.Name.Name == name
		}
		path := strings.Trim(s.Path.Value, `"`)
		base := path[strings.LastIndex(path, "/")+1:]
		return base == name || known[name] == path
	})
}
