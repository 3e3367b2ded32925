package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/weir-go/weir"

// known are the packages that a block can use without an import, by their names.
var known = map[string]string{
	"weir":         module,
	"algorithm":    module + "/algorithm",
	"contract":     module + "/algorithm/contract",
	"rediscell":    module + "/rediscell",
	"conformance":  module + "/conformance",
	"dailyquota":   module + "/examples/dailyquota",
	"store":        module + "/store",
	"memory":       module + "/store/memory",
	"goredis":      module + "/store/goredis",
	"redigo":       module + "/store/redigo",
	"rueidisstore": module + "/store/rueidis",
	"valkeystore":  module + "/store/valkey",
	"weirhttp":     module + "/weirhttp",
	"outage":       module + "/outage",
	"prefetch":     module + "/prefetch",
	"denycache":    module + "/denycache",
	"observe":      module + "/observe",
	"weirfile":     module + "/weirfile",
	"weirgrpc":     module + "/weirgrpc",

	"redis":   "github.com/redis/go-redis/v9", // in a block that uses redigo or redisc, the client of redigo
	"redisc":  "github.com/mna/redisc",
	"rueidis": "github.com/redis/rueidis",
	"valkey":  "github.com/valkey-io/valkey-go",

	"context": "context", "errors": "errors", "fmt": "fmt", "http": "net/http", "httptest": "net/http/httptest", "log": "log", "math": "math",
	"net": "net", "os": "os", "rand": "math/rand/v2", "slices": "slices", "slog": "log/slog", "strconv": "strconv", "strings": "strings",
	"sync": "sync", "synctest": "testing/synctest", "testing": "testing", "time": "time", "tls": "crypto/tls",

	"given": "example.com/snippets/given",
}

// shared is the package of all blocks of statements that need no declarations.
const shared = "statements"

// A source is the Go code of a block.
type source struct {
	dir   string            // of its package
	files map[string]string // by name
	calls []string          // statements that run the block, and can return an error
	tests []string          // statements that run its test functions
}

// needs is what the comment of a block adds.
type needs struct {
	pkg                   string // the package that the block shares with others of its page
	imports, declarations string
	template              string // a statement with the word SNIPPET
	parameters            string // of a function whose body the block is
	run                   string // an expression
	before                string // statements before the block
}

func (b block) needs() needs {
	var n needs
	for line := range strings.Lines(b.need) {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case word == "package":
			n.pkg = rest
		case word == "run":
			n.run = rest
		case word == "before":
			n.before += rest + "\n"
		case strings.HasPrefix(line, "only compiled:"):
		case strings.HasPrefix(line, "import "):
			n.imports += line + "\n"
		case strings.HasPrefix(line, "func("):
			n.parameters = strings.TrimPrefix(line, "func")
		case strings.Contains(line, "SNIPPET"):
			n.template = line
		default:
			n.declarations += line + "\n"
		}
	}
	return n
}

// source returns the code of block i.
func (b block) source(i int) (source, error) {
	s := source{dir: fmt.Sprintf("snippet%d", i), files: make(map[string]string)}
	n := b.needs()
	if n.declarations == "" {
		s.dir = shared
	}
	imports, code, skipped := cutImports(b.code)
	n.imports += imports
	at := fmt.Sprintf("//line %s:%d\n", b.file, b.line+skipped)
	var name, text string
	var err error
	switch {
	case n.pkg != "" && parses(b.code):
		s.files[fmt.Sprintf("block%d.go", i)] = fmt.Sprintf("//line %s:%d\n%s", b.file, b.line, b.code)
		s.dir = n.pkg
		return s, nil
	case n.pkg != "":
		s.dir = n.pkg
		text = at + code
	case parses(b.code):
		s.dir = fmt.Sprintf("snippet%d", i)
		name, text, err = b.whole(&s)
	case n.template != "":
		before, after, _ := strings.Cut(n.template, "SNIPPET")
		text = s.function(i, n, before+"\n"+at+code+"\n"+after+"\nreturn nil\n")
	case parses("package p\n" + code):
		s.dir = fmt.Sprintf("snippet%d", i)
		text, err = at+code, b.declared(&s, code)
	default:
		code, err = b.statements(code, skipped)
		text = s.function(i, n, at+code)
	}
	if err != nil {
		return s, err
	}
	if name == "" {
		name = s.dir
		text = b.header(s.dir, n.imports, n.declarations+text) + n.declarations + text
	}
	s.files[fmt.Sprintf("block%d.go", i)] = text
	switch {
	case n.pkg != "":
		return s, nil
	case b.onlyCompiled() != "":
		s.calls, s.tests = nil, nil
	case n.run != "":
		code := "func RunBlock() error { return " + n.run + " }\n"
		s.files["run.go"] = b.header(name, "", code) + code
		s.calls = append(s.calls, "return "+s.dir+".RunBlock()")
	}
	if len(s.calls) > 0 && len(s.tests) > 0 {
		return s, fmt.Errorf("%s:%d: the block has test functions and something else to run: split it", b.file, b.line)
	}
	if len(s.calls)+len(s.tests) == 0 && b.onlyCompiled() == "" {
		return s, fmt.Errorf("%s:%d: there is nothing to run: add a line \"run\" or \"only compiled\" to the comment before the block", b.file, b.line)
	}
	return s, nil
}

