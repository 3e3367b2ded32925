package weirfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
)

// write writes a file as a careful program does: under another name first.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// load loads the file, and makes its limits over a memory store.
func load(t *testing.T, path string, opts *Options) *Limits {
	t.Helper()
	f, err := Load(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	return limitsOver(t, f, memory.New(nil))
}

// login returns the words of the policy login.
func login(t *testing.T, l *Limits) string {
	t.Helper()
	return wordsOf(limiter(t, l, "login", "", "10.0.0.9"))
}

const five, six = "limit: 5,", "limit: 6,"

// A file that cannot be used changes nothing, and each check reports it.
func TestReloadFailures(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, shop)
	var reported, loaded int
	l := load(t, path, &Options{OnError: func(error) { reported++ }, OnLoad: func(*File) { loaded++ }})
	for i, c := range []struct{ text, want string }{
		{"", "the file is empty"},
		{shop[:len(shop)/2], "does not end with a line break"},
		{shop + "x: y\n", `no field "x"`},
		{strings.Replace(shop, five, "limit: 0,", 1), "limit is 0"},
		{shop[:strings.Index(shop, "  login:")], `policy "login": rejected: a running program asks for the policy, which the file lacks`},
		{strings.NewReplacer("pro:", "max:", "plan: pro", "plan: max").Replace(shop), `policy "api", plan "pro": rejected: a running program asks for the plan, which the file lacks`},
		{"gone", "no such file"},
	} {
		write(t, path, c.text)
		if c.text == "gone" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		for again := range 2 {
			err := l.Reload()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%q: got %v, want %s", c.text, err, c.want)
			}
			s := l.Status()
			if want := 2*i + again + 1; reported != want || s.Failures != int64(want) || s.Err != err || s.Generation != 1 || loaded != 0 {
				t.Errorf("%s: %d reports, %+v, %d loads", c.want, reported, s, loaded)
			}
			if got := login(t, l); got != "address 5" {
				t.Errorf("%s: got %s", c.want, got)
			}
		}
	}
	if !errors.Is(l.Status().Err, fs.ErrNotExist) {
		t.Errorf("got %v", l.Status().Err)
	}
	// The old content again is a success, and no change.
	write(t, path, shop)
	if err := l.Reload(); err != nil || l.Status().Err != nil || l.Status().Generation != 1 || loaded != 0 {
		t.Errorf("got %v, %+v", err, l.Status())
	}
	write(t, path, strings.Replace(shop, five, six, 1))
	if err := l.Reload(); err != nil || l.Status().Generation != 2 || loaded != 1 || login(t, l) != "address 6" {
		t.Errorf("got %v, %+v, %s", err, l.Status(), login(t, l))
	}
}

