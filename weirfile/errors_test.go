package weirfile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// good is a valid file. Tests replace its lines.
const good = `policies:
  api:
    segments: [tenant, user]
    secret: [user]
    rules:
      tenant:
        by: [tenant]
        algorithm: gcra
        rate: 100 per second
        burst: 200
      user:
        algorithm: fixed window
        limit: 1000
        window: 1h
        cost: 5
      month:
        algorithm: calendar
        limit: 1000
        every: month
      later: {algorithm: leaky bucket, rate: 1 per 10s, shadow: true}
    plans:
      pro:
        user: {limit: 5000}
    overrides:
      - match: {tenant: acme, user: ann}
        plan: pro
      - match: {tenant: acme, user: bob}
        rules:
          user: {limit: 20000}
    units: [input, output]
`

const ann = "{tenant: acme, user: ann}"

// wide has a rule by all segments, and narrow none by user.
const (
	wide = `policies:
  api:
    segments: [tenant, user, host]
    rules:
      all: {algorithm: fixed window, limit: 1, window: 1h}
      tenant: {by: [tenant, host], algorithm: fixed window, limit: 1, window: 1h}
    plans: {pro: {all: {limit: 5}}}
    overrides: OVERRIDES
`
	narrow = `policies:
  api:
    segments: [tenant, user, host]
    rules:
      all: {by: [tenant, host], algorithm: fixed window, limit: 1, window: 1h}
      tenant: {by: [tenant], algorithm: fixed window, limit: 1, window: 1h}
    plans: {pro: {all: {limit: 5}}}
    overrides: OVERRIDES
`
)

