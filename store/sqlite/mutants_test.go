package sqlite

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutants are mistakes in this package. Each replaces a text that occurs once, and a test
// fails.
var mutants = []struct{ mistake, from, to, test string }{
	{"there is no lock in the database", "if write {\n\t\t// BEGIN", "if false {\n\t\t// BEGIN", "TestProcesses"},
	{"the lock is taken after the reads", `"DELETE FROM weir WHERE false"`, `"SELECT 1"`, "TestProcesses"},
	{"the driver waits for the lock", `"PRAGMA busy_timeout = 0"`, `"PRAGMA busy_timeout = 25000"`, "TestLocked"},
	{"the wait gives up at once", "if !busy(err) {", "if true {", "TestProcesses|TestLocked"},
	{"another connection's lock is an outage", `"database is locked"`, `"database is busy"`, "TestProcesses|TestLocked"},
	{"the transaction has the context of the call", "conn.BeginTx(context.Background(),", "conn.BeginTx(ctx,", "TestCancelled"},
	{"a rollback commits", "err := t.tx.Rollback()", "err := t.tx.Commit()", "TestCancelled"},
	{"a connection is not closed", "return errors.Join(err, t.conn.Close())", "return err", "TestCancelled"},
	{"the statements are prepared while a connection is held", "errors.Join(err, conn.Close()); err != nil {", "err; err != nil {", "TestLocked"},
	{"any journal mode is accepted", `mode != "wal"`, "false", "TestSettings"},
	{"a database in memory is accepted", `case file == "":`, "case false:", "TestSettings"},
	{"nothing says what to do", "return nil, explain(err)", "return nil, err", "TestSettings"},
	{"an error of the disk is a missing entry", "if errors.Is(err, sql.ErrNoRows) {", "if err != nil {", "TestBroken"},
	{"an error of the disk ends a set", "return rows.Err()", "return nil", "TestBroken"},
	{"readers take the lock too", "ReadOnly: !write", "ReadOnly: false", "TestModes"},
}

// TestMutants shows that each mistake is found.
func TestMutants(t *testing.T) {
	if _, ok := os.LookupEnv("WEIR_SQLITE_MUTANT"); ok || testing.Short() {
		t.Skip("it compiles this package again for each mistake")
	}
	for _, m := range mutants {
		t.Run(m.mistake, func(t *testing.T) {
			t.Parallel()
			file, err := filepath.Abs("sqlite.go")
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil || strings.Count(string(text), m.from) != 1 {
				t.Fatalf("sqlite.go has %q %d times, error %v", m.from, strings.Count(string(text), m.from), err)
			}
			dir := t.TempDir()
			changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
			list, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
			if err == nil {
				err = os.WriteFile(overlay, list, 0o600)
			}
			if err == nil {
				err = os.WriteFile(changed, []byte(strings.Replace(string(text), m.from, m.to, 1)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "test", "-count=1", "-short", "-failfast", "-timeout=3m", "-overlay="+overlay, "-run=^("+m.test+")$", ".")
			cmd.Env = append(os.Environ(), "WEIR_SQLITE_MUTANT=1")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: Test") && !strings.Contains(string(out), "panic: test timed out") {
				t.Errorf("%s did not find it: %v\n%s", m.test, err, out)
			}
		})
	}
}