// function returns a function with that body, and adds the call of it.
func (s *source) function(i int, n needs, body string) string {
	call, result := "return func() error", ""
	var args []string
	if n.parameters != "" {
		call, result = "func"+n.parameters, "return nil\n"
		for kind, value := range map[string]string{"http.ResponseWriter": "httptest.NewRecorder()", "*http.Request": `httptest.NewRequest("GET", "/", nil)`} {
			if strings.Contains(n.parameters, kind) {
				args = append(args, value)
			}
		}
		slices.Sort(args) // NewRecorder, NewRequest
	}
	s.calls = append(s.calls, fmt.Sprintf("return %s.Block%d(given.Values(t))", s.dir, i))
	return fmt.Sprintf("func Block%d(ctx context.Context, st store.Store, lim *weir.Limiter, opts *weir.Options) error {\n%s%s {\n%s}(%s)\n%s}\n",
		i, n.before, call, body, strings.Join(args, ", "), result)
}

// whole returns the text of a block that is a whole file, and the name of its package. A
// package main becomes one that can be imported.
func (b block) whole(s *source) (name, text string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", b.code, parser.SkipObjectResolution)
	if err != nil {
		return "", "", err
	}
	name, text = f.Name.Name, b.code
	if name == "main" {
		name = s.dir
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "main" {
				text = replace(text, fset.Position(fn.Name.Pos()).Offset, "main", "Main")
				s.calls = append(s.calls, s.dir+".Main()", "return nil")
			}
		}
		text = replace(text, fset.Position(f.Name.Pos()).Offset, "main", name)
	}
	return name, fmt.Sprintf("//line %s:%d\n%s", b.file, b.line, text), b.declared(s, text)
}

func replace(text string, at int, old, with string) string {
	return text[:at] + with + text[at+len(old):]
}

// declared adds the calls of the test functions that a block declares.
func (b block) declared(s *source, code string) error {
	if !strings.HasPrefix(code, "package ") && !parses(code) {
		code = "package p\n" + code
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", code, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			s.tests = append(s.tests, fmt.Sprintf("t.Run(%q, %s.%[1]s)", fn.Name.Name, s.dir))
		}
	}
	return nil
}

// header returns the package clause and the imports of a file that contains code.
func (b block) header(name, imports, code string) string {
	for _, name := range slices.Sorted(maps.Keys(known)) {
		path := known[name]
		if name == "redis" && regexp.MustCompile(`\b(redigo|redisc)\.`).MatchString(b.code) {
			path = "github.com/gomodule/redigo/redis"
		}
		if uses(code, name) && !imported(imports, name) {
			imports += fmt.Sprintf("import %s %q\n", name, path)
		}
	}
	return "package " + name + "\n\n" + imports
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

// statements checks that body is a list of statements, assigns expressions to nothing, uses
// the variables that body declares, and returns the error that it ends with.
func (b block) statements(body string, skipped int) (string, error) {
	head := "package p\nfunc _() {\n"
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", fmt.Sprintf("%s//line %s:%d\n%s\n}\n", head, b.file, b.line+skipped, body), parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	start := strings.Count(head, "\n") + 2 // the line on which body begins
	declared := make(map[string]bool)
	for _, s := range slices.Backward(f.Decls[0].(*ast.FuncDecl).Body.List) {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if _, call := s.X.(*ast.CallExpr); !call {
				at := fset.PositionFor(s.Pos(), false)
				lines := strings.SplitAfter(body, "\n")
				line := at.Line - start
				lines[line] = lines[line][:at.Column-1] + "_ = " + lines[line][at.Column-1:]
				body = strings.Join(lines, "")
			}
		case *ast.AssignStmt:
			for _, x := range s.Lhs {
				if id, ok := x.(*ast.Ident); ok && s.Tok == token.DEFINE && id.Name != "_" {
					declared[id.Name] = true
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, id := range v.Names {
						declared[id.Name] = true
					}
				}
			}
		}
	}
	end := ""
	for name := range declared {
		end += "_ = " + name + "\n"
	}
	if b.needs().parameters == "" {
		if declared["err"] {
			end += "return err\n"
		} else {
			end += "return nil\n"
		}
	}
	return body + "\n" + end, nil
}

// uses reports whether code uses a package of that name: an identifier that nothing
// declares, before a dot.
func uses(code, name string) bool {
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+code, 0)
	if f == nil || err != nil && len(f.Decls) == 0 {
		return false
	}
	found := false
	for _, id := range f.Unresolved { // names without types are enough
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
