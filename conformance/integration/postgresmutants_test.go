package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/integration/internal/servers"
)

// A postgresMutant is a mistake in the code of store/postgres.
type postgresMutant struct {
	mistake string // what the store does
	check   string // finds it
	edits   []edit
	more    string // another file of the package, without its first line
}

// An edit replaces a text of the code, which must stand there once.
type edit struct{ old, wrong string }

// postgresMutants returns the mistakes of testdata/postgresmutants/mutants.txt.
func postgresMutants(t *testing.T) (all []postgresMutant) {
	t.Helper()
	text, err := os.ReadFile("testdata/postgresmutants/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	before := byte(0) // the mark of the line before
	for line := range strings.Lines(string(text)) {
		mark, m := line[0], &postgresMutant{}
		if len(all) > 0 {
			m = &all[len(all)-1]
		}
		if mark == '-' && before != '-' {
			m.edits = append(m.edits, edit{})
		}
		switch rest := line[1:]; mark {
		case '=':
			all = append(all, postgresMutant{mistake: strings.TrimSpace(rest)})
		case '?':
			m.check = strings.TrimSpace(rest)
		case '-':
			m.edits[len(m.edits)-1].old += rest
		case '+':
			m.edits[len(m.edits)-1].wrong += rest
		case '>':
			m.more += rest
		}
		before = mark
	}
	for _, m := range all {
		for i, e := range m.edits {
			m.edits[i] = edit{strings.TrimSuffix(e.old, "\n"), strings.TrimSuffix(e.wrong, "\n")}
		}
	}
	return all
}

// postgresModule is the store whose copies have mistakes.
const postgresModule = root + "/store/postgres"

// TestPostgresMutants checks that the suite finds every mistake of postgresMutants on a real
// server, and nothing in a copy without a mistake. Each runs in a process of its own, because
// its check fails. conformance/reports/mistakes.md lists the mistakes.
func TestPostgresMutants(t *testing.T) {
	notShort(t)
	notLight(t)
	servers.Need(t)
	t.Parallel()
	server := servers.AllPostgres()[0]
	admin := adminPool(t, server)
	mutants := postgresMutants(t)
	for i := range len(mutants) + 1 {
		// Here, and not in the processes: two of them with one schema could fail to create it.
		sql(t, admin, "CREATE SCHEMA IF NOT EXISTS "+copyName(i))
	}
	program := buildMutants(t, mutants)
	run := func(t *testing.T, i int, check string, runs int) (failed bool, output string) {
		t.Helper()
		test := "TestRun"
		if strings.HasPrefix(check, "Faults/") {
			test = "TestRunFaults"
			aloneParallel(t)
		} else {
			busyParallel(t)
		}
		progress(t)
		group, name, _ := strings.Cut(check, "/")
		cmd := exec.Command(program, "-test.run", "^"+test+"$/^"+group+"$/^"+name+"$", fmt.Sprintf("-test.count=%d", runs), "-test.failfast", "-test.v")
		cmd.Env = append(os.Environ(), "WEIR_MUTANT="+copyName(i), "WEIR_POSTGRES_URL="+server.PostgresURL("", "", ""))
		start := time.Now()
		out, err := cmd.CombinedOutput()
		output = fmt.Sprintf("%v after %v\n%s", err, time.Since(start), out)
		if !strings.Contains(output, "=== RUN   "+test+"/"+check) {
			t.Fatalf("%s did not run: %s", check, output)
		}
		return err != nil, output
	}
	checks := map[string]bool{}
	for i, m := range mutants {
		t.Run(m.mistake, func(t *testing.T) {
			// The order of the locks is random, and hides two mistakes in every fifth run. On a busy
			// machine, few calls overlap, and few are made while a fault lasts. The first run that
			// finds the mistake is the last.
			failed, output := run(t, i+1, m.check, 200)
			if !failed || !regexp.MustCompile(`(?m)^ +\w+\.go:\d+: broken: `).MatchString(output) {
				t.Errorf("%s did not find it: %s", m.check, output)
			}
		})
		checks[m.check] = true
	}
	for check := range checks {
		t.Run("no mistake, "+strings.ReplaceAll(check, "/", "."), func(t *testing.T) {
			if failed, output := run(t, 0, check, 1); failed {
				t.Errorf("%s: %s", check, output)
			}
		})
	}
}

// mutantsModule is the module of the copies. Its path lets them import what is internal to store.
const mutantsModule = "github.com/weir-go/weir/store/mutants"

func copyName(i int) string { return fmt.Sprintf("m%02d", i) }

// buildMutants compiles a test program with all copies, and returns its path. Copy 0 has no
// mistake.
func buildMutants(t *testing.T, mutants []postgresMutant) (program string) {
	t.Helper()
	dir := t.TempDir()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	mod := regexp.MustCompile(`(?m)^module .*`).ReplaceAllString(read("go.mod"), "module "+mutantsModule)
	write("go.mod", strings.ReplaceAll(mod, "=> ../..", "=> "+absolute))
	write("go.sum", read("go.sum"))
	write("mutant_test.go", read("testdata/postgresmutants/mutant_test.go"))
	write("postgreskeys_test.go", strings.Replace(read("postgreskeys_test.go"), "package integration", "package mutants", 1))
	write("mutants.go", "package mutants\n")

	files := map[string]string{}
	names, err := filepath.Glob(postgresModule + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if base := filepath.Base(name); strings.HasSuffix(base, ".sql") || strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go") {
			files[base] = read(name)
		}
	}
	imports, list := "", ""
	for i, m := range append([]postgresMutant{{}}, mutants...) {
		name := copyName(i)
		for file, text := range m.apply(t, files) {
			write(filepath.Join(name, file), text)
		}
		imports += fmt.Sprintf("\t%s %q\n", name, mutantsModule+"/"+name)
		list += fmt.Sprintf("\t%q: {func(p *pgxpool.Pool) store.Store { return %[2]s.New(p) }, %[2]s.Migrate},\n", name, name)
	}
	write("copies_test.go", `package mutants

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-go/weir/store"
`+imports+`)

// copies are the stores by their names.
var copies = map[string]struct {
	open    func(*pgxpool.Pool) store.Store
	migrate func(context.Context, *pgxpool.Pool) error
}{
`+list+"}\n")

	program = filepath.Join(dir, "mutants.test")
	cmd := exec.Command("go", "test", "-c", "-o", program, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return program
}

// apply returns files with the mistake.
func (m postgresMutant) apply(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, text := range files {
		out[name] = text
	}
	for _, e := range m.edits {
		n := 0
		for name, text := range out {
			if c := strings.Count(text, e.old); c > 0 {
				n += c
				out[name] = strings.Replace(text, e.old, e.wrong, 1)
			}
		}
		if n != 1 {
			t.Errorf("%s: store/postgres has the text %q %d times, want once", m.mistake, e.old, n)
		}
	}
	if m.more != "" {
		out["more.go"] = "package postgres\n" + m.more
	}
	return out
}

// TestPostgresMistakes checks that conformance/reports/mistakes.md lists the mistakes.
func TestPostgresMistakes(t *testing.T) {
	var checks []string
	found := map[string]string{}
	for _, m := range postgresMutants(t) {
		if found[m.check] == "" {
			checks = append(checks, m.check)
		}
		found[m.check] += " " + m.mistake
	}
	list := ""
	for _, check := range checks {
		list += "- `" + check + "`:" + found[check] + " "
	}
	text, err := os.ReadFile("../reports/mistakes.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), list) {
		t.Errorf("mistakes.md has another list than\n%s", strings.ReplaceAll(list, " - ", "\n- "))
	}
}
