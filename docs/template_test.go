package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackendTemplate copies examples/backend to a module of somebody else, and runs the suite
// there. With -short, it runs a part of the suite: the module of examples/backend has the
// rest.
func TestBackendTemplate(t *testing.T) {
	t.Parallel()
	from, dir := filepath.Join(root(t), "examples", "backend"), t.TempDir()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(from, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if file.Name() == "go.mod" {
			text = []byte(strings.NewReplacer(module+"/examples/backend", "example.com/mystore", "=> ../..", "=> "+root(t)).Replace(string(text)))
		}
		if err := os.WriteFile(filepath.Join(dir, file.Name()), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"test", "-v", "-count=1", "."}
	if testing.Short() {
		args = append(args, "-short", "-run", "TestConformance/(Store|Limiter)$")
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, want := range []string{"--- PASS: TestConformance/Store/Peer ", "--- PASS: TestConformance/Limiter/Prefix ", "\nok  \texample.com/mystore"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}
