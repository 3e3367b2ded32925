package weirfile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// tree has rules by one, two and all of its segments, and overrides of each.
const tree = `policies:
  api:
    segments: [tenant, user, host]
    rules:
      all: {algorithm: fixed window, limit: 10, window: 1h}
      user: {by: [tenant, user], algorithm: fixed window, limit: 50, window: 1h, cost: 2}
      tenant: {by: [tenant], algorithm: fixed window, limit: 100, window: 1h}
    plans:
      pro: {all: {limit: 11, window: 2h}, user: {limit: 51, cost: 3}, tenant: {limit: 101}}
      big: {tenant: {limit: 900}}
      free: {unlimited: true}
      gone: {blocked: true}
    overrides:
      - {match: {tenant: acme}, rules: {tenant: {limit: 200}, all: {limit: 12}}}
      - {match: {tenant: acme, user: ann}, rules: {user: {limit: 70}, all: {limit: 13}}}
      - {match: {tenant: acme, user: ann, host: a}, rules: {all: {limit: 14}}}
      - {match: {tenant: umbra}, plan: pro}
      - {match: {tenant: umbra, user: bob}, plan: big}
      - {match: {tenant: umbra, user: cid}, plan: pro, rules: {user: {limit: 52}}}
      - {match: {user: eve, host: h}, rules: {all: {limit: 15}}}
      - {match: {user: mallory, host: h}, blocked: true}
      - {match: {tenant: omni}, unlimited: true}
      - {match: {tenant: omni, user: tmp}, rules: {all: {limit: 16}}}
      - {match: {tenant: omni, user: bad}, blocked: true}
      - {match: {tenant: omni, user: bad, host: ok}, plan: pro}
      - {match: {tenant: soylent}, plan: gone}
      - {match: {tenant: soylent, user: ann}, plan: free}
      - {match: {tenant: evil, host: h}, blocked: true}
`

