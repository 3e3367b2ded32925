package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/weirfile"
)

const limitsFile = "testdata/limits.yaml"

// A desk is an operator in front of a server, which has served a few requests.
type desk struct {
	*testing.T
	*memoryServer
	limits *weirfile.Limits
	env    map[string]string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, memoryServer: newMemoryServer(), env: map[string]string{"WEIR_STORE": "redis://" + strings.ToLower(t.Name())}}
	fakes[strings.ToLower(t.Name())] = d.dial
	d.limits = d.limitsOf(limitsFile)
	d.allow(25, "api", "acme", "ann") // 20 are allowed
	d.allow(9, "api", "acme", "bob")
	d.allow(4, "api", "initech", "eve")
	return d
}

// allow makes n requests.
func (d *desk) allow(n int, policy string, key ...string) {
	d.Helper()
	lim, err := d.limits.For(d.Context(), policy, "", weir.KeyOf(key...))
	if err != nil {
		d.Fatal(err)
	}
	for range n {
		if _, err := lim.Allow(d.Context(), key...); err != nil {
			d.Fatal(err)
		}
	}
}

// limitsOf returns the limits in a file.
func (d *desk) limitsOf(name string) *weirfile.Limits {
	d.Helper()
	file, err := weirfile.Load(name, nil)
	if err != nil {
		d.Fatal(err)
	}
	limits, err := file.Limits(d.store)
	if err != nil {
		d.Fatal(err)
	}
	return limits
}

// consume consumes n tokens of the policy "api" in a file.
func (d *desk) consume(name string, n int64, key ...string) {
	d.Helper()
	lim, err := d.limitsOf(name).For(d.Context(), "api", "", weir.KeyOf(key...))
	if err != nil {
		d.Fatal(err)
	}
	if _, err := lim.AllowN(d.Context(), n, key...); err != nil {
		d.Fatal(err)
	}
}

// want runs the tool, and compares its exit code and its output, in which IDs are ID.
func (d *desk) want(code int, out string, args ...string) {
	d.Helper()
	o := tell(d.T, d.env, args...)
	out = strings.TrimPrefix(out, "\n")
	if got := ids.ReplaceAllString(o.out, "ID"); o.code != code || got != out || o.err != "" {
		d.Errorf("%q: code %d, want %d\n%s%s\nwant\n%s", args, o.code, code, got, o.err, out)
	}
}

// fails runs the tool, and looks for a text in its error.
func (d *desk) fails(code int, text string, args ...string) {
	d.Helper()
	if o := tell(d.T, d.env, args...); o.code != code || !strings.Contains(o.err, text) || o.out != "" {
		d.Errorf("%q: got %+v, want code %d and %q", args, o, code, text)
	}
}

var ids = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

func TestExplain(t *testing.T) {
	d := newDesk(t)
	d.want(exitOK, `
denied by rule "user": 0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h

policy  api
key     tenant=acme user=ann
limits  policy api (testdata/limits.yaml:2)

rule pause, by tenant user
  limit  algorithm: pause
  state  not paused
  key    weir:api:{acme}:pause.p1:ann (slot 11304)

rule tenant, by tenant
  limit  algorithm: token bucket, capacity: 200, refill: 100 per second
  state  171 of 200 tokens left; full again in 290 ms
  key    weir:api:{acme}:tenant.t2 (slot 11304)

rule user, by tenant user
  limit  algorithm: fixed window, limit: 20, window: 1h
  state  0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h
  key    weir:api:{acme}:user.f2:ann (slot 11304)
`, "explain", limitsFile, "api", "acme", "ann")
	d.want(exitNo, "denied by rule \"user\": 0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h\n",
		"peek", limitsFile, "api", "acme", "ann")
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"tenant\": 171 of 200 tokens left; full again in 290 ms\n",
		"peek", "-plan", "pro", limitsFile, "api", "acme", "ann")

	o := tell(t, d.env, "explain", "-o", "json", limitsFile, "api", "acme", "bob")
	var doc struct {
		explain.Document
		Limits string
	}
	if err := json.Unmarshal([]byte(o.out), &doc); err != nil || o.code != exitOK {
		t.Fatalf("%v in\n%s%s", err, o.out, o.err)
	}
	if doc.Limits != "override (testdata/limits.yaml:20)" || doc.Rules[2].Limit != 200 || doc.Rules[2].Used != 9 {
		t.Errorf("got\n%s", o.out)
	}
	if o := tell(t, d.env, "peek", "-o", "json", limitsFile, "api", "acme", "ann"); o.code != exitNo || !strings.Contains(o.out, `"allowed": false`) {
		t.Errorf("got %+v", o)
	}
}

