package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const repo = "../.."

// TestUsers makes a release of the work tree, and uses it as modules of users do, through a
// proxy in a directory.
func TestUsers(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the modules of users")
	}
	t.Setenv("GOSUMDB", "off") // no network
	// A module that a user gets is extracted here, and not among those of other programs.
	cache := t.TempDir()
	t.Setenv("GOMODCACHE", cache)
	t.Cleanup(func() {
		if out, err := exec.Command("go", "clean", "-modcache").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	dir := t.TempDir()
	r := &release{version: "v0.1.0", tree: filepath.Join(dir, "tree"), proxy: filepath.Join(dir, "proxy")}
	if err := r.make(t.Context(), repo); err != nil {
		t.Fatal(err)
	}
	if err := r.use(t.Context(), filepath.Join(dir, "users"), users); err != nil {
		t.Error(err)
	}
	few := users[1]
	few.client, few.args = "", nil
	if err := r.use(t.Context(), filepath.Join(dir, "few"), []user{few}); err == nil || !strings.Contains(err.Error(), "it does not need") {
		t.Errorf("a client that nobody allowed is not found: %v", err)
	}
}

// TestModules checks that each module of the repository is published, or is known to be one of
// the tests.
func TestModules(t *testing.T) {
	tests := []string{"bench", "conformance/integration", "docs", ".ci/release", "store/nats/internal/servertest", "weirhttp/internal/sfvtest"}
	out, err := exec.Command("git", "-C", repo, "ls-files", "--cached", "--others", "--exclude-standard", "go.mod", "*/go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.Lines(string(out)) {
		dir := filepath.Dir(strings.TrimSpace(file))
		if !slices.Contains(published, dir) && !slices.Contains(tests, dir) && !strings.HasPrefix(dir, "examples/") {
			t.Errorf("%s is a module that is neither published nor one of the tests", dir)
		}
	}
}

// TestCheck checks what is wrong before a release.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		if _, err := command(t.Context(), dir, []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}, "git", args...); err != nil {
			t.Fatal(err)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wrong := func(version, want string) {
		t.Helper()
		if err := check(t.Context(), dir, version); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", version, err, want)
		}
	}
	git("init", "-q")
	write("## 0.1.0, not yet released\n")
	wrong("0.1.0", "must be like v0.1.0")
	wrong("v0.1.0", "not committed")
	git("add", ".")
	git("commit", "-q", "-m", "a")
	wrong("v0.1.0", "no heading like")
	write("## 0.1.0 2026-12-31\n")
	git("commit", "-q", "-a", "-m", "b")
	wrong("v0.1.0", "")
	r := &release{version: "v0.1.0", tree: t.TempDir()}
	if err := os.WriteFile(filepath.Join(r.tree, "go.mod"), []byte("module a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := exec.Command("git", "-C", dir, "status", "--porcelain", "-b").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_AUTHOR_NAME", "a")
	t.Setenv("GIT_AUTHOR_EMAIL", "a@example.com")
	t.Setenv("GIT_COMMITTER_NAME", "a")
	t.Setenv("GIT_COMMITTER_EMAIL", "a@example.com")
	commit, err := r.commit(t.Context(), dir, filepath.Join(t.TempDir(), "index"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := command(t.Context(), dir, nil, "git", "ls-tree", "--name-only", commit)
	if err != nil || string(files) != "go.mod\n" {
		t.Errorf("the commit has %q (%v), want go.mod", files, err)
	}
	after, err := exec.Command("git", "-C", dir, "status", "--porcelain", "-b").Output()
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("a commit beside the branch changed the work tree from %q to %q", before, after)
	}
	git("tag", "v0.1.0")
	wrong("v0.1.0", "exists")
}
