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
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirfile"
)

const limitsFile = "testdata/limits.yaml"

// A desk is an operator in front of a server, which has served a few requests.
type desk struct {
	*testing.T
	store store.Store
	env   map[string]string
	ids   []string // that the commands have printed
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := emptyDesk(t)
	d.serve(limitsFile)
	return d
}

// emptyDesk returns a desk whose server has served nothing, and whose clock stands still.
func emptyDesk(t *testing.T) *desk {
	d := &desk{T: t, store: weirtest.NewStore(weirtest.NewClock()), env: map[string]string{"WEIR_STORE": "redis://" + strings.ToLower(t.Name())}}
	fakes[strings.ToLower(t.Name())] = func() (*server, error) { return &server{store: d.store, close: func() {}}, nil }
	return d
}

// serve makes a few requests. The limits in the file allow 20 of ann's.
func (d *desk) serve(file string) {
	d.Helper()
	d.allow(file, "api", 25, "acme", "ann")
	d.allow(file, "api", 9, "acme", "bob")
	d.allow(file, "api", 4, "initech", "eve")
}

// allow makes n requests.
func (d *desk) allow(file, policy string, n int, key ...string) {
	d.Helper()
	lim := d.limiter(file, policy, key...)
	for range n {
		weirtest.Decide(d.T, lim, weir.Request{Key: weir.KeyOf(key...)})
	}
}

// limiter returns the limiter of a file for a key.
func (d *desk) limiter(name, policy string, key ...string) *weir.Limiter {
	d.Helper()
	file, err := weirfile.Load(name, nil)
	if err != nil {
		d.Fatal(err)
	}
	limits, err := file.Limits(d.store)
	if err != nil {
		d.Fatal(err)
	}
	lim, err := limits.For(d.Context(), policy, "", weir.KeyOf(key...))
	if err != nil {
		d.Fatal(err)
	}
	return lim
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

// args returns the arguments in a command. FILE stands for limitsFile, and ID1 for the first
// ID that was printed.
func (d *desk) args(command string) []string {
	args := strings.Fields(command)
	for i, arg := range args {
		n, err := strconv.Atoi(strings.TrimPrefix(arg, "ID"))
		switch {
		case arg == "FILE":
			args[i] = limitsFile
		case strings.HasPrefix(arg, "ID") && err == nil && n <= len(d.ids):
			args[i] = d.ids[n-1]
		}
	}
	return args
}

// run runs the tool, and remembers the IDs that it prints.
func (d *desk) run(args ...string) outcome {
	d.Helper()
	o := tell(d.T, d.env, args...)
	d.ids = append(d.ids, ids.FindAllString(o.out, -1)...)
	return o
}

var ids = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// want runs a command, and looks for a text in its output, in which IDs are ID. If the command
// cannot be run, it looks in its error.
func (d *desk) want(code int, text, command string) {
	d.Helper()
	o := d.run(d.args(command)...)
	out, other := ids.ReplaceAllString(o.out, "ID"), o.err
	if code > exitNo {
		out, other = other, out
	}
	if o.code != code || !strings.Contains(out, text) || other != "" {
		d.Errorf("%s: got %+v, want code %d and %q", command, o, code, text)
	}
}

// reads runs a command, and reads its output, which is JSON, into v.
func (d *desk) reads(code int, v any, command string) {
	d.Helper()
	o := d.run(d.args(command)...)
	if err := json.Unmarshal([]byte(o.out), v); err != nil || o.code != code {
		d.Fatalf("%s: %v in %+v", command, err, o)
	}
}

// answer runs the tool for somebody who types the input.
func (d *desk) answer(in io.Reader, args ...string) outcome {
	var out, errs strings.Builder
	tool := newTool(&out, &errs, func(name string) string { return d.env[name] })
	tool.ask, tool.in = true, bufio.NewReader(in)
	return outcome{tool.run(d.Context(), args), out.String(), errs.String()}
}

// The text of explain is in the guide: see TestGuide.
func TestExplain(t *testing.T) {
	d := newDesk(t)
	d.want(exitNo, "denied by rule \"user\": 0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h\n", "explain -short FILE api acme ann")
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"tenant\": 171 of 200 tokens left; full again in 290 ms\n", "explain -short -plan pro FILE api acme ann")
	var doc struct {
		explain.Document
		Limits string
	}
	d.reads(exitOK, &doc, "explain -o json FILE api acme bob")
	if doc.Limits != "override (testdata/limits.yaml:20)" || doc.Rules[2].Limit != 200 || doc.Rules[2].Used != 9 || doc.Rules[2].Words != "algorithm: fixed window, limit: 200, window: 1h" {
		t.Errorf("got %+v", doc)
	}
	d.want(exitNo, `"allowed": false`, "explain -o json FILE api acme ann")
	d.want(exitNo, "\n\npolicy  api\n", "explain FILE api acme ann")
	d.want(exitOK, "shadow rule new, by tenant user\n", "explain "+d.file("user: {algorithm: sliding log, limit: 1, window: 1s}, new: {algorithm: sliding log, limit: 1, window: 1s, shadow: true}", "")+" api acme ann")
}

