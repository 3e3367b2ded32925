package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPostgresQuickstart runs the test of the quickstart of store/postgres, which is in that
// module.
func TestPostgresQuickstart(t *testing.T) {
	notShort(t)
	notLight(t)
	t.Parallel()
	progress(t)
	newestPostgres().Start(t)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "TestRun$", "./examples/quickstart")
	cmd.Dir = "../../store/postgres"
	cmd.Env = append(os.Environ(), "WEIR_POSTGRES_URL="+newestPostgres().PostgresURL("", "", ""))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRun") {
		t.Errorf("%v: %s", err, out)
	}
}
