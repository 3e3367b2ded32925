package conformance

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/conformance/internal/decisions"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A slow store answers each call after 2 ms, as one far away does. It counts the checks
// that wait for an answer at the same time: each check has a slow store of its own.
type slow struct {
	*memory.Store
	waiting *overlap
}

type overlap struct {
	mu    sync.Mutex
	calls map[*memory.Store]int
	most  int
}

func (o *overlap) wait(st *memory.Store) {
	o.mu.Lock()
	o.calls[st]++
	o.most = max(o.most, len(o.calls))
	o.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	o.mu.Lock()
	if o.calls[st]--; o.calls[st] == 0 {
		delete(o.calls, st)
	}
	o.mu.Unlock()
}

func (s slow) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	s.waiting.wait(s.Store)
	return s.Store.Eval(ctx, script, keys, args, reply)
}

// TestParallel shows that as many checks as Parallel says wait together, that none runs
// beside one that makes the server lose its scripts, and that each is recorded once.
func TestParallel(t *testing.T) {
	t.Parallel()
	step := func(t *suite.T) {
		for range 20 {
			t.Eval(scripts.Counter, t.Keys("a", 2))
		}
	}
	for _, tt := range []struct {
		alone               bool
		parallel, min, most int
	}{{false, 0, 1, 1}, {false, 1, 1, 1}, {false, 4, 2, 4}, {true, 4, 1, 1}} {
		o := &overlap{calls: map[*memory.Store]int{}}
		var checks []string
		b := Backend{
			New:      func(*testing.T) store.Store { return slow{memory.New(nil), o} },
			Parallel: tt.parallel,
			Record:   func(o Outcome) { checks = append(checks, o.Check) },
		}
		var list []suite.Group
		for _, name := range []string{"A", "B", "C"} {
			g := suite.Group{Name: name}
			for _, own := range []string{"one", "two", "three"} {
				g.Checks = append(g.Checks, suite.Check{Name: own, Text: "it counts", Run: step, Alone: tt.alone})
			}
			list = append(list, g)
		}
		t.Run("run", func(t *testing.T) { run(t, b, list, declared{}) })
		if o.most < tt.min || o.most > tt.most {
			t.Errorf("Parallel %d, alone %v: up to %d checks waited together, want %d to %d", tt.parallel, tt.alone, o.most, tt.min, tt.most)
		}
		want := suite.Names(list)
		if tt.parallel > 1 {
			slices.Sort(checks)
			slices.Sort(want)
		}
		if !slices.Equal(checks, want) {
			t.Errorf("Parallel %d: recorded %q, want %q", tt.parallel, checks, want)
		}
	}
}

// TestNoProcess checks what is said if the other process does not call Run.
func TestNoProcess(t *testing.T) {
	t.Parallel()
	if _, child := suite.Where(); child {
		fmt.Println("no server")
		return
	}
	h := mutation{}.host()
	h.Where = func(*testing.T, store.Store) string { return "nowhere" }
	r := suite.Run(t, h, suite.Check{Name: "Process", Run: func(t *suite.T) { t.Process() }})
	if got := strings.Join(r.Failures, ""); !strings.Contains(got, "should call conformance.Run with Backend.Open") || !strings.Contains(got, "no server") {
		t.Errorf("got failures %q", got)
	}
}

// TestCleanFails shows that a check fails if its keys cannot be deleted, with batches and
// without.
func TestCleanFails(t *testing.T) {
	t.Parallel()
	f := newFake(mutation{eval: func(c call) ([]store.Value, error) {
		if c.s == scripts.Clean {
			return c.reply, store.ErrUnavailable
		}
		return c.right()
	}})
	f.mutation.batch = batches(func(c call, e *store.Eval) { e.Reply, e.Err = c.f.Eval(c.ctx, c.s, c.keys, c.args, c.reply) }).batch
	for _, st := range []store.Store{f, struct{ store.Store }{f}} {
		r := suite.Run(t, suite.Host{New: func(*testing.T) store.Store { return st }}, suite.Check{Name: "Clean", Run: func(t *suite.T) { t.Put(t.Key("a", "1"), 1) }})
		if len(r.Failures) != 1 || !strings.Contains(r.Failures[0], "a script that deletes 1 of its keys failed: store unavailable") {
			t.Errorf("%T: got failures %q", st, r.Failures)
		}
	}
}