func TestPolicyErrors(t *testing.T) {
	d := newDesk(t)
	for command, want := range map[string]string{
		"explain FILE":                          "there are 1 arguments: give a file, a policy, and a key",
		"explain no/such.yaml api acme ann":     "no/such.yaml",
		"explain FILE apx acme ann":             "has no policy \"apx\": it has api, login",
		"explain FILE api acme":                 "the key has 1 segments: it must have 2: tenant user",
		"list FILE api a b c":                   "the key has 3 segments: it must have 2: tenant user",
		"explain -plan prro FILE api acme ann":  "-plan: weirfile: policy \"api\" has no plan \"prro\": did you mean \"pro\"?",
		"explain -plan pro FILE login acme ann": "policy \"login\" has no plan \"pro\": there is none",
		"explain -addr ip FILE api acme ann":    "-addr is \"ip\": it must be a segment of the policy: tenant user",
		"explain -short FILE api acme -":        "standard input has no line for the segment \"user\"",
		"list -n 0 FILE api":                    "-n is 0",
		"list -rule usr FILE api":               "usr",
		"reset -rule usr FILE api acme ann":     `the limiter has no rule "usr"`,
		"resume FILE api acme bob":              "give either -id",
		"resume -all -id x FILE api acme bob":   "give either -id",
		"pause -for 5 FILE api acme bob":        `invalid value "5" for flag -for: the unit is missing: did you mean 5s?`,
		"pause -for 1.5h FILE api acme bob":     `invalid value "1.5h" for flag -for: `,
		"pause -for 0s FILE api acme bob":       "-for is 0s",
		"pause FILE login acme bob":             "policy \"login\" cannot be paused",
		"pause -rule user FILE api acme bob":    "-rule is \"user\": it must be a rule with",
		"check missing.yaml":                    "missing.yaml: no such file", // not "not valid": a script would blame the limits
		"check -o json missing.yaml":            "missing.yaml: no such file",
		"check FILE missing.yaml":               "the current file: weirfile: open missing.yaml: no such file",
		"check redis://ann:s3cret@host/0":       "redis://xxxxx@host/0: no such file", // in place of a file
		"explain FILE api acme ann -plan":       "flag needs an argument",
		"pause " + d.file("a: {algorithm: pause}, b: {algorithm: pause}", "") + " api acme ann": "the rules a b are pauses: name one with -rule",
	} {
		d.want(exitUsage, want, command)
	}
	if o := d.run("explain", limitsFile, "api", "acme", ""); o.code != exitUsage || !strings.Contains(o.err, "the key's segment \"user\" is empty") {
		t.Errorf("got %+v", o)
	}
	d.env = map[string]string{"WEIR_STORE": "redis://ann:s3cret@down"}
	for _, command := range []string{"explain FILE api a b", "explain -short FILE api a b", "list FILE api", "pause FILE api a b", "resume -all FILE api a b", "reset FILE api a b", "conform"} {
		if o := d.run(d.args(command)...); o.code != exitUnavailable || !strings.Contains(o.err, store.ErrUnavailable.Error()) ||
			strings.Contains(o.err, "s3cret") || strings.Contains(o.err, "\x1b") || !strings.Contains(o.err, `\u001b[2J`) {
			t.Errorf("%q: got %+v", command, o)
		}
	}
}