func TestPolicyErrors(t *testing.T) {
	d := newDesk(t)
	d.fails(exitUsage, "there are 1 arguments: give a file, a policy, and a key", "explain", limitsFile)
	d.fails(exitUsage, "no/such.yaml", "explain", "no/such.yaml", "api", "acme", "ann")
	d.fails(exitUsage, "has no policy \"apx\": it has api, login", "explain", limitsFile, "apx", "acme", "ann")
	d.fails(exitUsage, "the key has 1 segments: it must have 2: tenant user", "explain", limitsFile, "api", "acme")
	d.fails(exitUsage, "the key has 3 segments: it must have 2: tenant user", "list", limitsFile, "api", "a", "b", "c")
	d.fails(exitUsage, "the key's segment \"user\" is empty", "explain", limitsFile, "api", "acme", "")
	d.fails(exitUsage, "-plan: weirfile: policy \"api\" has no plan \"prro\": did you mean \"pro\"?", "explain", "-plan", "prro", limitsFile, "api", "acme", "ann")
	d.fails(exitUsage, "policy \"login\" has no plan \"pro\": there is none", "explain", "-plan", "pro", limitsFile, "login", "acme", "ann")
	d.fails(exitUsage, "-addr is \"ip\": it must be a segment of the policy: tenant user", "explain", "-addr", "ip", limitsFile, "api", "acme", "ann")
	d.fails(exitUsage, "-n is 0", "list", "-n", "0", limitsFile, "api")
	d.fails(exitUsage, "missing.yaml", "check", "missing.yaml") // not "not valid": a script would blame the limits
	d.fails(exitUsage, "the current file: ", "check", limitsFile, "missing.yaml")
	d.fails(exitUsage, "usr", "list", "-rule", "usr", limitsFile, "api")
	d.fails(exitUsage, "-every is 0s", "top", "-every", "0s", limitsFile, "api")
	d.env = map[string]string{"WEIR_STORE": "redis://ann:s3cret@down"}
	for _, command := range []string{"explain", "peek", "list", "top", "pause", "resume", "reset"} {
		args := []string{command, limitsFile, "api"}
		switch command {
		case "list", "top":
		case "resume":
			args = append(args, "-all", "acme", "ann")
		default:
			args = append(args, "acme", "ann")
		}
		o := tell(t, d.env, args...)
		if o.code != exitUnavailable || strings.Contains(o.err, "s3cret") {
			t.Errorf("%q: got %+v", args, o)
		}
	}
}

// An override that changes a shared rule is a warning, which leaves the file valid.
func TestCheckWarns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	text := "policies: {api: {segments: [a, b], rules: {a: {by: [a], algorithm: sliding log, limit: 1, window: 1s}}, overrides: [{key: [x, y], rules: {a: {limit: 2}}}]}}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := tell(t, nil, "check", path)
	if o.code != exitOK || !strings.HasPrefix(o.out, path+`:1:117: warning: the override of the key changes the rule "a"`) || !strings.Contains(o.out, "is valid: api") {
		t.Errorf("got %+v", o)
	}
}

// TestSecretSegments shows that a secret segment is in no output, and that an address is
// that of weirhttp.
func TestSecretSegments(t *testing.T) {
	d := newDesk(t)
	d.allow(2, "login", "hunter2", "2001:db8:1:2::/64")
	key := []string{limitsFile, "login", "hunter2", "2001:db8:1:2:3::4", "-addr", "address"}
	for _, args := range [][]string{
		{"explain"}, {"explain", "-o", "json"}, {"peek"}, {"peek", "-o", "json"}, {"reset", "-rule", "both"}, {"reset", "-rule", "both", "-o", "json"},
		{"reset", "-rule", "account"}, {"pause"}, {"resume", "-all"}, {"explain", "-plan", "pro"}, {"explain", "-addr", "account"},
	} {
		o := tell(t, d.env, append(args, key...)...)
		if strings.Contains(o.out+o.err, "hunter2") {
			t.Errorf("%q: got %+v", args, o)
		}
		if args[0] == "explain" && len(args) == 1 && (!strings.Contains(o.out, "address=2001:db8:1:2::/64") || !strings.Contains(o.out, "3 of 5 tokens left")) {
			t.Errorf("%q: got %+v", args, o)
		}
	}
	if o := tell(t, d.env, "explain", "-addr", "account", limitsFile, "login", "hunter2", "x"); !strings.Contains(o.err, "is not an IP address") || strings.Contains(o.err, "hunter2") {
		t.Errorf("got %+v", o)
	}
}

