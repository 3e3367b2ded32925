package weirfile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store/memory"
)

// limitsOfText returns the Limits of a file with this text.
func limitsOfText(t *testing.T, text string, opts *Options) *Limits {
	t.Helper()
	f, err := Parse("x.yaml", []byte(text), opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Limits(memory.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wordsOf describes the rules of a limiter.
func wordsOf(lim *weir.Limiter) string {
	var list []string
	for _, r := range lim.Rules() {
		list = append(list, r.Name+" "+fmt.Sprint(r.Limit))
	}
	return strings.Join(list, ", ")
}

const shop = `policies:
  api:
    segments: [tenant, user]
    rules:
      tenant: {by: [tenant], algorithm: gcra, rate: 100 per second, burst: 100}
      user: {algorithm: fixed window, limit: 10, window: 1h}
    plans:
      pro:
        user: {limit: 50}
        tenant: {rate: 500 per second, burst: 500}
    overrides:
      - {key: [acme, ann], plan: pro}
      - {key: [acme, bob], rules: {user: {limit: 20}}}
      - {key: [acme, cid], plan: pro, rules: {user: {limit: 70}}}
      - {key: [acme, 42], rules: {user: {limit: 7}}}
  login:
    rules:
      address: {algorithm: sliding log, limit: 5, window: 15m}
    overrides:
      - {key: 10.0.0.1, rules: {address: {limit: 500}}}
`

// An override that changes a shared rule for one of its callers is a warning. It is none
// in a plan, which all of them can have, or with the limit of that plan.
func TestWarnings(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]int{"": 1, ", tenant: {rate: 900 per second}": 2, ", tenant: {burst: 500}": 1, ", tenant: {cost: 2}": 1} {
		got := brief(limitsOfText(t, strings.Replace(shop, "{limit: 70}", "{limit: 70}"+rules, 1), nil).File().Warnings())
		if n := strings.Count(got, `changes the rule "tenant", which counts all keys with the same tenant`); n != want || !strings.HasPrefix(got, "12:9 ") || strings.Contains(got, "14:9 ") != (want == 2) {
			t.Errorf("%q: got %s", rules, got)
		}
	}
	if err := limitsOfText(t, good, nil).File().Warnings(); err != nil {
		t.Error(err)
	}
}

// JSON has surrogate pairs, which YAML lacks. A plan, or an override, without
// rules has the policy's.
func TestJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`\ud83d\ude00`: "😀", `\uD83D\uDE00\ud83d\ude01`: "😀😁", `\\ud83d\\ude00`: `\ud83d\ude00`, `\u00e9\"\ud83d\ude00`: `é"😀`} {
		l := limitsOfText(t, `{"policies":{"api":{"rules":{"r":{"algorithm":"sliding log","limit":1,"window":"1s"}},"plans":{"`+text+`":{},"pro":{"r":{"limit":2}}},"overrides":[{"key":"b","rules":{}}]}}}`, nil)
		pinned, _ := l.For(t.Context(), "api", "pro", weir.KeyOf("b"))
		lim, err := l.For(t.Context(), "api", want, weir.KeyOf("a"))
		if err != nil || wordsOf(lim) != "r 1" || wordsOf(pinned) != "r 1" {
			t.Errorf("%s: got %v and %v, %v", text, wordsOf(lim), wordsOf(pinned), err)
		}
	}
	if _, err := Parse("x.yaml", []byte(`{"a": "\ud83d"}`), nil); err == nil || !strings.Contains(err.Error(), "escape code") {
		t.Errorf("half a pair: got %v", err)
	}
}