// An override sets exactly the rules that contain all its segments, and the one with the most
// segments wins, rule by rule. What it does not set is as the request's plan has it.
func TestOverrides(t *testing.T) {
	t.Parallel()
	l := limitsOfText(t, tree, nil)
	for _, c := range []struct{ plan, key, want, source string }{
		{"", "x u h", "all 10, user 50, tenant 100", "policy api (x.yaml:2)"},
		{"pro", "x u h", "all 11, user 51, tenant 101", "plan pro (x.yaml:9)"},
		{"", "acme u h", "all 12, user 50, tenant 200", "override (x.yaml:14)"},
		{"pro", "acme u h", "all 12, user 51, tenant 200", "override with plan pro (x.yaml:14)"},
		{"", "acme ann h", "all 13, user 70, tenant 200", "override (x.yaml:15)"},
		{"", "acme ann a", "all 14, user 70, tenant 200", "override (x.yaml:16)"},
		{"big", "acme ann a", "all 14, user 70, tenant 200", "override with plan big (x.yaml:16)"},
		{"", "acme eve h", "all 15, user 50, tenant 200", "override (x.yaml:20)"},
		{"", "umbra u h", "all 11, user 51, tenant 101", "override with plan pro (x.yaml:17)"},
		{"", "umbra bob h", "all 10, user 50, tenant 101", "override with plan big (x.yaml:18)"},
		{"", "umbra cid h", "all 11, user 52, tenant 101", "override with plan pro (x.yaml:19)"},
		{"", "x mallory h", "blocked", "override, blocked (x.yaml:21)"},
		{"free", "x mallory h", "blocked", "override with plan free, blocked (x.yaml:21)"},
		{"", "omni u h", "unlimited", "override, unlimited (x.yaml:22)"},
		{"gone", "omni u h", "unlimited", "override with plan gone, unlimited (x.yaml:22)"},
		{"", "omni tmp h", "unlimited", "override, unlimited (x.yaml:23)"},
		{"", "omni bad h", "blocked", "override, blocked (x.yaml:24)"},
		{"", "omni bad ok", "all 11, user 50, tenant 100", "override with plan pro (x.yaml:25)"},
		{"free", "x u h", "unlimited", "plan free, unlimited (x.yaml:11)"},
		{"gone", "x u h", "blocked", "plan gone, blocked (x.yaml:12)"},
		{"gone", "umbra u h", "all 11, user 51, tenant 101", "override with plan pro (x.yaml:17)"},
		{"", "soylent u h", "blocked", "override with plan gone, blocked (x.yaml:26)"},
		{"", "soylent ann h", "unlimited", "override with plan free, unlimited (x.yaml:27)"},
		{"", "acme", "all 10, user 50, tenant 100", "policy api (x.yaml:2)"}, // no key of the policy
	} {
		key := strings.Fields(c.key)
		s, err := l.Source(t.Context(), "api", c.plan, weir.KeyOf(key...))
		lim := limiter(t, l, "api", c.plan, key...)
		got := wordsOf(lim)
		if s.Access != Limited {
			got = string(s.Access)
		}
		if got != c.want || err != nil || s.String() != c.source || limiter(t, l, "api", c.plan, key...) != lim {
			t.Errorf("%q %s: got %s, %v, %v, want %s, %s", c.plan, c.key, got, s, err, c.want, c.source)
		}
		if len(key) == 3 {
			if res, err := lim.Peek(t.Context(), key...); err != nil || res.Allowed == (c.want == "blocked") {
				t.Errorf("%q %s: got %+v, %v", c.plan, c.key, res, err)
			}
		}
	}
	// The fields that an override leaves out are those of the policy, even under a plan.
	for key, want := range map[string]string{"acme u h": "1h0m0s 3", "umbra bob h": "1h0m0s 2"} {
		rules := limiter(t, l, "api", "pro", strings.Fields(key)...).Rules()
		if got := fmt.Sprint(rules[0].Window, rules[1].Cost); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

// Callers who share the state of a rule have one limit of it, whatever overrides a valid file
// has. It always has some valid files, and some that are ambiguous.
func TestSharedLimits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	valid, ambiguous := 0, 0
	for range 500 {
		var text strings.Builder
		text.WriteString(tree[:strings.Index(tree, "      - {match")])
		for n := range 1 + random.IntN(4) {
			var match []string
			for _, name := range []string{"tenant", "user", "host"} {
				if v := random.IntN(4); v < 2 {
					match = append(match, fmt.Sprintf("%s: %c", name, 'a'+v))
				}
			}
			sets := []string{"plan: pro", "plan: big", "unlimited: true", "blocked: true", ""}[random.IntN(5)]
			if sets == "" {
				sets = fmt.Sprintf("rules: {%s: {limit: %d}}", []string{"all", "user", "tenant"}[random.IntN(3)], 1000+n)
			}
			fmt.Fprintf(&text, "      - {match: {%s}, %s}\n", strings.Join(match, ", "), sets)
		}
		f, err := Parse("x.yaml", []byte(text.String()), nil)
		if err != nil {
			if strings.Contains(err.Error(), "can match one key") {
				ambiguous++
			}
			continue
		}
		valid++
		l := limitsOver(t, f, memory.New(nil))
		limits := map[string]string{}
		for i := range 8 {
			key := []string{string('a' + rune(i&1)), string('a' + rune(i>>1&1)), string('a' + rune(i>>2))}
			shared := map[string]string{"all": strings.Join(key, " "), "user": strings.Join(key[:2], " "), "tenant": key[0]}
			for _, r := range limiter(t, l, "api", "", key...).Rules() {
				id, limit := r.Name+" "+shared[r.Name], fmt.Sprint(r.Limit, r.Window, r.Cost)
				if was, ok := limits[id]; ok && was != limit {
					t.Fatalf("%s has the limits %s and %s in\n%s", id, was, limit, text.String())
				}
				limits[id] = limit
			}
		}
	}
	if valid < 50 || ambiguous < 10 {
		t.Errorf("%d files are valid, and %d ambiguous", valid, ambiguous)
	}
}

// A result of Options.Override sets the rules of the segments that its Key has. What
// overrides of the file set wins.
func TestOverrideFunctionMatches(t *testing.T) {
	t.Parallel()
	var next Override
	rule := func(name string, limit int64) weir.Rule {
		return weir.Rule{Name: name, Algorithm: algorithm.FixedWindow{Limit: limit, Window: 3600e9}}
	}
	for _, c := range []struct {
		next      Override
		key, want string
		fails     string
	}{
		{Override{Key: weir.KeyOf("acme", "", ""), Rules: []weir.Rule{rule("tenant", 300), rule("user", 55)}}, "acme ann h", "all 13, user 70, tenant 200", ""},
		{Override{Key: weir.KeyOf("x", "", ""), Rules: []weir.Rule{rule("tenant", 300), rule("user", 55)}}, "x ann h", "all 10, user 55, tenant 300", ""},
		{Override{Rules: []weir.Rule{rule("all", 17)}}, "acme ann h", "all 13, user 70, tenant 200", ""},
		{Override{Rules: []weir.Rule{rule("all", 17)}}, "x ann a", "all 17, user 50, tenant 100", ""},
		{Override{Rules: []weir.Rule{rule("all", 17)}}, "acme ann a", "all 14, user 70, tenant 200", ""},
		{Override{Plan: "pro"}, "x u h", "all 11, user 50, tenant 100", ""},
		{Override{Rules: []weir.Rule{rule("tenant", 17)}}, "x u h", "all 10, user 50, tenant 100", `rule "tenant" counts all callers with the same tenant together, so it cannot be set for some of them: match only {tenant: TENANT}`},
		{Override{Key: weir.KeyOf("other", "", ""), Plan: "pro"}, "x u h", "all 10, user 50, tenant 100", "the Key of the result does not match the key"},
		{Override{}, "x u h", "all 10, user 50, tenant 100", "it sets no limit"},
		{Override{Access: Blocked}, "x u h", "blocked", ""},
		{Override{Access: Blocked}, "umbra u h", "blocked", ""}, // a plan of the file does not let the caller in again
		{Override{Access: "Blocked"}, "x u h", "all 10, user 50, tenant 100", `its Access is "Blocked": it must be Limited, Unlimited or Blocked`},
		{Override{Key: weir.KeyOf("", "", ""), Rules: []weir.Rule{rule("tenant", 17)}}, "x u h", "all 10, user 50, tenant 100", "its Key names no segment"},
		{Override{Rules: []weir.Rule{rule("", 17)}}, "x u h", "all 10, user 50, tenant 100", `policy "api" has no rule ""`},
	} {
		next = c.next
		l := limitsOfText(t, tree, &Options{Override: func(context.Context, string, weir.Key) (Override, bool, error) { return next, true, nil }})
		key := strings.Fields(c.key)
		got := wordsOf(limiter(t, l, "api", "", key...))
		if s, err := l.Source(t.Context(), "api", "", weir.KeyOf(key...)); err != nil || s.Access == Blocked {
			got = "blocked"
		}
		if err := l.Status().OverrideErr; got != c.want || (err != nil) != (c.fails != "") || !strings.Contains(fmt.Sprint(err), c.fails) {
			t.Errorf("%+v for %s: got %s, %v, want %s, %s", c.next, c.key, got, err, c.want, c.fails)
		}
	}
}

// What the results of Options.Override make is dropped with them.
func TestOverrideFunctionLeavesNothing(t *testing.T) {
	t.Parallel()
	l := limitsOfText(t, tree, &Options{OverrideAge: 1, Override: func(context.Context, string, weir.Key) (Override, bool, error) {
		return Override{Key: weir.KeyOf("acme", "", ""), Plan: "pro"}, true, nil
	}})
	b := l.generationInUse().policies["api"]
	kept := func() (n int) {
		b.base.made.Range(func(any, any) bool { n++; return true })
		return n
	}
	before := kept()
	for range 20 {
		limiter(t, l, "api", "", "acme", "ann", "a")
	}
	if n := kept(); n != before || n == 0 {
		t.Errorf("%d limiters are kept, want %d", n, before)
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	l := limitsOfText(t, tree, &Options{Override: func(context.Context, string, weir.Key) (Override, bool, error) {
		t.Error("Policy asks for an override")
		return Override{}, false, nil
	}})
	if lim, err := l.Policy("api"); err != nil || wordsOf(lim) != "all 10, user 50, tenant 100" {
		t.Errorf("got %v, %v", lim, err)
	}
	for _, l := range []*Limits{l, nil} {
		if lim, err := l.Policy("apo"); lim != nil || err == nil {
			t.Errorf("got %v, %v", lim, err)
		}
	}
}

// After a reload, results of Options.Override do not keep the limits of the earlier file.
func TestReloadDropsLimits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, tree)
	l := load(t, path, &Options{Override: func(_ context.Context, _ string, k weir.Key) (Override, bool, error) {
		return Override{Plan: "pro"}, k.Segments()[0] == "x", nil
	}})
	limiter(t, l, "api", "", "x", "u", "h")
	limiter(t, l, "api", "", "y", "u", "h")
	write(t, path, strings.Replace(tree, "pro: {all: {limit: 11,", "pro: {all: {limit: 19,", 1))
	if err := l.Reload(); err != nil {
		t.Fatal(err)
	}
	for k, a := range l.asked.recent {
		if s := a.state.Load(); s.of != nil || s.change != nil {
			t.Errorf("%v keeps limits", k)
		}
	}
	if got := wordsOf(limiter(t, l, "api", "", "x", "u", "h")); got != "all 19, user 50, tenant 100" || len(l.asked.recent) != 2 {
		t.Errorf("got %s, and %d results", got, len(l.asked.recent))
	}
}