// A budget that is refilled while it is spent is a warning, which leaves the file valid. A file that is
// not valid has its mistakes, each with its place.
func TestCheck(t *testing.T) {
	d := emptyDesk(t)
	path := d.file("a: {algorithm: gcra, rate: 900 per day, burst: 900, unit: cents}", ", units: [cents]")
	o := d.run("check", path)
	if o.code != exitOK || !strings.HasPrefix(o.out, path+`:1:52: warning: rule "a" is refilled while it is spent, so a caller can spend twice its 900 in 1d: if it is a budget, use the algorithm calendar or fixed window`) || !strings.Contains(o.out, "is valid: api") {
		t.Errorf("got %+v", o)
	}
	bad := d.file("a: {algorithm: sliding log, limit: 0, window: 1x}, b: 5", "")
	d.want(exitNo, bad+":1:98: ", "check "+bad)
	d.want(exitNo, bad+" is not valid.\n", "check "+bad)
	d.want(exitNo, `"valid": false`, "check -o json "+bad)
	d.want(exitOK, " is valid, and changes nothing.\n", "check FILE FILE")
}

// TestSecretSegments shows that a secret segment is in no output, and that an address is
// that of weirhttp.
func TestSecretSegments(t *testing.T) {
	d := newDesk(t)
	d.allow(limitsFile, "login", 2, "hunter2", "2001:db8:1:2::/64")
	for _, command := range []string{
		"explain", "explain -o json", "explain -short", "reset -rule both", "reset -rule both -o json", "reset -rule account", "pause",
		"resume -all", "explain -plan pro", "explain -addr account",
	} {
		o := d.run(d.args(command + " FILE login hunter2 2001:db8:1:2:3::4 -addr address")...)
		if strings.Contains(o.out+o.err, "hunter2") || command == "explain" && (!strings.Contains(o.out, "address=2001:db8:1:2::/64") || !strings.Contains(o.out, "3 of 5 tokens left")) {
			t.Errorf("%q: got %+v", command, o)
		}
	}
	if o := d.run(d.args("explain -addr account FILE login hunter2 x")...); !strings.Contains(o.err, "is not an IP address") || strings.Contains(o.err, "hunter2") {
		t.Errorf("got %+v", o)
	}
}

// TestHashedSegments shows that every command takes a secret or long segment as weir list prints it,
// and from standard input.
func TestHashedSegments(t *testing.T) {
	d := newDesk(t)
	long := strings.Repeat("x", weir.MaxSegment+1)
	const rules, overrides = "user: {algorithm: fixed window, limit: 20, window: 1h}, pause: {algorithm: pause}", ", overrides: [{match: {tenant: acme, user: ann}, rules: {user: {limit: 4}}}]"
	hidden, open := d.file(rules, ", secret: [user]"+overrides), d.file(rules, overrides)
	looks := fmt.Sprintf("%%sha256=%x", sha256.Sum256([]byte("ann")))
	for _, c := range []struct {
		file string
		key  []string
		left string
	}{
		{hidden, []string{"acme", "bob"}, "19 of 20"}, {hidden, []string{"acme", "ann"}, "3 of 4"}, {hidden, []string{long, "bob"}, "19 of 20"},
		{open, []string{"acme", looks}, "19 of 20"}, {open, []string{looks, "%25" + looks[1:]}, "19 of 20"}, // chosen by a caller: it is no hash
	} {
		d.allow(c.file, "api", 1, c.key...)
		var ranking explain.Ranking
		if d.reads(exitOK, &ranking, "list -o json -rule user "+c.file+" api"); len(ranking.Callers) != 1 {
			t.Fatalf("got %+v", ranking)
		}
		segments := ranking.Callers[0].Segments
		if s := segments[1]; s.Hashed == (c.file == open) || !s.Hashed && s.Value != "%25"+c.key[1][1:] {
			t.Errorf("%q is listed as %+v", c.key, s)
		}
		args := " " + c.file + " api " + segments[0].Value + " " + segments[1].Value
		d.want(exitOK, c.left, "explain -short"+args)
		d.want(exitOK, "user="+segments[1].Value+"\n", "explain"+args)
		d.want(exitOK, "1 of 1 callers", "list -rule user"+args)
		d.want(exitOK, "", "pause"+args)
		d.want(exitNo, "paused", "explain -short"+args)
		d.want(exitOK, "resumed", "resume -all"+args)
		d.want(exitOK, "reset rule user", "reset -rule user"+args)
		d.want(exitOK, "there was nothing to reset in rule user", "reset -rule user"+args)
		d.want(exitOK, "0 of 0 callers", "list"+args)

		d.allow(c.file, "api", 1, c.key...)
		in := strings.NewReader(storekey.Typed(c.key[0], false) + "\r\n" + storekey.Typed(c.key[1], false))
		if o := d.answer(in, "reset", "-rule", "user", c.file, "api", "-", "-"); o.code != exitOK || !strings.HasPrefix(o.out, "reset rule user") || o.err != "tenant: user: " {
			t.Errorf("from the input: got %+v", o)
		}
	}
	const full = "allowed; the rule with the fewest tokens is \"user\": all of 20 tokens left\n"
	d.want(exitOK, full, "explain -short "+open+" api acme "+looks) // a hash, but not of ann
	d.want(exitOK, full, "explain -short -addr user "+hidden+" api acme %sha256="+strings.Repeat("0", 64))
}