func TestFor(t *testing.T) {
	t.Parallel()
	l := limitsOfText(t, shop, nil)
	for _, c := range []struct {
		policy, plan string
		key          weir.Key
		want, source string
	}{
		{"api", "", weir.KeyOf("acme", "x"), "tenant 100, user 10", "policy api (x.yaml:2)"},
		{"api", "pro", weir.KeyOf("acme", "x"), "tenant 500, user 50", "plan pro (x.yaml:8)"},
		{"api", "", weir.KeyOf("acme", "ann"), "tenant 500, user 50", "override with plan pro (x.yaml:12)"},
		{"api", "pro", weir.KeyOf("acme", "bob"), "tenant 100, user 20", "override (x.yaml:13)"},
		{"api", "", weir.KeyOf("acme", "cid"), "tenant 500, user 70", "override with plan pro (x.yaml:14)"},
		{"api", "", weir.KeyOf("acme", "42"), "tenant 100, user 7", "override (x.yaml:15)"},
		{"login", "", weir.KeyOf("10.0.0.1"), "address 500", "override (x.yaml:20)"},
		{"login", "", weir.KeyOf("10.0.0.2"), "address 5", "policy login (x.yaml:16)"},
	} {
		lim, err := l.For(t.Context(), c.policy, c.plan, c.key)
		if err != nil {
			t.Fatal(err)
		}
		if got := wordsOf(lim); got != c.want {
			t.Errorf("%s %q %v: got %s, want %s", c.policy, c.plan, c.key.Segments(), got, c.want)
		}
		if again, _ := l.For(t.Context(), c.policy, c.plan, c.key); again != lim {
			t.Errorf("%s %q %v: got another limiter the second time", c.policy, c.plan, c.key.Segments())
		}
		if s, err := l.Source(t.Context(), c.policy, c.plan, c.key); err != nil || s.String() != c.source {
			t.Errorf("%s %q %v: got %v, %v, want %s", c.policy, c.plan, c.key.Segments(), s, err, c.source)
		}
	}
	for _, c := range []struct{ policy, plan, want string }{
		{"apo", "", `weirfile: x.yaml has no policy "apo": did you mean "api"?`},
		{"api", "prp", `weirfile: policy "api" has no plan "prp": did you mean "pro"?`},
		{"login", "pro", `weirfile: policy "login" has no plan "pro": there is none`},
	} {
		if lim, err := l.For(t.Context(), c.policy, c.plan, weir.KeyOf("acme", "ann")); !errors.Is(err, ErrUnknown) || err.Error() != c.want || lim != nil {
			t.Errorf("got %v, %v, want %s", lim, err, c.want)
		}
	}
}