// TestHashedSegments shows that every command takes a secret or long segment as weir list prints it,
// and from standard input.
func TestHashedSegments(t *testing.T) {
	d := newDesk(t)
	long := strings.Repeat("x", weir.MaxSegment+1)
	const rules, overrides = "user: {algorithm: fixed window, limit: 20, window: 1h}, pause: {algorithm: pause}", ", overrides: [{key: [acme, ann], rules: {user: {limit: 4}}}]"
	file, looks := d.file(rules, ", secret: [user]"+overrides), fmt.Sprintf("%%sha256=%x", sha256.Sum256([]byte("ann")))
	for _, key := range [][]string{{"acme", "bob"}, {"acme", "ann"}, {long, "bob"}, {"acme", looks}, {looks, "%25" + looks[1:]}} {
		file := file
		if strings.HasPrefix(key[1], "%") { // chosen by a caller: it is no hash
			file = d.file(rules, overrides)
		}
		d.consume(file, 1, key...)
		var ranking explain.Ranking
		o := tell(t, d.env, "list", "-o", "json", "-rule", "user", file, "api")
		if err := json.Unmarshal([]byte(o.out), &ranking); err != nil || len(ranking.Callers) != 1 {
			t.Fatalf("%v in\n%s%s", err, o.out, o.err)
		}
		args := []string{file, "api", ranking.Callers[0].Segments[0].Value, ranking.Callers[0].Segments[1].Value}
		says := func(code int, text string, command ...string) {
			t.Helper()
			o := tell(t, d.env, append(command, args...)...)
			if o.code != code || !strings.Contains(o.out, text) {
				t.Errorf("%q of %.20q: got %+v, want code %d and %q", command, key, o, code, text)
			}
		}
		left := "19 of 20"
		if key[1] == "ann" {
			left = "3 of 4" // of the override
		}
		if s := ranking.Callers[0].Segments[1]; s.Hashed == strings.HasPrefix(key[1], "%") || !s.Hashed && s.Value != "%25"+key[1][1:] {
			t.Errorf("%q is listed as %+v", key, s)
		}
		says(exitOK, left, "peek")
		says(exitOK, "user="+args[3]+"\n", "explain")
		says(exitOK, "1 of 1 callers", "list", "-rule", "user")
		says(exitOK, "", "pause")
		says(exitNo, "paused", "peek")
		says(exitOK, "resumed", "resume", "-all")
		says(exitOK, "reset rule user", "reset", "-rule", "user")
		says(exitOK, "there was nothing to reset in rule user", "reset", "-rule", "user")
		says(exitOK, "0 of 0 callers", "list")

		d.consume(file, 1, key...)
		var out, errs strings.Builder
		tool := newTool(&out, &errs, func(name string) string { return d.env[name] })
		tool.ask, tool.in = true, bufio.NewReader(strings.NewReader(storekey.Typed(key[0], false)+"\r\n"+storekey.Typed(key[1], false)))
		if code := tool.run(t.Context(), []string{"reset", "-rule", "user", file, "api", "-", "-"}); code != exitOK || !strings.HasPrefix(out.String(), "reset rule user") || errs.String() != "tenant: user: " {
			t.Errorf("from the input: code %d, %s%s", code, &out, &errs)
		}
	}
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"user\": all of 20 tokens left\n", "peek", d.file(rules, overrides), "api", "acme", looks) // a hash, but not of ann
	d.fails(exitUsage, "standard input has no line for the segment \"user\"", "peek", file, "api", "acme", "-")
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"user\": all of 20 tokens left\n", "peek", "-addr", "user", file, "api", "acme", "%sha256="+strings.Repeat("0", 64))
}

