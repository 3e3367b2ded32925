package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// given is the package that all blocks can use. Blocks of statements get its Values.
const givenFile = `package given

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Addr is a loopback address on which nothing listens.
const Addr = "127.0.0.1:1"

func Values(t *testing.T) (context.Context, store.Store, *weir.Limiter, *weir.Options) {
	st := memory.New(nil)
	lim, err := weir.New("given", st, algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return t.Context(), st, lim, nil
}

// Unavailable returns nil if lim is a limiter without its server, or err is the error of a
// client that connects when it is made.
func Unavailable(lim *weir.Limiter, err error) error {
	if err != nil && strings.Contains(err.Error(), "refused") { // redisc wraps no error
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err = lim.Allow(ctx, "ann"); errors.Is(err, store.ErrUnavailable) {
		return nil
	}
	return err
}

// Allows returns nil if lim allows a request.
func Allows(lim *weir.Limiter, err error) error {
	if err != nil {
		return err
	}
	res, err := lim.Allow(context.Background(), "ann")
	if err == nil && !res.Allowed {
		return &weir.DeniedError{Result: res}
	}
	return err
}
`

// runnerFile is the test of the module that holds the blocks.
const runnerFile = `
func run(t *testing.T, name, want string, compare bool, block func(*testing.T) error) {
	t.Run(name, func(t *testing.T) {
		out, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		printed := make(chan string)
		go func() {
			b, _ := io.ReadAll(out)
			printed <- string(b)
		}()
		stdout := os.Stdout
		os.Stdout = w
		defer func() {
			os.Stdout = stdout
			_ = w.Close()
			got := strings.TrimSpace(<-printed) + "\n"
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
			} else if compare && !t.Failed() && got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}()
		if err := block(t); err != nil {
			t.Error(err)
		}
	})
}
`

// writeModule writes a module of the blocks to a directory, and returns the directory and
// the errors of blocks that are no Go code. It requires what the module of this package does.
func writeModule(t *testing.T, blocks []block) (dir string, errs []error) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", strings.NewReplacer(module+"/docs", "example.com/snippets", "=> ..", "=> "+root(t)).Replace(readFile(t, "docs/go.mod")))
	write("go.sum", readFile(t, "docs/go.sum"))
	write("migrate/migrate_test.go", readFile(t, "docs/testdata/migrate_test.go"))
	write("migrate/connections_test.go", readFile(t, "docs/testdata/connections_test.go"))
	write("given/given.go", givenFile)

	imports := map[string]string{"example.com/snippets/given": "given"}
	var calls strings.Builder
	for i, b := range blocks {
		s, err := b.source(i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for name, text := range s.files {
			write(s.dir+"/"+name, text)
		}
		if b.needs().pkg == "" {
			imports["example.com/snippets/"+s.dir] = "_"
		}
		switch {
		case len(s.tests) > 0: // what tests print is not compared, so they can run together
			fmt.Fprintf(&calls, "t.Run(%q, func(t *testing.T) {\nt.Parallel()\n%s\n})\n", b.name(t), strings.Join(s.tests, "\n"))
		case len(s.calls) > 0:
			want, compare := b.output()
			fmt.Fprintf(&calls, "run(t, %q, %q, %v, func(t *testing.T) error {\n%s\n})\n", b.name(t), want, compare, strings.Join(s.calls, "\n"))
		}
	}
	text := "package snippets\n\nimport (\n\"io\"\n\"os\"\n\"strings\"\n\"testing\"\n"
	for path, name := range imports {
		if base := filepath.Base(path); strings.Contains(calls.String(), base+".") {
			name = base
		}
		text += fmt.Sprintf("%s %q\n", name, path)
	}
	write("snippets_test.go", fmt.Sprintf("%s)\n%s\nfunc TestBlocks(t *testing.T) {\n%s}\n", text, runnerFile, calls.String()))
	return dir, errs
}

// compile compiles the blocks and returns the errors.
func compile(t *testing.T, blocks []block) []error {
	t.Helper()
	dir, errs := writeModule(t, blocks)
	if out, err := command(dir, "build", "./..."); err != nil {
		errs = append(errs, fmt.Errorf("go build: %w\n%s", err, out))
	}
	return errs
}

// A result is what became of a block.
type result struct {
	passed bool
	log    string
}

// noise are the lines of go test that say nothing about a failure.
var noise = regexp.MustCompile(`^\s*(=== |--- (PASS|SKIP))`)

// runAll compiles and runs the blocks, and returns the result of each by its name.
func runAll(t *testing.T, blocks []block) map[string]result {
	t.Helper()
	dir, errs := writeModule(t, blocks)
	for _, err := range errs {
		t.Error(err)
	}
	out, err := command(dir, "test", "-json", "-timeout=5m", ".", "./migrate")
	results := make(map[string]result)
	var rest strings.Builder // what belongs to no block
	migrated := false
	for line := range bytes.Lines(out) {
		var event struct{ Action, Package, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			rest.Write(line)
			continue
		}
		name, inBlock := strings.CutPrefix(event.Test, "TestBlocks/")
		if !inBlock {
			rest.WriteString(event.Output)
			migrated = migrated || event.Action == "pass" && event.Test == "" && strings.HasSuffix(event.Package, "/migrate")
			continue
		}
		for _, b := range blocks {
			if test := b.name(t); name == test || strings.HasPrefix(name, test+"/") {
				r := results[test]
				if !noise.MatchString(event.Output) {
					r.log += event.Output
				}
				r.passed = r.passed || name == test && event.Action == "pass"
				results[test] = r
			}
		}
	}
	if len(results) == 0 || !migrated {
		t.Fatalf("%d blocks ran, and the test of migrations passed: %v: %v\n%s", len(results), migrated, err, rest.String())
	}
	return results
}

// command runs go in the module at dir, without a network.
func command(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off")
	return cmd.CombinedOutput()
}
