package weirfile

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/unit"
	"github.com/weir-go/weir/store/memory"
)

// ruleFile returns a file with one rule.
func ruleFile(t *testing.T, rule string) *File {
	t.Helper()
	f, err := Parse("x.yaml", one(rule), nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// What a reload does to used tokens is what docs/guide/production.md says under "What
// carries over", and what Diff says.
func TestCarriesOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, low, high string
		used            int64  // of the low limit
		raised          string // the answer after the limit was raised
		usedHigh        int64
		lowered         string // the answer after the limit was lowered
		effect          Effect
	}{
		{
			"token bucket", "algorithm: token bucket, capacity: 3, refill: 10 per minute", "algorithm: token bucket, capacity: 100, refill: 10 per second",
			3, "96 left", 50, "4m48s", Kept,
		},
		{
			"gcra", "algorithm: gcra, rate: 10 per minute, burst: 3", "algorithm: gcra, rate: 10 per second, burst: 100",
			3, "8.1s", 50, "1 left", Estimated,
		},
		{
			"leaky bucket", "algorithm: leaky bucket, rate: 10 per minute, queue: 2", "algorithm: leaky bucket, rate: 10 per second, queue: 99",
			3, "18s", 50, "5s", Estimated,
		},
		{
			"fixed window", "algorithm: fixed window, limit: 3, window: 1m", "algorithm: fixed window, limit: 100, window: 1m",
			3, "96 left", 50, "1m0s", Kept,
		},
		{
			"calendar", "algorithm: calendar, limit: 3, every: day", "algorithm: calendar, limit: 100, every: day",
			3, "96 left", 50, "24h0m0s", Kept,
		},
		{
			"sliding log", "algorithm: sliding log, limit: 3, window: 1m", "algorithm: sliding log, limit: 100, window: 1m",
			3, "96 left", 50, "1m0s", Kept,
		},
		{
			"sliding counter", "algorithm: sliding counter, limit: 3, window: 1m", "algorithm: sliding counter, limit: 100, window: 1m",
			3, "96 left", 50, "1m57.6", Kept,
		},
		{
			"sliding buckets", "algorithm: sliding buckets, width: 1s, spans: [{window: 1m, limit: 3}]", "algorithm: sliding buckets, width: 1s, spans: [{window: 1m, limit: 100}]",
			3, "96 left", 50, "1m0s", Kept,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := reload(t, c.low, c.high, c.used); got != c.raised {
				t.Errorf("raised: got %s, want %s", got, c.raised)
			}
			if got := reload(t, c.high, c.low, c.usedHigh); !strings.HasPrefix(got, c.lowered) {
				t.Errorf("lowered: got %s, want %s", got, c.lowered)
			}
			for _, changes := range [][]Change{Diff(ruleFile(t, c.low), ruleFile(t, c.high)), Diff(ruleFile(t, c.high), ruleFile(t, c.low))} {
				if len(changes) != 1 || changes[0].Effect != c.effect || changes[0].Rule != "r" || changes[0].Line != 1 {
					t.Errorf("got %v, want %s", changes, c.effect)
				}
			}
		})
	}
}

// reload consumes used tokens under the rule from, loads a file with the rule to, and
// makes one request at once. It returns the tokens that are left, or the time to wait.
func reload(t *testing.T, from, to string, used int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, string(one(from)))
	now := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	l := load(t, path, &Options{Limiter: &weir.Options{Clock: func() time.Time { return now }}})
	allow := func() weir.Result {
		lim, err := l.For(t.Context(), "api", "", weir.KeyOf("ann"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf("ann"), Cost: 1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	lim, err := l.For(t.Context(), "api", "", weir.KeyOf("ann"))
	if err != nil {
		t.Fatal(err)
	}
	for range used {
		if lim.Rules()[0].Queues {
			if _, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf("ann"), Cost: 1, MaxWait: time.Hour}, nil); err != nil {
				t.Fatal(err)
			}
		} else if res := allow(); !res.Allowed {
			t.Fatalf("a token of %s cannot be used: %+v", from, res)
		}
	}
	write(t, path, string(one(to)))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	if res := allow(); !res.Allowed {
		return res.RetryAfter.String()
	} else {
		return fmt.Sprintf("%d left", res.Remaining)
	}
}

