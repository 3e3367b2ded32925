package weirgrpc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program of docs/guide/grpc.md runs, and prints what its last comment says.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/guide/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```golang\n")
	program, _, _ = strings.Cut(program, "```\n")
	_, want, _ := strings.Cut(program, "\t// Output:\n")
	want = strings.TrimSuffix(strings.ReplaceAll(want, "\t// ", ""), "}\n")
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := exec.CommandContext(t.Context(), "go", "run", file).CombinedOutput(); err != nil || want == "" || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}