func TestMistakes(t *testing.T) {
	t.Parallel()
	if _, err := Parse("x.yaml", []byte(good), nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, given, want string }{
		// The file.
		{good, "", `0:0 the file is empty: it must have policies`},
		{good, "# nothing\n", `0:0 the file is empty: it must have policies`},
		{good, "null\n", `1:1 the file is empty: it must be a mapping of names to values`},
		{good, "policies:\n", `1:10 policies is empty: it must be a mapping of names to values`},
		{good, "policies: {}\n", `1:11 policies is empty: it must have at least one policy`},
		{good, "policis: {}\n", `1:1 the file has no field "policis": did you mean "policies"?`},
		{good, "other: {}\n", `1:1 the file has no field "other": the fields are policies, $schema`},
		{good, "$schema: x\n", `1:1 the file has no field "policies": it must have one`},
		{good, strings.TrimSpace(good), `0:0 the file does not end with a line break, so it may be cut off: add one at its end`},
		{good, `{"policies": {`, `2:1 the file is not valid YAML: did not find expected node content`},
		{good, "policies: a: b\n", `1:12 the file is not valid YAML: mapping values are not allowed in this context`},
		{good, "a: 1\n---\nb: 1\n", `0:0 the file has several documents, separated by ---: it must have one`},
		{good, "policies: *x\n", `1:11 the file is not valid YAML: unknown anchor 'x' referenced`},
		{good, "policies: &x [*x]\n", `1:11 policies is a list: it must be a mapping of names to values`},
		{good, "- a\n", `1:1 the file is a list: it must be a mapping of names to values`},
		{good, "? [a]\n: b\n", `1:3 a name in the file is a list: it must be a text`},
		{good, "policies:\n  api: &a {rules: {r: {algorithm: gcra, rate: 1 per second, burst: 1}}}\n  web: *a\n", `3:8 policy "web" is an alias or a merge key, which are not supported: write the values again`},
		{"user: {limit: 5000}", "user: &u {limit: 5000}\n      max:\n        user:\n          <<: *u", `26:11 a name in plan "max": rule "user" is an alias or a merge key`},
		{"window: 1h", "window: \xff", `14:17 the file is not valid YAML: invalid leading UTF-8 octet (value: 255): it must be UTF-8 without control characters`},
		{"policies", "\x00", `1:1 the file is not valid YAML: control characters are not allowed (value: 0): it must be`},
		{good, "\ufeffa: é\x00\n", `1:5 the file is not valid YAML: control`},

		// Policies.
		{"segments:", "segment:", `3:5 policy "api" has no field "segment": did you mean "segments"?`},
		{"    plans:", "    rules:", `21:5 policy "api" has "rules" twice: the first is on line 5`},
		{"segments: [tenant, user]", "segments: []", `3:15 segments is empty: it must have at least one name, or be left out for one segment; 4:14`},
		{"segments: [tenant, user]", "segments:", `3:14 segments is empty: it must be a list; 4:14`},
		{"secret: [user]", "secret: [usr]", `4:14 secret has the segment "usr", which the policy lacks: did you mean "user"?`},
		{"secret: [user]", "secret: user", `4:13 secret is "user": it must be a list`},
		{"secret: [user]", "secret: [user, user]", `4:5 policy "api": secret names the segment "user" twice: name it once`},
		{good, "policies:\n  api:\n    segments: [user, user]\n    rules: {r: {algorithm: gcra, rate: 1 per second, burst: 1}}\n", `3:5 policy "api": segments has the name "user" twice: each segment needs its own name`},
		{"[input, output]", "[]", `30:12 units is empty: it must have at least one name, or be left out`},
		{"[input, output]", "input", `30:12 units is "input": it must be a list`},
		{"[input, output]", "[input, input]", `30:5 policy "api": units has the name "input" twice: each unit needs its own name`},
		{"  api:", "  \"\":", `2:3 policy "": the limiter's name is empty: give each limiter its own name, so that two limiters never share state by accident`},
		{"by: [tenant]", "by: [tennant]", `7:14 rule "tenant": by has the segment "tennant", which the policy lacks: did you mean "tenant"?`},
		{"by: [tenant]", "by: []", `6:7 policy "api": rule "tenant": by is empty: it must name at least one segment, or be nil for all`},

		// Rules.
		{"algorithm: gcra", "algorithm: grca", `8:20 rule "tenant": algorithm is "grca": did you mean "gcra"?`},
		{"algorithm: fixed window", "algorithm: fixedwindow", `12:20 rule "user": algorithm is "fixedwindow": did you mean "fixed window"?`},
		{"        algorithm: gcra\n", "", `6:7 rule "tenant" has no algorithm: it must be gcra, fixed window, sliding counter, `},
		{"burst: 200", "brust: 200", `6:7 rule "tenant" has no burst: the algorithm gcra needs it; 10:9 rule "tenant" has no field "brust": did you mean "burst"?`},
		{"burst: 200", "burst: 200\n        size: 1", `11:9 rule "tenant" has no field "size": the fields of the algorithm gcra are rate, burst, by, algorithm, cost, unit, shadow`},
		{"burst: 200", "burst: 0", `10:16 rule "tenant": burst is 0: it must be from 1 to 9007199254740991`},
		{"burst: 200", "burst: \"200\"", `10:16 rule "tenant": burst is a text in quotes: write it without them: 200`},
		{"burst: 200", "burst: 1e3", `10:16 rule "tenant": burst is "1e3": did you mean 1000?`},
		{"algorithm: gcra", "algoritm: gcra", `8:9 rule "tenant" has no field "algoritm": did you mean "algorithm"?`},
		{"window: 1h", "window: 0s", `14:17 rule "user": window is 0s: it must be a whole number of microseconds, from 1us to 52124d23h53m47s370ms496us`},
		{"burst: 200", "burst: [200]", `10:16 rule "tenant": burst is a list: it must be a text`},
		{"burst: 200", "burst:", `10:15 rule "tenant": burst is empty: it must be a text`},
		{"burst: 200", "burst: 200\n        burst: 300", `11:9 rule "tenant" has "burst" twice: the first is on line 10`},
		{"rate: 100 per second", "rate: 100", `9:15 rule "tenant": rate is "100": ` + rateForm},
		{"rate: 100 per second", "rate: 4503599627370 per 106751d", `10:16 rule "tenant": burst is 200: at 4503599627370 per 106751d it must be at most 29, so that it can be counted exactly`},
		{"window: 1h", "window: 3600", `14:17 rule "user": window is "3600": the unit is missing: did you mean 3600s?`},
		{"window: 1h", "window: 1ns", `14:17 rule "user": window is 1ns: it must be a whole number of microseconds`},
		{"window: 1h", "window: 1h\n        aligned: yes", `15:18 rule "user": aligned is "yes": it must be true or false`},
		{"cost: 5", "cost: 0", `15:15 rule "user": cost is 0: it must be at least 1, or left out for the cost of the request`},
		{"cost: 5", "cost: 2000", `11:7 policy "api": rule "user": cost is 2000: it must be at most 1000, the limit`},
		{"cost: 5", "unit: inptu", `15:15 rule "user": unit is "inptu", which the policy's units lack: did you mean "input"?`},
		{"cost: 5", "unit: [input]", `15:15 rule "user": unit is a list: it must be a text`},
		{"cost: 5", "cost: 5\n        unit: input", `15:15 rule "user": cost is 5: it must be left out, because the rule counts the unit "input"`},
		{"leaky bucket, rate: 1 per 10s", "concurrency, limit: 1, lease: 1s, unit: input", `20:7 policy "api": rule "later": unit is "input": it must be left out, because a concurrency does not count tokens`},
		{"every: month", "every: mnth", `19:16 rule "month": every is "mnth": did you mean "month"?`},
		{"every: month", "every: week", `16:7 rule "month": day is 0: it must be the day on which a week starts, from 1 (Monday) to 7 (Sunday)`},
		{"every: month", "every: week\n        day: 1", `20:14 rule "month": day is "1": it must be the day on which a week starts: it must be monday, tuesday, wednesday, thursday, friday, saturday or sunday`},
		{"every: month", "every: week\n        day: Mondy", `20:14 rule "month": day is "Mondy": it must be the day on which a week starts: did you mean "monday"?`},
		{"every: month", "day: monday\n        every: month", `19:14 rule "month": day is "monday": it must be a day of the month, from 1 to 31: only a week starts on a monday`},
		{"every: month", "every: month\n        zone: Europe/Berln", `20:15 rule "month": zone is "Europe/Berln": unknown time zone Europe/Berln: it must be a name of the IANA database, for example "Europe/Berlin"; `},
		{"every: month", "every: month\n        at: 6", `20:13 rule "month": at is "6": it must be a time of day from "00:00" to "23:59"`},
		{"every: month", "every: month\n        month: may", `20:16 rule "month": month is 5: it must be 0, because it applies only to a quarter or a year`},
		{"algorithm: leaky bucket, rate: 1 per 10s", "algorithm: sliding buckets, width: 1s, spans: [{windw: 1s, limit: 1}]", `20:62 rule "later": spans[0] has no window: it needs one; 20:63 rule "later": spans[0] has no field "windw": did you mean "window"?`},
		{"algorithm: leaky bucket, rate: 1 per 10s", "algorithm: sliding buckets, width: 1s, spans: [{window: 1s}]", `20:62 rule "later": spans[0] has no limit: it needs one`},
		{"algorithm: leaky bucket, rate: 1 per 10s", "algorithm: sliding buckets, width: 1s, spans: 1", `20:61 rule "later": spans is "1": it must be a list`},
		{"algorithm: leaky bucket, rate: 1 per 10s", "algorithm: sliding buckets, width: 1s, spans: []", `20:61 rule "later": spans has 0 elements: it must have from 1 to 8`},
		{"shadow: true", "shadw: true", `20:57 rule "later" has no field "shadw": did you mean "shadow"?`},
		{"algorithm: leaky bucket, rate: 1 per 10s", "algorithm: metadata window, limit: 1, window: 1s", `20:7 policy "api": rule "later"`},

		// Plans.
		{"user: {limit: 5000}", "usr: {limit: 5000}", `23:9 plan "pro" has a rule "usr", which the policy lacks: did you mean "user"?`},
		{"user: {limit: 5000}", "user: {limit: 0}", `23:23 plan "pro": rule "user": limit is 0: it must be from 1 to 9007199254740991`},
		{"user: {limit: 5000}", "user: {limit: 2}", `23:9 plan "pro": rule "user": cost is 5: it must be at most 2, the limit`},
		{"user: {limit: 5000}", "user: {limt: 1}", `23:16 plan "pro": rule "user" has no field "limt": did you mean "limit"?`},
		{"user: {limit: 5000}", "user: {by: [user]}", `23:16 plan "pro": rule "user" has a field "by": it can be changed only in the policy`},
		{"user: {limit: 5000}", "user: {shadow: true}", `23:16 plan "pro": rule "user" has a field "shadow": it can be changed only in the policy`},
		{"user: {limit: 5000}", "user: {unit: input}", `23:16 plan "pro": rule "user" has a field "unit": it can be changed only in the policy`},
		{good, strings.NewReplacer("cost: 5", "unit: input", "limit: 5000", "cost: 2").Replace(good), `23:22 plan "pro": rule "user": cost is 2: it must be left out, because the rule counts the unit "input"`},
		{"user: {limit: 5000}", "user: {algorithm: gcra}", `23:27 plan "pro": rule "user": algorithm is "gcra": it must be "fixed window", as in the policy, because the keys hold the state of that algorithm`},
		{"      pro:\n", "      \"\":\n", `22:7 policy "api": a plan has an empty name: give it one; 26:15`},

		// Overrides.
		{"user: {limit: 20000}", "", `28:15 the override is empty: it must be a mapping of names to values`},
		{"plan: pro", "plan: prp", `26:15 plan is "prp", which the policy lacks: did you mean "pro"?`},
		{"        plan: pro\n", "", `25:9 an override has neither a plan nor rules, and is neither unlimited nor blocked: it must have one of them`},
		{"plan: pro", "pln: pro", `25:9 an override has neither a plan nor rules, and is neither unlimited nor blocked: it must have one of them; 26:9 an override has no field "pln": did you mean "plan"?`},
		{"- match: " + ann + "\n        plan", "- plan", `25:9 an override has no match: it must name callers by their segments, for example match: {tenant: TENANT, user: USER}`},
		{"match: " + ann, "key: [acme, ann]", `25:9 an override has no field "key": the fields are match, plan, rules, unlimited, blocked; 25:9 an override has no match: it must name callers by their segments, for example match: {tenant: TENANT, user: USER}`},
		{ann, "acme", `25:16 match must be a mapping that names at least one segment, for example {tenant: TENANT, user: USER}`},
		{ann, "[acme, ann]", `25:16 match must be a mapping that names at least one segment, for example {tenant: TENANT, user: USER}`},
		{ann, "{}", `25:16 match must be a mapping that names at least one segment, for example {tenant: TENANT, user: USER}`},
		{ann, "{tennant: acme}", `25:17 match has a segment that the policy lacks: did you mean "tenant"?`},
		{ann, "{tenant: acme, host: x}", `25:31 match has a segment that the policy lacks: it must be tenant or user`},
		{ann, `{tenant: acme, user: ""}`, `25:37 match: user is empty: it must have at least 1 byte`},
		{ann, `{tenant: acme, user: "*"}`, `25:37 match: user is "*": leave the segment out, so that any matches`},
		{ann, "{tenant: acme, user: ~}", `25:37 a value of match is empty: it must be a text`},
		{ann, "{tenant: acme, user: bob}", `27:16 two overrides have this match: the first is on line 25`},
		{"user: {limit: 20000}", "user: {limit: x}", `29:25 the override: rule "user": limit is "x": it must be a whole number, written in digits`},
		{"user: {limit: 20000}", "user: {limit: 3}", `29:11 the override: rule "user": cost is 5: it must be at most 3, the limit`},
		{"user: {limit: 20000}", "tenant: {burst: 300}", `29:11 the override: rule "tenant" counts all callers with the same tenant together, so it cannot be set for some of them: match only {tenant: TENANT}`},
		{"plan: pro", "blocked: false", `26:18 an override: blocked is "false": it must be true, or be left out`},
		{"plan: pro", "blocked: yes", `26:18 an override: blocked is "yes": it must be true, or be left out`},
		{"plan: pro", "plan: pro\n        blocked: true", `25:9 an override is blocked, and has a plan or rules: it must have only one of them`},
		{"plan: pro", "unlimited: true\n        blocked: true", `27:18 an override is unlimited and blocked: it must be one of them`},
		{"plan: pro", "unlimited: {}", `26:20 an override: unlimited must be true, or be left out`},
		{"user: {limit: 5000}", "blocked: true\n        user: {limit: 5000}", `22:7 plan "pro" is blocked, and has rules: it must have only one of them`},
		{"user: {limit: 5000}", "unlimited: 1", `23:20 plan "pro": unlimited is "1": it must be true, or be left out`},
		{"user: {limit: 5000}", "blocked: true\n        unlimited: true", `24:20 plan "pro" is unlimited and blocked: it must be one of them`},
		{good, strings.Replace(narrow, "OVERRIDES", "[{match: {user: ann}, plan: pro}]", 1), `8:17 the override: it sets no limit: it must set a rule by the segments that it names, which are user`},
		{good, strings.Replace(narrow, "OVERRIDES", "[{match: {user: ann}, rules: {all: {limit: 2}}}]", 1), `8:46 the override: rule "all" counts all callers with the same tenant and host together`},
		{good, strings.Replace(wide, "OVERRIDES", "[{match: {tenant: a}, rules: {all: {limit: 2}}}, {match: {user: b}, plan: pro}]", 1), `8:65 the override and that on line 8 can match one key, and set the same with equally many segments: let both name the same segments`},
		{good, strings.Replace(wide, "OVERRIDES", "[{match: {tenant: a, user: b}, blocked: true}, {match: {user: b, host: c}, unlimited: true}]", 1), `8:63 the override and that on line 8 can match one key`},
		{good, strings.Replace(wide, "OVERRIDES", "[{match: {tenant: a}, blocked: true}, {match: {tenant: b}, unlimited: true}, {match: {user: b}, blocked: true}]", 1), `8:93 the override and that on line 8 can match one key`},
	} {
		text := strings.Replace(good, c.old, c.given, 1)
		_, err := Parse("x.yaml", []byte(text), nil)
		if err == nil {
			t.Errorf("%q: got no error, want %s", c.given, c.want)
			continue
		}
		if got := brief(err); !strings.HasPrefix(got, c.want) {
			t.Errorf("%q:\n got %s\nwant %s", c.given, got, c.want)
		}
	}
}

