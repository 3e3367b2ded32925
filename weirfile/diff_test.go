package weirfile

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
)

// What a reload does to the 3 or 50 used tokens of a limit is what docs/guide/production.md
// says under "What carries over", and what Diff says.
func TestCarriesOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		low, high       string
		raised, lowered string // the answer after the change
		effect          Effect
	}{
		{"token bucket, capacity: 3, refill: 10 per minute", "token bucket, capacity: 100, refill: 10 per second", "96 left", "4m48s", Kept},
		{"gcra, rate: 10 per minute, burst: 3", "gcra, rate: 10 per second, burst: 100", "8.1s", "1 left", Estimated},
		{"leaky bucket, rate: 10 per minute, queue: 2", "leaky bucket, rate: 10 per second, queue: 99", "18s", "5s", Estimated},
		{"fixed window, limit: 3, window: 1m", "fixed window, limit: 100, window: 1m", "96 left", "1m0s", Kept},
		{"calendar, limit: 3, every: day", "calendar, limit: 100, every: day", "96 left", "24h0m0s", Kept},
		{"calendar, limit: 3, every: day", "calendar, limit: 60, every: day, carry: 40", "96 left", "24h0m0s", Kept},
		{"sliding log, limit: 3, window: 1m", "sliding log, limit: 100, window: 1m", "96 left", "1m0s", Kept},
		{"sliding counter, limit: 3, window: 1m", "sliding counter, limit: 100, window: 1m", "96 left", "1m57.6", Kept},
		{"sliding buckets, width: 1s, spans: [{window: 1m, limit: 3}]", "sliding buckets, width: 1s, spans: [{window: 1m, limit: 100}]", "96 left", "1m0s", Kept},
	} {
		low, high := one("algorithm: "+c.low), one("algorithm: "+c.high)
		if got := reload(t, low, high, 3); got != c.raised {
			t.Errorf("%s, raised: got %s, want %s", c.low, got, c.raised)
		}
		if got := reload(t, high, low, 50); !strings.HasPrefix(got, c.lowered) {
			t.Errorf("%s, lowered: got %s, want %s", c.low, got, c.lowered)
		}
		from, to := parse(t, string(low), nil), parse(t, string(high), nil)
		for _, changes := range [][]Change{Diff(from, to), Diff(to, from)} {
			if len(changes) != 1 || changes[0].Effect != c.effect || changes[0].Rule != "r" || changes[0].Line != 1 {
				t.Errorf("%s: got %v, want %s", c.low, changes, c.effect)
			}
		}
	}
}

// reload consumes used tokens under the file from, loads the file to, and makes one
// request at once. It returns the tokens that are left, or the time to wait.
func reload(t *testing.T, from, to []byte, used int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, string(from))
	l := load(t, path, &Options{Limiter: &weir.Options{Clock: weirtest.NewClock().Now}})
	r := weir.Request{Key: weir.KeyOf("ann"), Cost: 1}
	for lim := limiter(t, l, "api", "", "ann"); used > 0; used-- {
		if lim.Rules()[0].Queues {
			r.MaxWait = time.Hour
		}
		weirtest.Allow(t, lim, r)
	}
	write(t, path, string(to))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	r.MaxWait = 0
	res := weirtest.Decide(t, limiter(t, l, "api", "", "ann"), r)
	if !res.Allowed {
		return res.RetryAfter.String()
	}
	return fmt.Sprintf("%d left", res.Remaining)
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
      - {match: {tenant: acme, user: bob}, rules: {user: {burst: 20}}}
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
		from, to := parse(t, base, nil), parse(t, text, nil)
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
		file := func(segments string) *File {
			return parse(t, "policies: {api: {segments: ["+segments+"], rules: {"+c.rules+"}}}\n", nil)
		}
		from, to := file(c.from), file(c.to)
		var lost []string
		changes := Diff(from, to)
		if len(changes) == 0 || changes[0].Effect != Rejected {
			t.Fatalf("%q to %q: got %v, want that a running program rejects it", c.from, c.to, changes)
		}
		for _, change := range changes[1:] {
			if change.Effect != Lost || !strings.HasPrefix(change.Text, "the key in the store becomes weir:api:{") {
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
	bound := func(f *File) (*weir.Limiter, weir.Request) {
		var key []string
		for _, name := range f.policy("api").Segments {
			key = append(key, map[string]string{"tenant": "acme", "user": "ann", "device": "x"}[name])
		}
		lim := limiter(t, limitsOver(t, f, st), "api", "", key...)
		return lim, weir.Request{Key: weir.KeyOf(key...), Costs: gate.Each(lim, 1)}
	}
	lim, r := bound(from)
	for range 3 {
		weirtest.Allow(t, lim, r)
	}
	lim, r = bound(to)
	r.Op = weir.Peek
	var full []string
	for _, rule := range lim.Rules() {
		if res := weirtest.Decide(t, weirtest.Only(t, lim, rule.Name), r); res.Remaining == res.Limit {
			full = append(full, rule.Name)
		}
	}
	return full
}

// Secret segments are not shown.
func TestDiffHidesSecrets(t *testing.T) {
	t.Parallel()
	const rules, override = "rules: {r: {algorithm: gcra, rate: 1 per second, burst: 1}}", ", overrides: [{match: {key: hush}, rules: {r: {burst: 2}}}]"
	file := func(policy string) *File { return parse(t, "policies: {api: {"+policy+"}}\n", nil) }
	plain, secret, clear, bare := file(rules), file("secret: [key], "+rules+override), file(rules+override), file("secret: [key], "+rules)
	for _, changes := range [][]Change{Diff(plain, secret), Diff(secret, plain), Diff(clear, bare), Diff(bare, clear)} {
		if text := fmt.Sprint(changes); strings.Contains(text, "hush") || len(changes) != 3 {
			t.Errorf("got %s", text)
		}
	}
}