// A tagged store is a struct that cannot be compared, because of its map, and is passed by
// value.
type tagged struct {
	store.Store
	tags map[string]string
}

type taggedBatcher struct {
	tagged
	store.Batcher
}

// TestClean shows that checks leave no key behind, those that fail neither, with batches
// and without.
func TestClean(t *testing.T) {
	t.Parallel()
	shared := memory.New(nil)
	write := func(t *suite.T) {
		t.Put(t.Key("a", "1"), 1)
		t.Put(t.Key("a", "2"), 1)
		t.Change(t.Keys("b", 1)[0], scripts.SetChange{Add: scripts.Member})
		d := decisions.New(t)
		l := d.Limiter(nil, weir.Rule{Name: "a", Algorithm: decisions.TenPerMinute}, weir.Rule{Name: "b", Algorithm: decisions.Quarters})
		d.Do(l, weir.Request{Key: weir.KeyOf("k"), ID: "it"}) // with a marker for each rule
	}
	fail := func(t *suite.T) { write(t); t.Fatalf("wrong") }
	crash := func(t *suite.T) { write(t); panic("wrong") }
	for _, st := range []store.Store{
		shared, struct{ store.Store }{shared}, &fake{Store: shared, sets: map[string]bool{}},
		tagged{shared, nil}, taggedBatcher{tagged{shared, nil}, &fake{Store: shared, sets: map[string]bool{}}},
	} {
		for failures, f := range []func(*suite.T){write, fail, crash} {
			h := suite.Host{New: func(*testing.T) store.Store { return st }}
			c := suite.Run(t, h, suite.Check{Name: "Clean", Run: func(t *suite.T) {
				defer func() {
					if n := len(maps.Collect(shared.All())); n < 6 {
						t.Errorf("only %d keys were written", n)
					}
				}()
				f(t)
			}})
			if left := maps.Collect(shared.All()); len(left) > 0 {
				t.Errorf("%T: left behind: %v", st, left)
			}
			if len(c.Failures) != min(failures, 1) || strings.Contains(strings.Join(c.Failures, ""), "only") {
				t.Errorf("%T: %q", st, c.Failures)
			}
		}
	}
}

// TestFailureLine shows that a failure names the source lines of the check, even if a
// helper finds it, and where the check is.
func TestFailureLine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		run  func(*suite.T)
		want string
	}{
		"errorf": {func(t *suite.T) { t.Errorf("wrong") }, `^run_test\.go:\d+: wrong$`},
		"helper": {func(t *suite.T) { t.Eval(scripts.Broken, t.Keys("a", 1)) }, `^run_test\.go:\d+: Eval broken: `},
		"helper in another file": {func(t *suite.T) {
			p := decisions.New(t).Pair(nil, decisions.One(decisions.TenPerMinute))
			t.Put(t.Key("a", "1"), 1)
			p.Same("it", t.Key("a", "1"))
		}, `^compare\.go:\d+, from run_test\.go:\d+: it: key`},
		"goes": {func(t *suite.T) {
			var wg sync.WaitGroup
			t.Goes(&wg, func() { t.Errorf("wrong") })
			wg.Wait()
		}, `^run_test\.go:\d+: wrong$`},
	} {
		c := suite.Of("Line", "", tt.run, func(t *suite.T) *suite.T { return t })
		r := suite.Run(t, mutation{}.host(), c)
		if len(r.Failures) != 1 || !regexp.MustCompile(tt.want).MatchString(r.Failures[0]) {
			t.Errorf("%s: got failures %q, want one that matches %s", name, r.Failures, tt.want)
		}
		if !strings.HasPrefix(c.At(), "run_test.go:") {
			t.Errorf("%s: the check is at %s, want a line of this test", name, c.At())
		}
	}
	for _, g := range groups() {
		for _, c := range g.Checks {
			if at := c.At(); !regexp.MustCompile(`^[a-z_]+\.go:\d+$`).MatchString(at) {
				t.Errorf("%s/%s is at %q", g.Name, c.Name, at)
			}
		}
	}
}