// brief returns the errors with their places.
func brief(err error) string {
	var list []string
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return "not joined: " + err.Error()
	}
	for _, err := range joined.Unwrap() {
		var e *Error
		if !errors.As(err, &e) {
			list = append(list, err.Error())
			continue
		}
		list = append(list, fmt.Sprintf("%d:%d %s", e.Line, e.Column, e.Text))
	}
	return strings.Join(list, "; ")
}

// A value is cut in an error, and the advice stays.
func TestLongMistakes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 1<<20)
	_, err := limitsOfText(t, shop, nil).For(t.Context(), "api", long, weir.KeyOf("acme", "x"))
	errs := map[string]error{"it must be pro": err}
	for given, advice := range map[string]string{"window: 1h": durationForm, "rate: 100 per second": rateForm, "every: month": "day, week, month, quarter or year", "secret: [user]": "must be a list", "gcra": "concurrency or pause"} {
		name, _, _ := strings.Cut(given, " ")
		_, errs[advice] = Parse("x.yaml", []byte(strings.Replace(good, given, strings.TrimPrefix(name+" "+long, "gcra "), 1)), nil)
	}
	for advice, err := range errs {
		if text := fmt.Sprint(err); len(text) > 2000 || !utf8.ValidString(text) || !strings.Contains(text, "é…") || !strings.Contains(text, advice) {
			t.Errorf("got %d bytes, want %s: %.3000s", len(text), advice, text)
		}
	}
}