// While the file changes under load, no caller gets more than the highest limit, and the
// used tokens stay used.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	rule := func(limit int) string {
		return string(one(fmt.Sprintf("algorithm: fixed window, limit: %d, window: 1h", limit)))
	}
	write(t, path, rule(100))
	now := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	l := load(t, path, &Options{Limiter: &weir.Options{Clock: func() time.Time { return now }}})
	var allowed atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lim, err := l.For(t.Context(), "api", "", weir.KeyOf("ann"))
				if err != nil {
					t.Error(err)
					return
				}
				res, err := lim.Allow(t.Context(), "ann")
				if err != nil {
					t.Error(err)
					return
				}
				if res.Allowed {
					allowed.Add(1)
				}
			}
		})
	}
	for i := range 50 {
		write(t, path, rule([]int{100, 300, 200, 100, 250}[i%5]))
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
		if i%7 == 0 {
			write(t, path, "broken\n")
			if err := l.Reload(); err == nil {
				t.Error("a broken file was loaded")
			}
		}
	}
	write(t, path, rule(300))
	if err := l.Reload(); err != nil {
		t.Error(err)
	}
	lim, err := l.For(t.Context(), "api", "", weir.KeyOf("ann"))
	if err != nil {
		t.Fatal(err)
	}
	for { // use up what is left
		res, err := lim.Allow(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		if !res.Allowed {
			break
		}
		allowed.Add(1)
	}
	close(stop)
	wg.Wait()
	if n := allowed.Load(); n != 300 {
		t.Errorf("%d requests were allowed, want the highest limit, 300", n)
	}
}