// TestHostileKeys shows that keys that callers chose do not control the terminal.
func TestHostileKeys(t *testing.T) {
	d := newDesk(t)
	hostile := "\x1b[2J\u202e\u009bé\nx"
	d.allow(limitsFile, "api", 20, "acme", hostile)
	for _, args := range [][]string{
		{"list", limitsFile, "api"}, {"explain", limitsFile, "api", "acme", hostile}, {"explain", "-o", "json", limitsFile, "api", "acme", hostile},
		{"reset", "-rule", "tenant", limitsFile, "api", "acme", hostile}, {"explain", "-short", limitsFile, "api", "acme", "ann", hostile}, {hostile},
		{"explain", limitsFile, hostile, "x"}, {"explain", hostile, "x", "y"}, {"check", hostile},
	} {
		o := d.run(args...)
		if text := o.out + o.err; strings.ContainsAny(text, "\x1b\u202e\u009b") || args[0] == "list" && !strings.Contains(o.out, `user="\x1b[2J\u202e\u009bé\nx"`) {
			t.Errorf("%q: got %q", args, text)
		}
	}
}

// A caller with an override has the place that its own limits give it, even if a segment of its key
// is secret. The list of a whole policy is in the guide: see TestGuide.
func TestList(t *testing.T) {
	d := newDesk(t)
	const ann = "20    20   100  user  tenant=acme user=ann  0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h\n"
	d.want(exitOK, `USED  OF   %    RULE  CALLER                STATE
`+ann+`9     200  4    user  tenant=acme user=bob  191 of 200 tokens left; full again in 1 h
2 of 2 callers with state
`, "list FILE api acme -rule user")
	d.want(exitOK, `USED  OF  %    RULE  CALLER                   STATE
20    20  100  user  tenant=acme user=ann     0 of 20 tokens left; full again in 1 h; the next request is allowed in 1 h
4     20  20   user  tenant=initech user=eve  16 of 20 tokens left; full again in 1 h
2 of 3 callers with state
`, "list -n 2 -rule user FILE api") // bob would be among them without the override
	d.want(exitOK, "\n1 of 5 callers with state\n", "list -n 1 FILE api")
	d.run(d.args("pause FILE api initech eve")...)
	d.want(exitOK, `USED  OF  %    RULE   CALLER                   STATE
-     -   100  pause  tenant=initech user=eve  paused: the next request is allowed in 5 min
1 of 1 callers with state
`, "list -rule pause FILE api")
	file := d.file("user: {algorithm: fixed window, limit: 100, window: 1h}", ", secret: [user], overrides: [{match: {tenant: zeta, user: ann}, rules: {user: {limit: 4}}}]")
	for user, n := range map[string]int{"ann": 3, "bob": 50, "eve": 60} {
		d.allow(file, "api", n, "zeta", user)
	}
	var ranking explain.Ranking
	d.reads(exitOK, &ranking, "list -o json -n 2 "+file+" api zeta")
	if c := ranking.Callers; len(c) != 2 || c[0].Used != 3 || c[0].Limit != 4 || c[1].Used != 60 {
		t.Errorf("got %+v", ranking)
	}
	// An override of a secret tenant holds for its rule, and for those of its users.
	file = d.file("tenant: {by: [tenant], algorithm: fixed window, limit: 100, window: 1h}, user: {algorithm: fixed window, limit: 50, window: 1h}",
		", secret: [tenant], overrides: [{match: {tenant: omega}, rules: {tenant: {limit: 6}, user: {limit: 4}}}]")
	d.allow(file, "api", 3, "omega", "ann")
	hash := fmt.Sprintf("%%sha256=%x", sha256.Sum256([]byte("omega")))
	ranking = explain.Ranking{}
	d.reads(exitOK, &ranking, "list -o json "+file+" api "+hash)
	if c := ranking.Callers; len(c) != 2 || c[0].Rule != "user" || c[0].Limit != 4 || c[1].Limit != 6 {
		t.Errorf("got %+v", ranking)
	}
	d.want(exitOK, "\"user\": 1 of 4 tokens left", "explain -short "+file+" api "+hash+" ann")
}