// TestHostileKeys shows that keys that callers chose do not control the terminal.
func TestHostileKeys(t *testing.T) {
	d := newDesk(t)
	hostile := "\x1b[2J\u202e\u009bé\nx"
	d.allow(20, "api", "acme", hostile)
	for _, args := range [][]string{
		{"list", limitsFile, "api"}, {"explain", limitsFile, "api", "acme", hostile}, {"explain", "-o", "json", limitsFile, "api", "acme", hostile},
		{"reset", "-rule", "tenant", limitsFile, "api", "acme", hostile}, {"peek", limitsFile, "api", "acme", "ann", hostile}, {hostile},
		{"explain", limitsFile, hostile, "x"}, {"explain", hostile, "x", "y"}, {"check", hostile},
	} {
		o := tell(t, d.env, args...)
		if text := o.out + o.err; strings.ContainsAny(text, "\x1b\u202e\u009b") {
			t.Errorf("%q: got %q", args, text)
		}
	}
	if o := tell(t, d.env, "list", limitsFile, "api"); !strings.Contains(o.out, `user="\x1b[2J\u202e\u009bé\nx"`) {
		t.Errorf("got %s", o.out)
	}
}

func TestList(t *testing.T) {
	d := newDesk(t)
	d.want(exitOK, `
USED  OF   %    RULE    CALLER                   STATE
20    20   100  user    tenant=acme user=ann     0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h
4     20   20   user    tenant=initech user=eve  16 of 20 tokens left; full again in 1 h
29    200  14   tenant  tenant=acme              171 of 200 tokens left; full again in 290 ms
9     200  4    user    tenant=acme user=bob     191 of 200 tokens left; full again in 1 h
4     200  2    tenant  tenant=initech           196 of 200 tokens left; full again in 40 ms
5 of 5 callers with state
`, "list", limitsFile, "api")
	d.want(exitOK, `
USED  OF   %    RULE  CALLER                STATE
20    20   100  user  tenant=acme user=ann  0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h
9     200  4    user  tenant=acme user=bob  191 of 200 tokens left; full again in 1 h
2 of 2 callers with state
`, "list", limitsFile, "api", "acme", "-rule", "user")
	d.want(exitOK, `
USED  OF  %    RULE  CALLER                STATE
20    20  100  user  tenant=acme user=ann  0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h
1 of 5 callers with state
`, "top", "-n", "1", limitsFile, "api") // once: there is no terminal
	d.want(exitOK, `
USED  OF  %    RULE  CALLER                   STATE
20    20  100  user  tenant=acme user=ann     0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h
4     20  20   user  tenant=initech user=eve  16 of 20 tokens left; full again in 1 h
2 of 3 callers with state
`, "list", "-n", "2", "-rule", "user", limitsFile, "api") // bob would be among them without the override
	tell(t, d.env, "pause", "-for", "5m", limitsFile, "api", "initech", "eve")
	d.want(exitOK, `
USED  OF  %    RULE   CALLER                   STATE
-     -   100  pause  tenant=initech user=eve  paused: the next request is allowed in 5 min
1 of 1 callers with state
`, "list", "-rule", "pause", limitsFile, "api")
	var ranking explain.Ranking
	o := tell(t, d.env, "list", "-o", "json", limitsFile, "api", "acme", "bob")
	if err := json.Unmarshal([]byte(o.out), &ranking); err != nil || len(ranking.Callers) != 1 || ranking.Callers[0].Limit != 200 {
		t.Errorf("%v in\n%s%s", err, o.out, o.err)
	}
}