// Diff says whether a change keeps the key: a limiter of the new file sees the used
// tokens, or it does not.
func TestDiff(t *testing.T) {
	t.Parallel()
	const base = `policies:
  api:
    segments: [tenant, user]
    units: [input]
    rules:
      tenant: {by: [tenant], algorithm: fixed window, limit: 10, window: 1h}
      user: {algorithm: gcra, rate: 1 per hour, burst: 10}
    plans:
      pro: {user: {burst: 50}}
    overrides:
      - {key: [acme, bob], rules: {user: {burst: 20}}}
`
	for _, c := range []struct {
		old, given string
		want       string   // the changes, and how long a caller who has used all waits at most
		full       []string // the rules of which callers have the full limit again
	}{
		{"", "", "", nil},
		{"burst: 10", "burst: 12", `rule "user": kept`, nil},
		{"1 per hour, burst: 10", "2 per hour, burst: 10", `rule "user": estimated 5h30m0s; plan "pro", rule "user": estimated 25h30m0s; override of ["acme" "bob"], rule "user": estimated 10h30m0s`, nil},
		{"limit: 10", "limit: 12, cost: 2", `rule "tenant": kept`, nil},
		{"window: 1h", "window: 2h", `rule "tenant": kept 1h0m0s`, nil},
		{"fixed window", "sliding log", `rule "tenant": lost`, []string{"tenant"}},
		{"by: [tenant], ", "", `rule "tenant": lost; rule "user": lost`, []string{"tenant", "user"}},
		{"      user: {algorithm", "      person: {algorithm", `rule "person": renamed`, []string{"person"}},
		{"    rules:", "    secret: [user]\n    rules:", `rule "user": lost`, []string{"user"}},
		{"    rules:", "    secret: [tenant]\n    rules:", `rule "tenant": lost; rule "user": lost`, []string{"tenant", "user"}},
		{"segments: [tenant, user]", "segments: [tenant, user, device]", `policy "api": rejected; rule "user": lost`, []string{"user"}},
		{"      user: {algorithm", "      one: {algorithm: gcra, rate: 1 per hour, burst: 10}\n      person: {algorithm", `rule "one": renamed; rule "person": added`, []string{"one", "person"}},
		{"window: 1h}", "window: 1h, shadow: true}", `rule "tenant": kept; rule "user": lost`, []string{"user"}},
		{"burst: 10}", "burst: 10, shadow: true}", `rule "user": lost`, []string{"user"}},
		{"    plans:", "      all: {by: [tenant], algorithm: gcra, rate: 1 per hour, burst: 5}\n    plans:", `rule "all": added`, []string{"all"}},
		{"      tenant: {by: [tenant], algorithm: fixed window, limit: 10, window: 1h}\n", "", `rule "user": lost; rule "tenant": removed`, []string{"user"}},
		{"[input]", "[output, input]", `policy "api": added`, nil},
		{"[input]", "[output]", `policy "api": rejected; policy "api": added`, nil},
		{"limit: 10", "limit: 10, unit: input", `rule "tenant": rejected; rule "tenant": estimated, must name "input"`, nil},
		{"    plans:", "      all: {by: [tenant], algorithm: gcra, rate: 1 per hour, burst: 5, unit: input}\n    plans:", `rule "all": added, must name "input"`, []string{"all"}},
		{"burst: 50", "burst: 60", `plan "pro", rule "user": kept`, nil},
		{"    overrides:", "      max: {user: {burst: 70}}\n    overrides:", `plan "max": added; plan "max", rule "user": kept`, nil},
		{"      pro: ", "      max: ", `plan "pro": rejected; plan "max": added; plan "max", rule "user": kept`, nil},
		{"burst: 20", "burst: 30", `override of ["acme" "bob"], rule "user": kept`, nil},
		{"bob", "cid", `override of ["acme" "cid"]: added; override of ["acme" "cid"], rule "user": kept; override of ["acme" "bob"]: removed; override of ["acme" "bob"], rule "user": kept 11h0m0s`, nil},
		{"  api:", "  web:", `policy "api": rejected; policy "web": added`, nil},
	} {
		text := strings.Replace(base, c.old, c.given, 1)
		if strings.Contains(c.given, "person") {
			text = strings.NewReplacer("{user: {", "{person: {", "rules: {user", "rules: {person", c.old, c.given).Replace(base)
		}
		if strings.Contains(c.given, "device") {
			text = strings.Replace(text, "[acme, bob]", "[acme, bob, x]", 1)
		}
		from, err := Parse("old.yaml", []byte(base), nil)
		if err != nil {
			t.Fatal(err)
		}
		to, err := Parse("new.yaml", []byte(text), nil)
		if err != nil {
			t.Fatalf("%q: %v", c.given, err)
		}
		var got []string
		for _, change := range Diff(from, to) {
			text := strings.TrimPrefix(change.String(), `policy "api", `)
			before, after, _ := strings.Cut(text, string(change.Effect))
			if fresh := change.Effect == Added && change.Rule != "" && change.Plan == "" && change.Key == nil; (fresh || change.Effect == Lost || change.Effect == Renamed) != strings.Contains(after, "full limit, unless the store still has keys of an earlier file") {
				t.Errorf("%q: %s", c.given, change)
			}
			text = before + string(change.Effect)
			if _, wait, ok := strings.Cut(after, "; a caller who has used all waits at most "); ok {
				text += " " + wait
			}
			if _, note, ok := strings.Cut(after, "; programs must name the unit "); ok {
				unit, _, _ := strings.Cut(note, " in Request.Costs before the reload")
				text += ", must name " + unit
			}
			got = append(got, text)
		}
		if c.given == "segments: [tenant, user, device]" {
			got = got[:2] // the overrides have other keys
		}
		if list := strings.Join(got, "; "); list != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.given, list, c.want)
		}
		if to.policy("api") == nil {
			continue
		}
		if got, want := strings.Join(fullAfter(t, from, to), " "), strings.Join(c.full, " "); got != want {
			t.Errorf("%q: the rules %q are full, want %q", c.given, got, want)
		}
	}
}

