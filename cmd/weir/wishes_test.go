package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/weirfile"
)

// shop is the file before each wish.
const shop = `policies:
  api:
    segments: [tenant, user]
    rules:
      tenant: {by: [tenant], algorithm: fixed window, limit: 30, window: 1h}
      user: {algorithm: fixed window, limit: 20, window: 1h}
    plans:
      pro: {tenant: {limit: 300}, user: {limit: 50}}
    overrides:
`

// A wish is a change of the file by an operator, what weir check says of it, and who is allowed how
// many requests afterwards.
type wish struct {
	old, given string // the line given is added if old is "", and removed if it is "undo"
	used       int    // how many requests acme/ann has made before
	check      string
	asks       []ask
	explain    string // what weir explain -short says about acme/ann then
}

type ask struct {
	plan, key string
	n, want   int
}

// TestWishes fulfils the first wishes of an operator, each in a copy of the file.
func TestWishes(t *testing.T) {
	for name, w := range map[string]wish{
		"raise acme": {
			"", "      - {match: {tenant: acme}, rules: {tenant: {limit: 60}}}", 20,
			`override of ["acme" "(any)"], rule "tenant": kept: algorithm: fixed window, limit: 30, window: 1h becomes algorithm: fixed window, limit: 60`,
			[]ask{{"", "acme bob", 99, 20}, {"", "acme cid", 99, 20}, {"", "acme eve", 99, 0}, {"", "initech ann", 99, 20}, {"", "initech bob", 99, 10}},
			`denied by rule "tenant": 0 of 60`,
		},
		"block a key": {
			"", "      - {match: {tenant: acme, user: ann}, blocked: true}", 5,
			`override of ["acme" "ann"]: kept: limited by the rules becomes blocked: true`,
			[]ask{{"", "acme ann", 3, 0}, {"pro", "acme ann", 3, 0}, {"", "acme bob", 99, 20}},
			"denied, because the file blocks the caller",
		},
		"free a partner": {
			"", "      - {match: {tenant: acme}, unlimited: true}", 20,
			`override of ["acme" "(any)"]: kept: limited by the rules becomes unlimited: true`,
			[]ask{{"", "acme ann", 99, 99}, {"", "acme bob", 99, 99}, {"", "initech ann", 99, 20}},
			"allowed, because the file does not limit the caller",
		},
		"raise all keys of a tenant": {
			"", "      - {match: {tenant: acme}, rules: {user: {limit: 25}}}", 20,
			`override of ["acme" "(any)"], rule "user": kept`,
			[]ask{{"", "acme ann", 99, 5}, {"", "acme bob", 99, 5}, {"", "initech ann", 99, 20}},
			`denied by rule "tenant": 0 of 30`,
		},
		"lower a default": {
			"limit: 20", "limit: 10", 15,
			`rule "user": kept: algorithm: fixed window, limit: 20, window: 1h becomes algorithm: fixed window, limit: 10`,
			[]ask{{"", "acme ann", 9, 0}, {"", "acme bob", 99, 10}},
			`denied by rule "user": 0 of 10`,
		},
		"add a rule": {
			"    plans:", "      minute: {algorithm: fixed window, limit: 5, window: 1m}\n    plans:", 2,
			`rule "minute": added: algorithm: fixed window, limit: 5, window: 1m: callers start with a full limit`,
			[]ask{{"", "acme ann", 99, 5}, {"", "acme bob", 99, 5}},
			`denied by rule "minute"`,
		},
		"a plan for trial users": {
			"    overrides:", "      trial: {user: {limit: 3}}\n    overrides:", 1,
			`plan "trial", rule "user": kept`,
			[]ask{{"trial", "acme ann", 99, 2}, {"trial", "acme bob", 99, 3}, {"", "acme bob", 99, 17}},
			`allowed; the rule with the fewest tokens is "tenant"`,
		},
		"more at night": { // the program passes the plan for the hour
			"    overrides:", "      night: {tenant: {limit: 60}}\n    overrides:", 20,
			`plan "night", rule "tenant": kept`,
			[]ask{{"", "acme bob", 99, 10}, {"night", "acme bob", 99, 10}, {"night", "acme cid", 99, 20}},
			`denied by rule "tenant": 0 of 30`,
		},
		"move a customer to a plan": {
			"", "      - {match: {tenant: acme}, plan: pro}", 20,
			`override of ["acme" "(any)"], rule "user": kept`,
			[]ask{{"", "acme ann", 99, 30}, {"", "acme bob", 99, 50}, {"", "initech ann", 99, 20}},
			`denied by rule "user": 0 of 50`,
		},
		"undo": {
			"undo", "      - {match: {tenant: acme}, rules: {tenant: {limit: 60}}}", 20,
			`override of ["acme" "(any)"]: removed: callers have the limits of their plan, and keep their state`,
			[]ask{{"", "acme bob", 99, 10}, {"", "acme ann", 9, 0}},
			`denied by rule "tenant"`,
		},
	} {
		d, dir := emptyDesk(t), filepath.Join(t.TempDir(), strings.ReplaceAll(name, " ", "-"))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write := func(name, text string) string {
			name = filepath.Join(dir, name)
			if err := os.WriteFile(name, []byte(strings.TrimSuffix(text, "    overrides:\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			return name
		}
		from, to := shop, strings.Replace(shop, w.old, w.given, 1)
		switch w.old {
		case "":
			to = shop + w.given + "\n"
		case "undo":
			from, to = shop+w.given+"\n", shop
		}
		before, after := write("limits.yaml", from), write("new.yaml", to)
		d.allow(before, "api", w.used, "acme", "ann")
		d.want(exitNo, w.check, "check "+after+" "+before) // something changes
		file, err := weirfile.Load(after, nil)
		if err != nil {
			t.Fatal(err)
		}
		limits, err := file.Limits(d.store)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range w.asks {
			key := weir.KeyOf(strings.Fields(a.key)...)
			got := 0
			for range a.n {
				lim, err := limits.For(t.Context(), "api", a.plan, key)
				if err != nil {
					t.Fatal(err)
				}
				if weirtest.Decide(t, lim, weir.Request{Key: key}).Allowed {
					got++
				}
			}
			if got != a.want {
				t.Errorf("%s: %q %s: %d of %d requests are allowed, want %d", name, a.plan, a.key, got, a.n, a.want)
			}
		}
		code := exitNo
		if strings.HasPrefix(w.explain, "allowed") {
			code = exitOK
		}
		d.want(code, w.explain, "explain -short "+after+" api acme ann")
	}
}
