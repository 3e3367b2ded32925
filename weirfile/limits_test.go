package weirfile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// parse returns the file with this text.
func parse(t *testing.T, text string, opts *Options) *File {
	t.Helper()
	f, err := Parse("x.yaml", []byte(text), opts)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return f
}

// limitsOver returns the Limits of f over a store.
func limitsOver(t *testing.T, f *File, st store.Store) *Limits {
	t.Helper()
	l, err := f.Limits(st)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// limitsOfText returns the Limits of a file with this text.
func limitsOfText(t *testing.T, text string, opts *Options) *Limits {
	t.Helper()
	return limitsOver(t, parse(t, text, opts), memory.New(nil))
}

// limiter returns the limiter of a request.
func limiter(t *testing.T, l *Limits, policy, plan string, key ...string) *weir.Limiter {
	t.Helper()
	lim, err := l.For(t.Context(), policy, plan, weir.KeyOf(key...))
	if err != nil {
		t.Fatal(err)
	}
	return lim
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
      - {match: {tenant: acme, user: ann}, plan: pro}
      - {match: {tenant: acme, user: bob}, rules: {user: {limit: 20}}}
      - {match: {tenant: acme, user: cid}, plan: pro, rules: {user: {limit: 70}}}
      - {match: {tenant: acme, user: 42}, rules: {user: {limit: 7}}}
  login:
    rules:
      address: {algorithm: sliding log, limit: 5, window: 15m}
    overrides:
      - {match: {key: 10.0.0.1}, rules: {address: {limit: 500}}}
`

// A budget that is refilled while it is spent is a warning, wherever its limit is set.
func TestWarnings(t *testing.T) {
	t.Parallel()
	const calm = "algorithm: token bucket, capacity: 10, refill: 10 per second"
	for _, c := range []struct{ rule, more, want string }{
		{"algorithm: gcra, rate: 100 per hour, burst: 100, unit: microcents", "", "1:66 100 in 1h"},
		{"algorithm: gcra, rate: 100 per hour, burst: 99, unit: microcents", "", ""},
		{"algorithm: gcra, rate: 100 per hour, burst: 100, unit: input", "", ""},
		{"algorithm: gcra, rate: 100 per hour, burst: 100", "", ""},
		{"algorithm: gcra, rate: 100 per hour, burst: 100", ", settles: true", "1:66 100 in 1h"},
		{"algorithm: gcra, rate: 100 per hour, burst: 100, cost: 1", ", settles: true", ""},
		{"algorithm: token bucket, capacity: 7, refill: 1 per 1d, unit: USD", "", "1:66 7 in 7d"},
		{"algorithm: leaky bucket, rate: 1 per 1h, queue: 9, unit: cents", "", ""},
		{"algorithm: fixed window, limit: 5, window: 30d, unit: cents", "", ""},
		{calm + ", unit: cents", ", plans: {big: {r: {capacity: 36000}}}", "1:161 36000 in 1h"},
	} {
		f := parse(t, "policies: {api: {units: [microcents, cents, input, USD], rules: {r: {"+c.rule+"}}"+c.more+"}}\n", nil)
		var got []string
		if err := f.Warnings(); err != nil {
			for line := range strings.SplitSeq(brief(err), "; ") {
				place, text, _ := strings.Cut(line, " ")
				_, text, _ = strings.Cut(text, "can spend twice its ")
				text, _, _ = strings.Cut(text, ":")
				got = append(got, place+" "+text)
			}
		}
		if list := strings.Join(got, "; "); list != c.want {
			t.Errorf("%s%s: got %q, want %q", c.rule, c.more, list, c.want)
		}
	}
}

// JSON has surrogate pairs, which YAML lacks. A plan, or an override, without
// rules has the policy's.
func TestJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`\ud83d\ude00`: "😀", `\uD83D\uDE00\ud83d\ude01`: "😀😁", `\\ud83d\\ude00`: `\ud83d\ude00`, `\u00e9\"\ud83d\ude00`: `é"😀`} {
		l := limitsOfText(t, `{"policies":{"api":{"rules":{"r":{"algorithm":"sliding log","limit":1,"window":"1s"}},"plans":{"`+text+`":{},"pro":{"r":{"limit":2}}},"overrides":[{"match":{"key":"b"},"rules":{"r":{}}}]}}}`, nil)
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
		{"api", "", weir.KeyOf("acme", "ann"), "tenant 100, user 50", "override with plan pro (x.yaml:12)"},
		{"api", "pro", weir.KeyOf("acme", "bob"), "tenant 500, user 20", "override with plan pro (x.yaml:13)"},
		{"api", "", weir.KeyOf("acme", "cid"), "tenant 100, user 70", "override with plan pro (x.yaml:14)"},
		{"api", "", weir.KeyOf("acme", "42"), "tenant 100, user 7", "override (x.yaml:15)"},
		{"login", "", weir.KeyOf("10.0.0.1"), "address 500", "override (x.yaml:20)"},
		{"login", "", weir.KeyOf("10.0.0.2"), "address 5", "policy login (x.yaml:16)"},
	} {
		lim := limiter(t, l, c.policy, c.plan, c.key.Segments()...)
		if got := wordsOf(lim); got != c.want {
			t.Errorf("%s %q %v: got %s, want %s", c.policy, c.plan, c.key.Segments(), got, c.want)
		}
		if limiter(t, l, c.policy, c.plan, c.key.Segments()...) != lim {
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

// Mistakes of the program are errors.
func TestInvalid(t *testing.T) {
	t.Parallel()
	for _, opts := range []*Options{{Interval: -1}, {OverrideAge: -1}, {MaxOverrides: -1}} {
		if _, err := Parse("x.yaml", []byte(shop), opts); err == nil || !strings.Contains(err.Error(), "it must be 0, which means") {
			t.Errorf("%+v: got %v", opts, err)
		}
	}
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
	f := parse(t, shop, nil)
	if _, err := f.Limits(nil); err == nil {
		t.Error("Limits(nil): got no error")
	}
	if err := limitsOver(t, f, memory.New(nil)).Watch(t.Context()); err == nil || !strings.Contains(err.Error(), "use Load") {
		t.Errorf("got %v", err)
	}
}

func TestForAllocs(t *testing.T) {
	if weirtest.Race {
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
		weirtest.Allow(t, limiter(t, l, "api", c.plan, "acme", c.user), weir.Request{Key: weir.KeyOf("acme", c.user)})
	}
	if seen != 5 || calls != 2 {
		t.Errorf("the wrapper saw %d decisions, and Wrap was called %d times: want 5 and 2", seen, calls)
	}
	// An error of a wrapper names the policy's place.
	bad := errors.New("does not suit")
	f := parse(t, shop, &Options{Wrap: func(string) []weir.Wrapper {
		return []weir.Wrapper{func(*weir.Limiter, weir.Decider) (weir.Decider, error) { return nil, bad }}
	}})
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
	const fields = `, slow: true, until: "2030-01-02T03:04:05Z", from: "06:00"`
	f := parse(t, string(one("algorithm: users, max users: 5"+fields)), opts)
	want := mine{algorithm.FixedWindow{Window: time.Hour}, 5, true, time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), 6 * time.Hour}
	got := f.Policies()[0].Rules[0].Algorithm
	if got != want || f.Describe(got) != "algorithm: users, max users: 5"+fields || Describe(got, nil) != "weirfile.mine" {
		t.Errorf("got %v, %s and %s, want %v", got, f.Describe(got), Describe(got, nil), want)
	}
	to := parse(t, string(one("algorithm: users, max users: 9"+fields)), opts)
	if c := Diff(f, to); len(c) != 1 || c[0].Effect != Kept || c[0].Text != "the count and the end of the current window stay" {
		t.Errorf("got %+v, want what Carry says", c)
	}
	for rule, want := range map[string]string{
		"algorithm: user, max users: 5":           `algorithm is "user": did you mean "users"?`,
		"algorithm: users, max users: 5000000000": `max users is "5000000000": it is too large`,
	} {
		if _, err := Parse("x.yaml", one(rule), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
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