// TestUnits shows that every command asks a policy with units for 1 of each.
func TestUnits(t *testing.T) {
	d := newDesk(t)
	const live = "month: {algorithm: fixed window, limit: 20, window: 1h, unit: cents}, pause: {algorithm: pause}"
	file := d.file(live, ", units: [cents, bytes]")
	lim, err := d.limitsOf(file).For(d.Context(), "api", "", weir.KeyOf("acme", "ann"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lim.Decide(d.Context(), weir.Request{Key: weir.KeyOf("acme", "ann"), Costs: weir.CostsOf(map[string]int64{"cents": 19})}, nil); err != nil {
		t.Fatal(err)
	}
	const state = "1 of 20 cents left; full again in 1 h"
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"month\": "+state+"\n", "peek", file, "api", "acme", "ann")
	d.want(exitOK, "\nUSED  OF  %   RULE   CALLER                STATE\n19    20  95  month  tenant=acme user=ann  "+state+"\n1 of 1 callers with state\n", "list", "-rule", "month", file, "api")
	if o := tell(t, d.env, "explain", file, "api", "acme", "ann"); !strings.Contains(o.out, "limit  algorithm: fixed window, limit: 20, window: 1h, unit: cents\n") {
		t.Errorf("got %+v", o)
	}
	d.want(exitOK, "ID\n", "pause", file, "api", "acme", "ann")
	d.want(exitOK, "resumed\n", "resume", "-all", file, "api", "acme", "ann")
	d.want(exitOK, "reset rule month: weir:api:{acme:ann}:month.f2\n", "reset", "-rule", "month", file, "api", "acme", "ann")
	more := d.file(live+", rate: {algorithm: fixed window, limit: 9, window: 1h, unit: bytes}", ", units: [cents, bytes]")
	if o := tell(t, d.env, "check", more, file); o.code != exitNo || !strings.Contains(o.out, `programs must name the unit "bytes" in Request.Costs before the reload`) {
		t.Errorf("got %+v", o)
	}
}

// TestListOverride shows that a caller with an override has the place that its own limits give it,
// even if a segment of its key is secret.
func TestListOverride(t *testing.T) {
	d := newDesk(t)
	file := d.file("user: {algorithm: fixed window, limit: 100, window: 1h}", ", secret: [user], overrides: [{key: [acme, ann], rules: {user: {limit: 4}}}]")
	for user, n := range map[string]int64{"ann": 3, "bob": 50, "eve": 60} {
		d.consume(file, n, "acme", user)
	}
	var ranking explain.Ranking
	o := tell(t, d.env, "list", "-o", "json", "-n", "2", file, "api")
	if err := json.Unmarshal([]byte(o.out), &ranking); err != nil || len(ranking.Callers) != 2 || ranking.Callers[0].Used != 3 || ranking.Callers[0].Limit != 4 || ranking.Callers[1].Used != 60 {
		t.Errorf("%v in\n%s%s", err, o.out, o.err)
	}
}

// TestTop shows that top replaces the list at every tick, survives an outage, and ends on Ctrl-C.
func TestTop(t *testing.T) {
	d := newDesk(t)
	var screen strings.Builder
	tool := newTool(&screen, &screen, func(name string) string { return d.env[name] })
	tool.live = true
	f := topCommandListing(tool)
	s, err := f.open(t.Context(), []string{limitsFile, "api"}, false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	tick := make(chan time.Time)
	go func() {
		tick <- time.Time{}
		tick <- time.Time{}
		cancel()
	}()
	if err := f.top(ctx, s, tick); err != nil {
		t.Error(err)
	}
	if n := strings.Count(screen.String(), clearScreen); n < 2 || n > 3 {
		t.Errorf("%d lists:\n%q", n, screen.String())
	}
}

func topCommandListing(t *tool) *listing {
	output := format("text")
	return &listing{policyFlags: &policyFlags{tool: t, storeFlags: &storeFlags{}, output: &output}, n: 5}
}

func TestReset(t *testing.T) {
	d := newDesk(t)
	d.want(exitOK, "reset rule user: weir:api:{acme}:user.f2:ann\n", "reset", "-rule", "user", limitsFile, "api", "acme", "ann")
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"user\": all of 20 tokens left\n", "peek", limitsFile, "api", "acme", "ann")
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"tenant\": 171 of 200 tokens left; full again in 290 ms\n", "peek", limitsFile, "api", "acme", "bob")
	d.fails(exitUsage, `the limiter has no rule "usr"`, "reset", "-rule", "usr", limitsFile, "api", "acme", "ann")

	// More than one rule, and a rule that others share.
	d.fails(exitUsage, "This resets rule pause (weir:api:{acme}:pause.p1:bob) and rule user (weir:api:{acme}:user.f2:bob). Without a terminal to ask, it needs -yes",
		"reset", limitsFile, "api", "acme", "bob")
	d.fails(exitUsage, "for all keys with the same tenant", "reset", "-rule", "tenant", limitsFile, "api", "acme", "bob")
	for answer, code := range map[string]int{"y\n": exitOK, "YES\n": exitOK, "\n": exitNo, "": exitNo, "n\n": exitNo, "yesterday\n": exitNo} {
		d.allow(1, "api", "acme", "bob")
		var out, errs strings.Builder
		tool := newTool(&out, &errs, func(name string) string { return d.env[name] })
		tool.ask, tool.in = true, bufio.NewReader(strings.NewReader(answer))
		got := tool.run(t.Context(), []string{"reset", limitsFile, "api", "acme", "bob"})
		o := tell(t, d.env, "list", "-rule", "user", limitsFile, "api", "acme", "bob")
		if reset := !strings.Contains(o.out, "user=bob"); got != code || reset != (code == exitOK) || !strings.Contains(errs.String(), "Go on? [y/N] ") {
			t.Errorf("%q: code %d, want %d: %q %q\n%s", answer, got, code, out.String(), errs.String(), o.out)
		}
	}
	d.want(exitOK, "reset rule tenant: weir:api:{acme}:tenant.t2\n", "reset", "-yes", "-rule", "tenant", limitsFile, "api", "acme", "bob")
	if o := tell(t, d.env, "reset", "-o", "json", "-rule", "user", limitsFile, "api", "acme", "ann"); o.code != exitOK || !json.Valid([]byte(o.out)) || !strings.Contains(o.out, `"weir:api:{acme}:user.f2:ann"`) {
		t.Errorf("got %+v", o)
	}
}

