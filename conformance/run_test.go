package conformance

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir"
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
	step := func(t *T) {
		for range 20 {
			t.eval(counter, t.keys("a", 2))
		}
	}
	for _, tt := range []struct {
		name                string
		parallel, min, most int
	}{{"", 0, 1, 1}, {"", 1, 1, 1}, {"", 4, 2, 4}, {"ScriptLoss", 4, 1, 1}} {
		o := &overlap{calls: map[*memory.Store]int{}}
		var checks []string
		b := Backend{
			New:      func(*testing.T) store.Store { return slow{memory.New(nil), o} },
			Parallel: tt.parallel,
			Record:   func(o Outcome) { checks = append(checks, o.Check) },
		}
		var list []group
		for _, name := range []string{"A", "B", "C"} {
			g := group{name: name}
			for _, own := range []string{"one", "two", "three"} {
				if tt.name != "" {
					own = tt.name
				}
				g.checks = append(g.checks, check{own, "it counts", step})
			}
			list = append(list, g)
		}
		t.Run("run", func(t *testing.T) { run(t, b, list, declared{}) })
		if o.most < tt.min || o.most > tt.most {
			t.Errorf("Parallel %d, %q: up to %d checks waited together, want %d to %d", tt.parallel, tt.name, o.most, tt.min, tt.most)
		}
		want := names(list)
		if tt.parallel > 1 {
			slices.Sort(checks)
			slices.Sort(want)
		}
		if !slices.Equal(checks, want) {
			t.Errorf("Parallel %d: recorded %q, want %q", tt.parallel, checks, want)
		}
	}
}

// TestClean shows that checks leave no key behind, those that fail neither, with batches
// and without.
func TestClean(t *testing.T) {
	t.Parallel()
	shared := memory.New(nil)
	write := func(t *T) {
		t.put(t.key("a", "1"), 1)
		t.put(t.key("a", "2"), 1)
		t.setStep(t.keys("b", 1)[0], setChange{add: member})
		l := t.limiter(nil, weir.Rule{Name: "a", Algorithm: tenPerMinute}, weir.Rule{Name: "b", Algorithm: quarters})
		t.do(l, weir.Request{Key: weir.KeyOf("k"), ID: "it"}) // with a marker for each rule
	}
	fail := func(t *T) { write(t); t.fatalf("wrong") }
	crash := func(t *T) { write(t); panic("wrong") }
	for _, st := range []store.Store{shared, struct{ store.Store }{shared}, &fake{Store: shared, sets: map[string]bool{}}} {
		for _, f := range []func(*T){write, fail, crash} {
			b := Backend{New: func(*testing.T) store.Store { return st }}
			c := runCheck(t, b, check{"Clean", "", func(t *T) {
				defer func() {
					if n := len(maps.Collect(shared.All())); n < 6 {
						t.errorf("only %d keys were written", n)
					}
				}()
				f(t)
			}})
			if left := maps.Collect(shared.All()); len(left) > 0 {
				t.Errorf("%T: left behind: %v", st, left)
			}
			if len(c.failures) > 1 || strings.Contains(strings.Join(c.failures, ""), "only") {
				t.Errorf("%T: %q", st, c.failures)
			}
		}
	}
}

// TestCleanRun shows that a whole run leaves no key behind.
func TestCleanRun(t *testing.T) {
	t.Parallel()
	shared := memory.New(&memory.Options{MaxKeys: 1 << 20})
	t.Run("run", func(t *testing.T) {
		Run(t, Backend{New: func(*testing.T) store.Store { return shared }, Parallel: 8, Brief: true})
	})
	for key, ttl := range shared.All() {
		t.Errorf("left behind: %q for %v", key, ttl)
	}
}

// TestFailureLine shows that a failure names the source lines of the check, also if a
// helper finds it, and where the check is.
func TestFailureLine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		run  func(*T)
		want string
	}{
		"errorf":                 {func(t *T) { t.errorf("wrong") }, `^run_test\.go:\d+: wrong$`},
		"helper":                 {func(t *T) { t.eval(broken, t.keys("a", 1)) }, `^run_test\.go:\d+: Eval broken: `},
		"helper in another file": {func(t *T) { t.refundAs(t.limiter(nil, one(tenPerMinute)), "x", true, "k") }, `^limiter_verbs\.go:\d+, from run_test\.go:\d+: Refund`},
		"goes": {func(t *T) {
			var wg sync.WaitGroup
			t.goes(&wg, func() { t.errorf("wrong") })
			wg.Wait()
		}, `^run_test\.go:\d+: wrong$`},
	} {
		c := check{"Line", "", tt.run}
		r := runCheck(t, mutation{}.backend(), c)
		if len(r.failures) != 1 || !regexp.MustCompile(tt.want).MatchString(r.failures[0]) {
			t.Errorf("%s: got failures %q, want one that matches %s", name, r.failures, tt.want)
		}
		if !strings.HasPrefix(c.at(), "run_test.go:") {
			t.Errorf("%s: the check is at %s, want a line of this test", name, c.at())
		}
	}
	for _, g := range groups {
		for _, c := range g.checks {
			if at := c.at(); !regexp.MustCompile(`^[a-z_]+\.go:\d+$`).MatchString(at) {
				t.Errorf("%s/%s is at %q", g.name, c.name, at)
			}
		}
	}
}
