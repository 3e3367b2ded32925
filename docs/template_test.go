package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackendTemplate checks that examples/backend and its test compile as a module of
// somebody else, who may use no internal package. In its own module, they run.
func TestBackendTemplate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root(t), "examples", "backend"))); err != nil {
		t.Fatal(err)
	}
	mod := strings.NewReplacer(module+"/examples/backend", "example.com/mystore", "=> ../..", "=> "+root(t)).Replace(readFile(t, "examples/backend/go.mod"))
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "vet", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go vet: %v\n%s", err, out)
	}
}