func TestPause(t *testing.T) {
	d := newDesk(t)
	first := tell(t, d.env, "pause", "-for", "5m", limitsFile, "api", "acme", "bob")
	second := tell(t, d.env, "pause", "-for", "1m", "-o", "json", limitsFile, "api", "acme", "bob")
	var json2 struct {
		Policy, Rule, ID string
		Seconds          float64
	}
	if err := json.Unmarshal([]byte(second.out), &json2); err != nil || json2.Rule != "pause" || json2.Seconds != 60 || !ids.MatchString(json2.ID) {
		t.Errorf("%v in %+v", err, second)
	}
	if o := tell(t, d.env, "peek", limitsFile, "api", "acme", "bob"); o.code != exitNo || !strings.Contains(o.out, `denied by rule "pause"`) {
		t.Errorf("got %+v", o)
	}
	d.want(exitOK, "resumed; the caller is paused for another 1m0s\n", "resume", "-id", strings.TrimSpace(first.out), limitsFile, "api", "acme", "bob")
	d.want(exitNo, "there is no such pause; the caller is paused for another 1m0s\n", "resume", "-id", strings.TrimSpace(first.out), limitsFile, "api", "acme", "bob")
	d.want(exitOK, "resumed\n", "resume", "-all", limitsFile, "api", "acme", "bob")
	d.want(exitNo, "there is no such pause\n", "resume", "-all", limitsFile, "api", "acme", "bob")
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"tenant\": 171 of 200 tokens left; full again in 290 ms\n", "peek", limitsFile, "api", "acme", "bob")
	d.fails(exitUsage, "give either -id", "resume", limitsFile, "api", "acme", "bob")
	d.fails(exitUsage, "give either -id", "resume", "-all", "-id", "x", limitsFile, "api", "acme", "bob")
	tell(t, d.env, "pause", "-for", "1d12h", limitsFile, "api", "acme", "bob")
	d.want(exitNo, "denied by rule \"pause\": paused: the next request is allowed in 1 d 12 h\n", "peek", limitsFile, "api", "acme", "bob")
	d.fails(exitUsage, `invalid value "5" for flag -for: the unit is missing: did you mean 5s?`, "pause", "-for", "5", limitsFile, "api", "acme", "bob")
	d.fails(exitUsage, `invalid value "1.5h" for flag -for: `, "pause", "-for", "1.5h", limitsFile, "api", "acme", "bob")
	d.fails(exitUsage, "-for is 0s", "pause", "-for", "0s", limitsFile, "api", "acme", "bob")
	d.fails(exitUsage, "policy \"login\" cannot be paused", "pause", limitsFile, "login", "acme", "bob")
	d.fails(exitUsage, "-rule is \"user\": it must be a rule with", "pause", "-rule", "user", limitsFile, "api", "acme", "bob")
}