// TestListAgain shows that -every replaces the list, survives an outage, and ends on Ctrl-C.
func TestListAgain(t *testing.T) {
	d, faulty := emptyDesk(t), weirtest.NewFaulty()
	memory := faulty.Store.(*memory.Store)
	d.store = struct {
		*weirtest.Faulty
		store.Lister
	}{faulty, memory}
	d.serve(limitsFile)
	var screen strings.Builder
	tool := newTool(&screen, &screen, func(name string) string { return d.env[name] })
	tool.live = true
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int)
		go func() { done <- tool.run(ctx, []string{"list", "-every", "2s", limitsFile, "api"}) }()
		time.Sleep(time.Second)
		faulty.Set(weirtest.Down)
		time.Sleep(2 * time.Second)
		cancel()
		if code := <-done; code != exitOK || strings.Count(screen.String(), clearScreen) != 2 || !strings.HasSuffix(screen.String(), store.ErrUnavailable.Error()+"\n") {
			t.Errorf("code %d: %q", code, screen.String())
		}
	})
}

// TestUnits shows that every command asks a policy with units for 1 of each.
func TestUnits(t *testing.T) {
	d := newDesk(t)
	const live = "month: {algorithm: fixed window, limit: 20, window: 1h, unit: cents}, pause: {algorithm: pause}"
	file := d.file(live, ", units: [cents, bytes]")
	weirtest.Allow(t, d.limiter(file, "api", "acme", "ann"), weir.Request{Key: weir.KeyOf("acme", "ann"), Costs: weir.CostsOf(map[string]int64{"cents": 19})})
	const state = "1 of 20 cents left; full again in 1 h"
	d.want(exitOK, "allowed; the rule with the fewest tokens is \"month\": "+state+"\n", "explain -short "+file+" api acme ann")
	d.want(exitOK, "\n19    20  95  month  tenant=acme user=ann  "+state+"\n1 of 1 callers with state\n", "list -rule month "+file+" api")
	d.want(exitOK, "limit  algorithm: fixed window, limit: 20, window: 1h, unit: cents\n", "explain "+file+" api acme ann")
	d.want(exitOK, "ID\n", "pause "+file+" api acme ann")
	d.want(exitOK, "resumed\n", "resume -all "+file+" api acme ann")
	d.want(exitOK, "reset rule month: weir:api:{acme:ann}:month.f2\n", "reset -rule month "+file+" api acme ann")
	more := d.file(live+", rate: {algorithm: fixed window, limit: 9, window: 1h, unit: bytes}", ", units: [cents, bytes]")
	d.want(exitNo, `programs must name the unit "bytes" in Request.Costs before the reload`, "check "+more+" "+file)
}

func TestPause(t *testing.T) {
	d := newDesk(t)
	d.want(exitOK, "ID\n", "pause -for 5m FILE api acme bob")
	var second struct {
		Policy, Rule, ID string
		Seconds          float64
	}
	d.reads(exitOK, &second, "pause -for 1m -o json FILE api acme bob")
	if second.Rule != "pause" || second.Seconds != 60 || second.ID != d.ids[1] {
		t.Errorf("got %+v", second)
	}
	d.want(exitNo, `denied by rule "pause"`, "explain -short FILE api acme bob")
	d.want(exitOK, "resumed; the caller is paused for another 1m0s\n", "resume -id ID1 FILE api acme bob")
	d.want(exitNo, "there is no such pause; the caller is paused for another 1m0s\n", "resume -id ID1 FILE api acme bob")
	d.want(exitOK, `"paused": false`, "resume -o json -all FILE api acme bob")
	d.want(exitNo, "there is no such pause\n", "resume -all FILE api acme bob")
	d.want(exitOK, "allowed;", "explain -short FILE api acme bob")
	d.want(exitOK, "ID\n", "pause -for 1d12h FILE api acme bob")
	d.want(exitNo, "denied by rule \"pause\": paused: the next request is allowed in 1 d 12 h\n", "explain -short FILE api acme bob")

	// It asks before it stops other keys than the one given.
	d.ids = nil
	args := d.file("pause: {by: [tenant], algorithm: pause}", "") + " api acme ann"
	d.want(exitUsage, "This pauses all keys with the same tenant. Without a terminal to ask, it needs -yes", "pause "+args)
	d.want(exitOK, "allowed: not paused\n", "explain -short "+args)
	d.want(exitOK, "ID\n", "pause -yes "+args)
	d.want(exitOK, "ID\n", "pause -yes "+args)
	d.want(exitOK, "resumed; the caller is paused for another 5m0s\n", "resume -id ID1 "+args)
	d.want(exitUsage, "This ends all pauses of all keys with the same tenant. Without", "resume -all "+args)
	d.want(exitOK, "resumed\n", "resume -all -yes "+args)
}

