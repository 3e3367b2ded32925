// Command release makes a release of all modules of this repository. make release runs it:
//
//	make release VERSION=v0.1.0        # checks everything, and changes nothing
//	make release VERSION=v0.1.0 TAG=1  # makes the tags too, and says how to push them
//
// In the repository, the nested modules use the root through a replace directive, so a
// change of several modules is one commit. A replace directive does not reach users, and
// go install refuses it. So the tags are on a commit beside main, in which nested modules
// have no replace directive, and require the released version.
//
// Before anything is tagged, the modules are served as a proxy would serve them, and modules of
// users download, build and run them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// published are the directories of the modules that users can require. Each comes after
// its requirements. The other modules are for the tests of this repository.
var published = []string{".", "weirfile", "weirgrpc", "weirotel", "store/postgres", "store/sqlite", "store/nats", "cmd/weir"}

const root = "github.com/weir-go/weir"

// modulePath returns the path of the module in a directory.
func modulePath(dir string) string {
	if dir == "." {
		return root
	}
	return root + "/" + dir
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	version := flag.String("version", "", "the version, for example v0.1.0")
	tag := flag.Bool("tag", false, "make the tags; without it, nothing is changed")
	flag.Parse()
	if err := run(context.Background(), "../..", *version, *tag); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, repo, version string, tag bool) error {
	repo, err := filepath.Abs(repo)
	if err != nil {
		return err
	}
	if err := check(ctx, repo, version); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	r := &release{version: version, tree: filepath.Join(work, "tree"), proxy: filepath.Join(work, "proxy"), build: true}
	if err := r.make(ctx, repo); err != nil {
		return err
	}
	if err := r.use(ctx, filepath.Join(work, "users"), users); err != nil {
		return err
	}
	names := make([]string, len(published))
	for i, dir := range published {
		names[i] = strings.TrimPrefix(dir+"/"+version, "./")
	}
	if !tag {
		log.Printf("the modules work; -tag would make the tags %s", strings.Join(names, ", "))
		return nil
	}
	commit, err := r.commit(ctx, repo, filepath.Join(work, "index"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := command(ctx, repo, nil, "git", "tag", "-a", "-m", "weir "+version, name, commit); err != nil {
			return err
		}
	}
	log.Printf("to publish: git push origin %s", strings.Join(names, " "))
	return nil
}

var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// check returns why the repository is not ready.
func check(ctx context.Context, repo, version string) error {
	if !semver.MatchString(version) {
		return fmt.Errorf("the version is %q: it must be like v0.1.0", version)
	}
	var errs []error
	if out, err := command(ctx, repo, nil, "git", "status", "--porcelain"); err != nil {
		return err
	} else if len(out) > 0 {
		errs = append(errs, fmt.Errorf("the work tree has changes that are not committed:\n%s", out))
	}
	if out, err := command(ctx, repo, nil, "git", "tag", "--list", version); err != nil {
		return err
	} else if len(out) > 0 {
		errs = append(errs, fmt.Errorf("the tag %s exists", version))
	}
	text, err := os.ReadFile(filepath.Join(repo, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	entry := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(strings.TrimPrefix(version, "v")) + ` (\d{4}-\d\d-\d\d)$`)
	if !entry.Match(text) {
		errs = append(errs, fmt.Errorf("CHANGELOG.md has no heading like %q", "## "+strings.TrimPrefix(version, "v")+" 2026-12-31"))
	}
	return errors.Join(errs...)
}

// A release is the modules of a version, in a copy of the repository.
type release struct {
	version     string
	tree, proxy string // directories: the copy, and what a proxy of the modules serves
	build       bool   // compile all modules of users; otherwise only load their packages
}

// make copies the repository, prepares its modules, and puts them into the proxy.
func (r *release) make(ctx context.Context, repo string) error {
	out, err := command(ctx, repo, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(repo, name), filepath.Join(r.tree, name)); err != nil && !errors.Is(err, os.ErrNotExist) { // deleted, and not committed
			return err
		}
	}
	for _, dir := range published {
		if err := r.prepare(ctx, dir); err != nil {
			return fmt.Errorf("%s: %w", modulePath(dir), err)
		}
		if err := publish(r.proxy, filepath.Join(r.tree, dir), modulePath(dir), r.version); err != nil {
			return fmt.Errorf("%s: %w", modulePath(dir), err)
		}
	}
	return nil
}

// prepare makes the go.mod and the go.sum of a module what users need, and adds the licence,
// which a proxy would take from the root.
func (r *release) prepare(ctx context.Context, dir string) error {
	if dir == "." {
		return nil
	}
	at := filepath.Join(r.tree, dir)
	args := []string{"mod", "edit"}
	for _, other := range published {
		args = append(args, "-dropreplace="+modulePath(other))
	}
	text, err := os.ReadFile(filepath.Join(at, "go.mod"))
	if err != nil {
		return err
	}
	for _, m := range regexp.MustCompile(`(?m)^\s(`+regexp.QuoteMeta(root)+`\S*) v0\.0\.0\S*$`).FindAllSubmatch(text, -1) {
		args = append(args, "-require="+string(m[1])+"@"+r.version)
	}
	if _, err := command(ctx, at, r.env(), "go", args...); err != nil {
		return err
	}
	if _, err := command(ctx, at, r.env(), "go", "mod", "tidy"); err != nil {
		return err
	}
	if text, err := os.ReadFile(filepath.Join(at, "go.mod")); err != nil {
		return err
	} else if regexp.MustCompile(`(?m)^replace |^\s` + regexp.QuoteMeta(root) + `\S* v0\.0\.0`).Match(text) {
		return fmt.Errorf("its go.mod still has a replace directive, or requires no version:\n%s", text)
	}
	return copyFile(filepath.Join(r.tree, "LICENSE"), filepath.Join(at, "LICENSE"))
}

// commit makes a commit of the tree, beside the branch, and returns its hash.
func (r *release) commit(ctx context.Context, repo, index string) (string, error) {
	env := []string{"GIT_INDEX_FILE=" + index, "GIT_WORK_TREE=" + r.tree}
	if _, err := command(ctx, repo, env, "git", "add", "--all", "--force", "."); err != nil {
		return "", err
	}
	tree, err := command(ctx, repo, env, "git", "write-tree")
	if err != nil {
		return "", err
	}
	commit, err := command(ctx, repo, nil, "git", "commit-tree", strings.TrimSpace(string(tree)), "-p", "HEAD", "-m", "release: prepare weir "+r.version)
	return strings.TrimSpace(string(commit)), err
}

// A user is a module of somebody else.
type user struct {
	packages []string
	client   string   // the only client library that it may download
	args     []string // of go, to run in it
}

// clients are the client libraries that the root module requires.
var clients = []string{"github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/valkey-io/valkey-go", "github.com/gomodule/redigo"}

// users use each module, and each adapter alone.
var users = []user{
	{packages: []string{"", "/algorithm", "/store/memory", "/store/kit", "/conformance", "/weirhttp", "/weirhttp/admin", "/outage"}},
	{packages: []string{"/store/goredis"}, client: clients[0], args: []string{"run", root + "/examples/quickstart"}},
	{packages: []string{"/store/rueidis"}, client: clients[1]},
	{packages: []string{"/store/valkey"}, client: clients[2]},
	{packages: []string{"/store/redigo"}, client: clients[3]},
	{packages: []string{"/weirfile"}},
	{packages: []string{"/weirgrpc"}},
	{packages: []string{"/weirotel"}},
	{packages: []string{"/store/postgres"}},
	{packages: []string{"/store/sqlite"}},
	{packages: []string{"/store/nats"}},
	{args: []string{"install", root + "/cmd/weir@VERSION"}},
}

// use makes a module of each user in a directory, and builds it.
func (r *release) use(ctx context.Context, dir string, all []user) error {
	for i, u := range all {
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := r.useOne(ctx, at, u); err != nil {
			return fmt.Errorf("a module that uses %q, %q: %w", u.packages, u.args, err)
		}
	}
	return nil
}

func (r *release) useOne(ctx context.Context, at string, u user) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	env := append(r.env(), "GOBIN="+filepath.Join(at, "bin"))
	program := "package main\n\nimport (\n"
	for _, p := range u.packages {
		program += fmt.Sprintf("\t_ %q\n", root+p)
	}
	if err := os.WriteFile(filepath.Join(at, "main.go"), []byte(program+")\n\nfunc main() {}\n"), 0o644); err != nil {
		return err
	}
	steps := [][]string{{"mod", "init", "example.com/user"}}
	for _, p := range u.packages {
		steps = append(steps, []string{"get", root + p + "@" + r.version})
	}
	check := []string{"list", "-deps", "."}
	if r.build {
		check = []string{"build", "-o", os.DevNull, "."}
	}
	if len(u.packages) > 0 {
		steps = append(steps, check)
	}
	for _, args := range steps {
		if _, err := command(ctx, at, env, "go", args...); err != nil {
			return err
		}
	}
	sum, err := os.ReadFile(filepath.Join(at, "go.sum"))
	if err != nil && len(u.packages) > 0 {
		return err
	}
	for line := range strings.Lines(string(sum)) {
		f := strings.Fields(line)
		// A go.mod is only read, to choose versions.
		if slices.Contains(clients, f[0]) && !strings.HasSuffix(f[1], "/go.mod") && f[0] != u.client {
			return fmt.Errorf("it downloads %s, which it does not need", f[0])
		}
	}
	if u.args == nil {
		return nil
	}
	args := slices.Clone(u.args)
	if !r.build && args[0] == "install" {
		args = slices.Insert(args, 1, "-n") // it still refuses a replace directive
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "VERSION", r.version)
	}
	_, err = command(ctx, at, append(env, "GOFLAGS=-mod=mod"), "go", args...)
	return err
}

// env returns the environment of commands that use the modules of the release.
func (r *release) env() []string {
	return []string{"GOPROXY=file://" + r.proxy + "," + upstream, "GONOSUMDB=" + root + "," + os.Getenv("GONOSUMDB"), "GOWORK=off", "GOFLAGS="}
}