// manyOverrides returns a file with n overrides of the given form, which has a %d.
func manyOverrides(n int, form string) []byte {
	var b strings.Builder
	b.WriteString(`policies:
  api:
    segments: [tenant, user]
    rules:
      tenant: {by: [tenant], algorithm: gcra, rate: 100 per second, burst: 200}
      user: {algorithm: fixed window, limit: 1000, window: 1h}
    plans:
      pro:
        user: {limit: 5000}
    overrides:
`)
	for i := range n {
		fmt.Fprintf(&b, "      - "+form+"\n", i+1)
	}
	return []byte(b.String())
}

// All mistakes are reported at once, in the order of the file, but not too many.
func TestManyMistakes(t *testing.T) {
	t.Parallel()
	_, err := Parse("x.yaml", []byte("policies:\n  b: {rules: {r: {algorithm: gcra, burst: 0, rate: 1}}}\n  a: 5\n  c: {rule: 1}\n"), nil)
	want := `weirfile: x.yaml:2:52: rule "r": rate is "1": ` + rateForm + `
weirfile: x.yaml:3:6: policy "a" is "5": it must be a mapping of names to values
weirfile: x.yaml:4:3: policy "c" has no rules: it must have at least one
weirfile: x.yaml:4:7: policy "c" has no field "rule": did you mean "rules"?`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	_, err = Parse("x.yaml", manyOverrides(1000, "{match: {tenant: a, user: b%d}, plan: prx}"), nil)
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != maxErrors+1 || lines[maxErrors] != "weirfile: x.yaml: 980 more mistakes are not shown" {
		t.Errorf("got %d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
}

// An error wraps that of package weir.
func TestErrorIs(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]error{"burst: 0": algorithm.ErrInvalidLimit, "burst: 1, cost: 2": weir.ErrInvalidRule} {
		if _, err := Parse("x.yaml", one("algorithm: gcra, rate: 1 per second, "+rule), nil); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// Errors do not show the keys of overrides, because a segment can be secret.
func TestErrorsHideKeys(t *testing.T) {
	t.Parallel()
	for _, match := range []string{"[hush]", "hush", "{hush: 1}", "{acme, hush}", "{tenant: [hush]}", "{tenant: hush, user: {hush: 1}}", "{tenant: hush, user: hush}", "{tenant: hush, user: '*'}"} {
		text := strings.Replace(good, "{tenant: acme, user: bob}", match, 1)
		text = strings.Replace(text, ann, match, 1)
		if _, err := Parse("x.yaml", []byte(text), nil); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: got %v", match, err)
		}
	}
}