func TestReset(t *testing.T) {
	d := newDesk(t)
	d.want(exitOK, `"weir:api:{acme}:user.f2:ann"`, "reset -o json -rule user FILE api acme ann")
	d.want(exitOK, "all of 20 tokens left\n", "explain -short FILE api acme ann")

	// More than one rule, and a rule that others share.
	d.want(exitUsage, "This resets rule pause (weir:api:{acme}:pause.p1:bob) and rule user (weir:api:{acme}:user.f2:bob). Without a terminal to ask, it needs -yes", "reset FILE api acme bob")
	d.want(exitUsage, "for all keys with the same tenant", "reset -rule tenant FILE api acme bob")
	for answer, code := range map[string]int{"y\n": exitOK, "YES\n": exitOK, "\n": exitNo, "": exitNo, "n\n": exitNo, "yesterday\n": exitNo} {
		d.allow(limitsFile, "api", 1, "acme", "bob")
		o := d.answer(strings.NewReader(answer), "reset", limitsFile, "api", "acme", "bob")
		left := d.run(d.args("list -rule user FILE api acme bob")...)
		if reset := !strings.Contains(left.out, "user=bob"); o.code != code || reset != (code == exitOK) || !strings.Contains(o.err, "Go on? [y/N] ") {
			t.Errorf("%q: got %+v, want code %d, and then\n%s", answer, o, code, left.out)
		}
	}
	d.want(exitOK, "reset rule tenant: weir:api:{acme}:tenant.t2\n", "reset -yes -rule tenant FILE api acme bob")

	// It looks for state after the answer, and only at its own rules.
	weirtest.Plant(t, d.store, "weir:api:{zeta}:tenant.t2", store.Tag{'x', '1'}, 1)
	d.want(exitOK, "there was nothing to reset in rule user: weir:api:{zeta}:user.f2:ann\n", "reset -rule user FILE api zeta ann")
	d.want(exitUnavailable, "tenant.t2", "reset -yes -rule tenant FILE api zeta ann")
	o := d.answer(reader(func(b []byte) (int, error) {
		d.allow(limitsFile, "api", 1, "beta", "ann") // while the question is on the screen
		return copy(b, "y\n"), nil
	}), "reset", limitsFile, "api", "beta", "ann")
	if o.code != exitOK || !strings.Contains(o.out, "reset rule user: ") || !strings.Contains(o.out, "there was nothing to reset in rule pause") {
		t.Errorf("got %+v", o)
	}

	// It says which shadow rules it clears.
	const live, shadow, shared = "user: {algorithm: fixed window, limit: 20, window: 1h}",
		"new: {algorithm: fixed window, limit: 10, window: 1h, shadow: true}", "tenant: {by: [tenant], algorithm: fixed window, limit: 9, window: 1h}"
	file := d.file(live+", "+shadow, "")
	d.want(exitUsage, "This resets rule user (weir:api:{acme:ann}:user.f2) and rule new (weir:api:{acme:ann}:new.f2).", "reset "+file+" api acme ann")
	d.allow(file, "api", 5, "acme", "ann")
	d.want(exitOK, "reset rule new: weir:api:{acme:ann}:new.f2\n", "reset -rule new "+file+" api acme ann")
	d.want(exitOK, "reset rule user: weir:api:{acme:ann}:user.f2\nthere was nothing to reset in rule new: weir:api:{acme:ann}:new.f2\n", "reset -yes "+file+" api acme ann")
	d.want(exitUsage, "no rule is identified by the whole key", "reset -yes "+d.file(shared+", "+shadow, "")+" api acme ann")
}

type reader func(b []byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }
