package weirtest

import (
	"os"
	"os/exec"
	"testing"
)

// NeedProgram returns the path of a program, for example the interpreter lua5.4. If the machine
// lacks it, the test is skipped, or fails if WEIR_REQUIRE_LINT is 1.
func NeedProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("WEIR_REQUIRE_LINT") == "1" {
		t.Fatalf("no %s here, and WEIR_REQUIRE_LINT is 1", name)
	}
	t.Skipf("no %s here: the scripts are not tested with it", name)
	return ""
}