func TestZeroLimits(t *testing.T) {
	t.Parallel()
	for _, l := range []*Limits{nil, new(Limits)} {
		if lim, err := l.For(t.Context(), "api", "", weir.KeyOf("a")); err == nil || lim != nil {
			t.Errorf("For: got %v, %v", lim, err)
		}
		if err := l.Watch(t.Context()); err == nil {
			t.Error("Watch: got no error")
		}
		if err := l.Reload(); err == nil || l.Status().Err == nil || l.File() != nil {
			t.Error(err, l.Status(), l.File())
		}
	}
	f, err := Parse("x.yaml", []byte(shop), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Limits(nil); err == nil {
		t.Error("Limits(nil): got no error")
	}
	l, err := f.Limits(memory.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Watch(t.Context()); err == nil || !strings.Contains(err.Error(), "use Load") {
		t.Errorf("got %v", err)
	}
}

func TestForAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ask := func(context.Context, string, weir.Key) (Override, bool, error) {
		return Override{Plan: "pro"}, true, nil
	}
	for _, opts := range []*Options{nil, {Override: ask}} {
		l, ctx := limitsOfText(t, shop, opts), t.Context()
		for _, key := range []weir.Key{weir.KeyOf("acme", "ann"), weir.KeyOf("acme", "x")} {
			if n := testing.AllocsPerRun(100, func() {
				if _, err := l.For(ctx, "api", "pro", key); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v: got %v allocations, want 0", key.Segments(), n)
			}
		}
	}
}

// The wrappers of a policy stand around the limiters of its plans and overrides, and are
// made once.
func TestWrap(t *testing.T) {
	t.Parallel()
	seen, calls := 0, 0
	l := limitsOfText(t, shop, &Options{Wrap: func(policy string) []weir.Wrapper {
		calls++
		if policy != "api" {
			return nil
		}
		return []weir.Wrapper{observe.Observer(func(context.Context, observe.Decision) { seen++ }).Wrap}
	}})
	for _, c := range []struct{ plan, user string }{{"", "x"}, {"pro", "x"}, {"", "ann"}, {"", "bob"}, {"", "cid"}} {
		lim, err := l.For(t.Context(), "api", c.plan, weir.KeyOf("acme", c.user))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lim.Allow(t.Context(), "acme", c.user); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 5 || calls != 2 {
		t.Errorf("the wrapper saw %d decisions, and Wrap was called %d times: want 5 and 2", seen, calls)
	}
	// An error of a wrapper names the policy's place.
	bad := errors.New("does not suit")
	f, err := Parse("x.yaml", []byte(shop), &Options{Wrap: func(string) []weir.Wrapper {
		return []weir.Wrapper{func(*weir.Limiter, weir.Decider) (weir.Decider, error) { return nil, bad }}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Limits(memory.New(nil)); !errors.Is(err, bad) || !strings.Contains(err.Error(), `x.yaml:2:3: policy "api": does not suit`) {
		t.Errorf("got %v", err)
	}
}

// mine is an algorithm of the user.
type mine struct {
	algorithm.FixedWindow // not a field of a file

	MaxUsers int32
	Slow     bool
	Until    time.Time
	From     time.Duration `weirfile:"clock"`
}

func (m mine) NewLimit() (*contract.Limit, error) {
	return algorithm.FixedWindow{Limit: int64(m.MaxUsers), Window: m.Window}.NewLimit()
}

func TestOwnAlgorithm(t *testing.T) {
	t.Parallel()
	opts := &Options{Algorithms: map[string]algorithm.Algorithm{"users": mine{FixedWindow: algorithm.FixedWindow{Window: time.Hour}}}}
	f, err := Parse("x.yaml", one(`algorithm: users, max users: 5, slow: true, until: "2030-01-02T03:04:05Z", from: "06:00"`), opts)
	if err != nil {
		t.Fatal(err)
	}
	want := mine{algorithm.FixedWindow{Window: time.Hour}, 5, true, time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), 6 * time.Hour}
	got := f.Policies()[0].Rules[0].Algorithm
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if text, want := f.Describe(got), `algorithm: users, max users: 5, slow: true, until: "2030-01-02T03:04:05Z", from: "06:00"`; text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if got := Describe(got, nil); got != "weirfile.mine" {
		t.Errorf("got %s", got)
	}
	to, err := Parse("x.yaml", one(`algorithm: users, max users: 9, slow: true, until: "2030-01-02T03:04:05Z", from: "06:00"`), opts)
	if err != nil {
		t.Fatal(err)
	}
	if c := Diff(f, to); len(c) != 1 || c[0].Effect != Kept || c[0].Text != "the count and the end of the current window stay" {
		t.Errorf("got %+v, want what Carry says", c)
	}
	_, err = Parse("x.yaml", one("algorithm: user, max users: 5"), opts)
	if err == nil || !strings.Contains(err.Error(), `algorithm is "user": did you mean "users"?`) {
		t.Errorf("got %v", err)
	}
	_, err = Parse("x.yaml", one("algorithm: users, max users: 5000000000"), opts)
	if err == nil || !strings.Contains(err.Error(), `max users is "5000000000": it is too large`) {
		t.Errorf("got %v", err)
	}
	for name, a := range map[string]algorithm.Algorithm{
		"gcra": mine{}, "": mine{}, "Users": mine{}, "cost": struct {
			algorithm.GCRA
			Cost int
		}{}, "nil": nil, "nil pointer": (*algorithm.GCRA)(nil), "func": funcAlgorithm(nil),
	} {
		if _, err := Parse("x.yaml", []byte(shop), &Options{Algorithms: map[string]algorithm.Algorithm{name: a}}); err == nil {
			t.Errorf("%q, %T: got no error", name, a)
		}
	}
}

type funcAlgorithm func()

func (funcAlgorithm) NewLimit() (*contract.Limit, error) { return algorithm.GCRA{}.NewLimit() }

// asker is a function of Options.Override, for a test.
type asker struct {
	mu    sync.Mutex
	calls []string
	next  func(key string) (Override, bool, error)
}

func (a *asker) override(_ context.Context, policy string, key weir.Key) (Override, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := policy + " " + strings.Join(key.Segments(), " ")
	a.calls = append(a.calls, name)
	return a.next(name)
}

func TestOverrideFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		a := &asker{next: func(string) (Override, bool, error) { return Override{Plan: "pro"}, true, nil }}
		var reported []error
		l := limitsOfText(t, shop, &Options{Override: a.override, OnError: func(err error) { reported = append(reported, err) }})
		expect := func(user, want string, calls, failures int) {
			t.Helper()
			lim, err := l.For(t.Context(), "api", "", weir.KeyOf("acme", user))
			if err != nil {
				t.Fatal(err)
			}
			if got := wordsOf(lim); got != want || len(a.calls) != calls || len(reported) != failures || l.Status().OverrideFailures != int64(failures) {
				t.Errorf("got %s after %d calls, %v, %+v: want %s, %d, %d", got, len(a.calls), reported, l.Status(), want, calls, failures)
			}
		}
		const policy, pro = "tenant 100, user 10", "tenant 500, user 50"
		expect("ann", pro, 0, 0) // in the file
		expect("dan", pro, 1, 0)
		expect("dan", pro, 1, 0)
		time.Sleep(time.Minute)
		expect("dan", pro, 1, 0)
		// After a minute, the function is called again. If it fails, the last result
		// stays.
		a.next = func(string) (Override, bool, error) { return Override{}, false, boom }
		time.Sleep(time.Nanosecond)
		expect("dan", pro, 2, 1)
		expect("dan", pro, 2, 1)
		if err := l.Status().OverrideErr; !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Second + 1)
		expect("dan", pro, 3, 2)
		// Without a last result, the limits are those of the plan or the policy.
		expect("eve", policy, 4, 3)
		expect("eve", policy, 4, 3)
		// An invalid override is an error too.
		a.next = func(string) (Override, bool, error) { return Override{Plan: "prp"}, true, nil }
		time.Sleep(time.Second + 1)
		expect("eve", policy, 5, 4)
		a.next = func(string) (Override, bool, error) {
			return Override{Rules: []weir.Rule{{Name: "user", Algorithm: algorithm.FixedWindow{Limit: 3, Window: time.Hour}}}}, true, nil
		}
		time.Sleep(time.Second + 1)
		expect("eve", "tenant 100, user 3", 6, 4)
		if err := l.Status().OverrideErr; err != nil {
			t.Errorf("got %v", err)
		}
		// The key has none any more.
		a.next = func(string) (Override, bool, error) { return Override{}, false, nil }
		time.Sleep(time.Minute + 1)
		expect("eve", policy, 7, 4)
		if s, err := l.Source(t.Context(), "api", "", weir.KeyOf("acme", "eve")); err != nil || s.Asked {
			t.Errorf("got %v, %v", s, err)
		}
		// It is not asked about a key that no decision accepts.
		if _, err := l.For(t.Context(), "api", "", weir.KeyOf("acme")); !errors.Is(err, weir.ErrInvalidKey) || len(a.calls) != 7 {
			t.Errorf("got %v after %d calls", err, len(a.calls))
		}
	})
}

// No more than MaxOverrides results are kept, and keys in use are among them.
func TestMaxOverrides(t *testing.T) {
	t.Parallel()
	a := &asker{next: func(string) (Override, bool, error) { return Override{}, false, nil }}
	l := limitsOfText(t, shop, &Options{Override: a.override, MaxOverrides: 10})
	for i := range 100 {
		for _, key := range []weir.Key{weir.KeyOf("acme", fmt.Sprint("u", i)), weir.KeyOf("acme", "busy")} {
			if _, err := l.For(t.Context(), "api", "", key); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(l.asked.recent) + len(l.asked.older); n > 10 {
			t.Fatalf("%d results are kept, want at most 10", n)
		}
	}
	if len(a.calls) != 101 {
		t.Errorf("the function was called %d times, want 101", len(a.calls))
	}
}

// Calls about a new key wait for the first one, at most until their own context ends. If
// its context ends, the next one asks. A panic counts as a failure.
func TestOverrideAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var l *Limits
		l = limitsOfText(t, shop, &Options{Override: func(ctx context.Context, _ string, key weir.Key) (Override, bool, error) {
			calls.Add(1)
			select {
			case <-ctx.Done():
				return Override{}, false, ctx.Err()
			case <-time.After(time.Minute):
			}
			if key.Segments()[1] == "mad" {
				panic("mad")
			}
			return Override{Plan: "pro"}, true, nil
		}, OnError: func(error) {
			if calls.Load() > 2 { // the panic: the key can be asked for meanwhile
				_, _ = l.For(t.Context(), "api", "", weir.KeyOf("acme", "mad"))
			}
		}})
		var wg sync.WaitGroup
		get := func(ctx context.Context, user, want string, after time.Duration) {
			wg.Go(func() {
				defer func() { _ = recover() }()
				start := time.Now()
				if lim, err := l.For(ctx, "api", "", weir.KeyOf("acme", user)); err != nil || wordsOf(lim) != want || time.Since(start) != after {
					t.Errorf("got %v, %v after %v, want %s after %v", wordsOf(lim), err, time.Since(start), want, after)
				}
			})
			synctest.Wait()
		}
		const plain, pro = "tenant 100, user 10", "tenant 500, user 50"
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		get(short, "dan", plain, time.Second)
		get(short, "dan", plain, time.Second)
		for range 100 {
			get(t.Context(), "dan", pro, time.Second+time.Minute)
		}
		get(t.Context(), "mad", "a panic", 0)
		get(t.Context(), "mad", plain, time.Minute)
		wg.Wait()
		if s := l.Status(); calls.Load() != 3 || s.OverrideFailures != 2 {
			t.Errorf("%d calls, want 3, and %d failures, want 2: %v", calls.Load(), s.OverrideFailures, s.OverrideErr)
		}
	})
}

// One goroutine replaces an old result, and the others use it meanwhile. A call whose own
// context ends changes nothing.
func TestOverrideConcurrent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &asker{next: func(string) (Override, bool, error) { return Override{Plan: "pro"}, true, nil }}
		l := limitsOfText(t, shop, &Options{Override: func(ctx context.Context, policy string, key weir.Key) (Override, bool, error) {
			o, found, err := a.override(ctx, policy, key)
			time.Sleep(time.Second)
			return o, found, err
		}})
		get := func() {
			lim, err := l.For(t.Context(), "api", "", weir.KeyOf("acme", "dan"))
			if err != nil || wordsOf(lim) != "tenant 500, user 50" {
				t.Error(lim, err)
			}
		}
		get()
		time.Sleep(time.Hour)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(get)
		}
		wg.Wait()
		if len(a.calls) != 2 {
			t.Errorf("the function was called %d times, want 2", len(a.calls))
		}
	})
}