// If segments change places, and the next program passes its keys in the new order, the
// state is lost where the key in the store has them in another order.
func TestDiffOfOrder(t *testing.T) {
	t.Parallel()
	const all, tenant = "all: {algorithm: fixed window, limit: 9, window: 1h}", "tenant: {by: [tenant], algorithm: fixed window, limit: 9, window: 1h}"
	for _, c := range []struct{ from, to, rules, want string }{
		{"tenant, user", "user, tenant", all, "all"},
		{"tenant, user", "user, tenant", all + ", " + tenant, ""},
		{"tenant, user, device", "tenant, device, user", all + ", " + tenant, "all"},
		{"tenant, user, device", "user, tenant, device", all + ", " + tenant, ""},
		{"tenant, user], secret: [user", "user, tenant], secret: [user", all + ", " + tenant, ""},
	} {
		parse := func(segments string) *File {
			f, err := Parse("x.yaml", []byte("policies: {api: {segments: ["+segments+"], rules: {"+c.rules+"}}}\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		from, to := parse(c.from), parse(c.to)
		var lost []string
		changes := Diff(from, to)
		if len(changes) == 0 || changes[0].Effect != Rejected {
			t.Fatalf("%q to %q: got %v, want that a running program rejects it", c.from, c.to, changes)
		}
		for _, change := range changes[1:] {
			if change.Effect != Lost || !strings.Contains(change.Text, "another order") {
				t.Errorf("%q to %q: %v", c.from, c.to, change)
			}
			lost = append(lost, change.Rule)
		}
		if got, full := strings.Join(lost, " "), strings.Join(fullAfter(t, from, to), " "); got != c.want || full != c.want {
			t.Errorf("%q to %q: Diff says that %q are lost, %q are, want %q", c.from, c.to, got, full, c.want)
		}
	}
}

// fullAfter uses tokens under from, and returns the rules that are full under to.
func fullAfter(t *testing.T, from, to *File) []string {
	t.Helper()
	st := memory.New(nil)
	limiter := func(f *File) (*weir.Limiter, []string) {
		l, err := f.Limits(st)
		if err != nil {
			t.Fatal(err)
		}
		var key []string
		for _, name := range f.policy("api").Segments {
			key = append(key, map[string]string{"tenant": "acme", "user": "ann", "device": "x"}[name])
		}
		lim, err := l.For(t.Context(), "api", "", weir.KeyOf(key...))
		if err != nil {
			t.Fatal(err)
		}
		return lim, key
	}
	lim, key := limiter(from)
	for range 3 {
		if res, err := lim.Decide(t.Context(), weir.Request{Key: weir.KeyOf(key...), Costs: unit.Each(lim, 1)}, nil); err != nil || !res.Allowed {
			t.Fatal(res, err)
		}
	}
	lim, key = limiter(to)
	var full []string
	for _, r := range lim.Rules() {
		only, err := lim.Only(r.Name)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := only.Decide(t.Context(), weir.Request{Key: weir.KeyOf(key...), Op: weir.Peek, Costs: unit.Each(lim, 1)}, nil); err != nil || res.Remaining == res.Limit {
			full = append(full, r.Name)
		}
	}
	return full
}

// Secret segments are not shown.
func TestDiffHidesSecrets(t *testing.T) {
	t.Parallel()
	from, to := ruleFile(t, "algorithm: gcra, rate: 1 per second, burst: 1"), []byte(`policies:
  api:
    secret: [key]
    rules: {r: {algorithm: gcra, rate: 1 per second, burst: 1}}
    overrides: [{key: hush, rules: {r: {burst: 2}}}]
`)
	f, err := Parse("x.yaml", to, nil)
	if err != nil {
		t.Fatal(err)
	}
	clear, err := Parse("x.yaml", []byte(strings.Replace(string(to), "    secret: [key]\n", "", 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	bare, err := Parse("x.yaml", []byte(string(to)[:strings.Index(string(to), "    overrides")]), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, changes := range [][]Change{Diff(from, f), Diff(f, from), Diff(clear, bare), Diff(bare, clear)} {
		if text := fmt.Sprint(changes); strings.Contains(text, "hush") || len(changes) != 3 {
			t.Errorf("got %s", text)
		}
	}
}