// file writes a file with a policy of tenants and users: its rules, and what follows them.
func (d *desk) file(rules, more string) string {
	d.Helper()
	name := filepath.Join(d.TempDir(), "limits.yaml")
	if err := os.WriteFile(name, []byte("policies: {api: {segments: [tenant, user], rules: {"+rules+"}"+more+"}}\n"), 0o600); err != nil {
		d.Fatal(err)
	}
	return name
}

// TestResetShadow shows that a reset says which shadow rules it clears.
func TestResetShadow(t *testing.T) {
	d := newDesk(t)
	const live, shadow, shared = "user: {algorithm: fixed window, limit: 20, window: 1h}",
		"new: {algorithm: fixed window, limit: 10, window: 1h, shadow: true}", "tenant: {by: [tenant], algorithm: fixed window, limit: 9, window: 1h}"
	file := d.file(live+", "+shadow, "")
	d.fails(exitUsage, "This resets rule user (weir:api:{acme:ann}:user.f2) and rule new (weir:api:{acme:ann}:new.f2).", "reset", file, "api", "acme", "ann")
	d.consume(file, 5, "acme", "ann")
	d.want(exitOK, "reset rule new: weir:api:{acme:ann}:new.f2\n", "reset", "-rule", "new", file, "api", "acme", "ann")
	d.want(exitOK, "reset rule user: weir:api:{acme:ann}:user.f2\nthere was nothing to reset in rule new: weir:api:{acme:ann}:new.f2\n", "reset", "-yes", file, "api", "acme", "ann")
	d.fails(exitUsage, "no rule is identified by the whole key", "reset", "-yes", d.file(shared+", "+shadow, ""), "api", "acme", "ann")
}

// TestResetLooksLast shows that a reset looks for state after the answer, and only at its own rules.
func TestResetLooksLast(t *testing.T) {
	d := newDesk(t)
	weirtest.Plant(t, d.store, "weir:api:{acme}:tenant.t2", store.Tag{'x', '1'}, 1)
	d.want(exitOK, "reset rule user: weir:api:{acme}:user.f2:ann\n", "reset", "-rule", "user", limitsFile, "api", "acme", "ann")
	d.want(exitOK, "there was nothing to reset in rule user: weir:api:{acme}:user.f2:ann\n", "reset", "-rule", "user", limitsFile, "api", "acme", "ann")
	d.fails(exitUnavailable, "tenant.t2", "reset", "-yes", "-rule", "tenant", limitsFile, "api", "acme", "ann")
	var out strings.Builder
	tool := newTool(&out, io.Discard, func(name string) string { return d.env[name] })
	tool.ask, tool.in = true, bufio.NewReader(reader(func(b []byte) (int, error) {
		d.allow(1, "api", "zeta", "ann") // while the question is on the screen
		return copy(b, "y\n"), nil
	}))
	if code := tool.run(t.Context(), []string{"reset", limitsFile, "api", "zeta", "ann"}); code != exitOK || !strings.Contains(out.String(), "reset rule user: ") || !strings.Contains(out.String(), "there was nothing to reset in rule pause") {
		t.Errorf("code %d: %s", code, &out)
	}
}

type reader func(b []byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// TestPauseShared shows that a pause asks before it stops other keys than the one given.
func TestPauseShared(t *testing.T) {
	d := newDesk(t)
	file := d.file("pause: {by: [tenant], algorithm: pause}", "")
	d.fails(exitUsage, "This pauses all keys with the same tenant. Without a terminal to ask, it needs -yes", "pause", file, "api", "acme", "ann")
	d.want(exitOK, "allowed: not paused\n", "peek", file, "api", "acme", "bob")
	first := tell(t, d.env, "pause", "-yes", file, "api", "acme", "ann")
	d.want(exitOK, "ID\n", "pause", "-yes", file, "api", "acme", "ann")
	d.want(exitOK, "resumed; the caller is paused for another 5m0s\n", "resume", "-id", strings.TrimSpace(first.out), file, "api", "acme", "bob")
	d.fails(exitUsage, "This ends all pauses of all keys with the same tenant. Without", "resume", "-all", file, "api", "acme", "ann")
	d.want(exitOK, "resumed\n", "resume", "-all", "-yes", file, "api", "acme", "ann")
}