// Watch puts a changed file into use at the second check that sees it, and reports a
// failure at each check.
func TestWatch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, shop)
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		l := load(t, path, &Options{Interval: time.Second, OnError: func(err error) { reported = append(reported, err) }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Watch(ctx) }()
		pass := func(seconds int) { // half a second after a check
			time.Sleep(time.Duration(seconds) * time.Second)
			synctest.Wait()
		}
		time.Sleep(time.Second / 2)
		write(t, path, strings.Replace(shop, five, six, 1))
		if pass(1); login(t, l) != "address 5" {
			t.Error("the change was used at the first check")
		}
		if pass(1); login(t, l) != "address 6" || len(reported) != 0 {
			t.Errorf("got %s, %v", login(t, l), reported)
		}
		// A file that is being written is not reported.
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		pass(1)
		write(t, path, shop)
		if pass(1); login(t, l) != "address 6" || len(reported) != 0 {
			t.Errorf("after the first check, got %s, %v", login(t, l), reported)
		}
		if pass(1); login(t, l) != "address 5" || len(reported) != 0 {
			t.Errorf("got %s, %v", login(t, l), reported)
		}
		// After a check that cannot read the file, two more have to agree.
		write(t, path, strings.Replace(shop, five, six, 1))
		pass(1)
		_ = os.Remove(path)
		pass(1)
		write(t, path, strings.Replace(shop, five, six, 1))
		if pass(1); login(t, l) != "address 5" || len(reported) != 1 {
			t.Errorf("got %s, %v", login(t, l), reported)
		}
		write(t, path, "x: y\n")
		pass(6)
		if len(reported) != 6 || login(t, l) != "address 5" {
			t.Errorf("%d failures were reported, want 6, of which 5 in 6 checks: %v", len(reported), reported)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// Kubernetes updates a ConfigMap as here: the file is a link into the directory ..data,
// which is a link that is replaced.
func TestConfigMap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mount := func(version, text string) {
		must(os.Mkdir(filepath.Join(dir, version), 0o700))
		must(os.WriteFile(filepath.Join(dir, version, "limits.yaml"), []byte(text), 0o600))
		must(os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	mount("..2026_01_01", shop)
	path := filepath.Join(dir, "limits.yaml")
	must(os.Symlink(filepath.Join("..data", "limits.yaml"), path))
	synctest.Test(t, func(t *testing.T) {
		l := load(t, path, &Options{Interval: time.Second, OnError: func(err error) { t.Error(err) }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = l.Watch(ctx) }()
		before, err := os.Lstat(path)
		must(err)
		mount("..2026_01_02", strings.Replace(shop, five, six, 1))
		must(os.RemoveAll(filepath.Join(dir, "..2026_01_01")))
		time.Sleep(2*time.Second + 1)
		synctest.Wait()
		if got := login(t, l); got != "address 6" {
			t.Errorf("got %s, want address 6", got)
		}
		if after, err := os.Lstat(path); err != nil || !after.ModTime().Equal(before.ModTime()) {
			t.Error("the link itself has changed, so the test shows nothing", err)
		}
	})
}

// The results of Options.Override stay when the file changes.
func TestReloadKeepsOverrides(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, shop)
	a := &asker{next: func(string) (Override, bool, error) {
		return Override{Key: weir.KeyOf("acme", ""), Plan: "pro"}, true, nil
	}}
	l := load(t, path, &Options{Override: a.override})
	for _, limit := range []string{"50", "60"} {
		write(t, path, strings.Replace(shop, "limit: 50", "limit: "+limit, 1))
		if err := l.Reload(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := wordsOf(limiter(t, l, "api", "", "acme", "dan")); got != "tenant 500, user "+limit || len(a.calls) != 1 {
				t.Errorf("got %s after %d calls", got, len(a.calls))
			}
		}
	}
}

// While the file changes under load, no caller gets more than the highest limit, the used
// tokens stay used, and the status describes the limits in use.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	rule := func(limit int) []byte {
		return one(fmt.Sprintf("algorithm: fixed window, limit: %d, window: 1h", limit))
	}
	write(t, path, string(rule(100)))
	l := load(t, path, &Options{Limiter: &weir.Options{Clock: weirtest.NewClock().Now}})
	var allowed atomic.Int64
	allow := func() bool {
		res := weirtest.Decide(t, limiter(t, l, "api", "", "ann"), weir.Request{Key: weir.KeyOf("ann")})
		if res.Allowed {
			allowed.Add(1)
		}
		return res.Allowed
	}
	var callers, loaders sync.WaitGroup
	var stop atomic.Bool
	for range 4 {
		callers.Go(func() {
			for !stop.Load() {
				allow()
			}
		})
	}
	for i := range 100 {
		for _, text := range [][]byte{rule([]int{100, 300, 200, 100, 250}[i%5]), rule(150), []byte("broken\n")} {
			loaders.Go(func() {
				if err := l.load(path, text, nil); (err != nil) != (string(text) == "broken\n") {
					t.Errorf("%s: got %v", text, err)
				}
			})
		}
		loaders.Wait()
		if l.Status().Sum != l.File().sum {
			t.Fatal("the status has the sum of a file that is not in use")
		}
	}
	if err := l.load(path, rule(300), nil); err != nil {
		t.Error(err)
	}
	for allow() { // use up what is left
	}
	stop.Store(true)
	callers.Wait()
	if n := allowed.Load(); n != 300 {
		t.Errorf("%d requests were allowed, want the highest limit, 300", n)
	}
}
