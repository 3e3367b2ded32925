package sfvtest

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/weirhttp"
	"github.com/weir-go/weir/weirhttp/internal/sfv"
)

// A decider answers with random results.
type decider struct {
	rnd   *rand.Rand
	rules []weir.Result
}

func (d *decider) Decide(_ context.Context, _ weir.Request, each []weir.Result) (weir.Result, error) {
	number := func() int64 { return d.rnd.Int64() >> d.rnd.IntN(63) }
	d.rules = make([]weir.Result, 1+d.rnd.IntN(weir.MaxRules))
	for i := range d.rules {
		name := make([]byte, 1+d.rnd.IntN(20))
		for j := range name {
			name[j] = byte(d.rnd.Uint32() >> d.rnd.IntN(3))
		}
		d.rules[i] = weir.Result{
			Allowed: d.rnd.IntN(2) == 0, Type: weir.RuleType(d.rnd.IntN(2)), Rule: string(name), Limit: number(), Remaining: number(),
			Window: time.Duration(number()) * time.Duration(d.rnd.IntN(2)), ResetAfter: time.Duration(number()), RetryAfter: time.Duration(number()),
		}
		if d.rnd.IntN(9) == 0 {
			d.rules[i].RetryAfter = weir.Never
		}
	}
	copy(each, d.rules)
	res := d.rules[0]
	res.Allowed = d.rnd.IntN(2) == 0
	return res, nil
}

// What the middleware writes is a List of Items with the right types and values, in
// strict syntax.
func TestFields(t *testing.T) {
	d := &decider{rnd: rand.New(rand.NewPCG(1, 2))}
	var pk []byte
	limit, err := weirhttp.New(d, weirhttp.By(weirhttp.Text("all")), &weirhttp.Options{
		Headers:      weirhttp.RateLimitDraft11,
		PartitionKey: func(*http.Request) []byte { return pk },
	})
	if err != nil {
		t.Fatal(err)
	}
	h := limit(http.NotFoundHandler())
	for range 5000 {
		pk = make([]byte, d.rnd.IntN(5))
		for i := range pk {
			pk[i] = byte(d.rnd.Uint32())
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		policy, state := parse(t, w.Header()["Ratelimit-Policy"], len(d.rules)), parse(t, w.Header()["Ratelimit"], len(d.rules))
		for i := range d.rules {
			rule := &d.rules[i]
			window, timed := any(seconds(rule.Window)), any(seconds(rule.ResetAfter))
			if !rule.Allowed && rule.RetryAfter != weir.Never {
				timed = max(seconds(rule.RetryAfter), 1)
			}
			unit := any(nil)
			if rule.Window == 0 {
				window = nil
			}
			if rule.Type == weir.LeaseRule {
				window, timed, unit = nil, nil, "concurrent-requests"
			}
			check(t, policy[i], rule, pk, map[string]any{"q": integer(rule.Limit), "w": window, "qu": unit, "r": nil, "t": nil})
			check(t, state[i], rule, pk, map[string]any{"r": integer(rule.Remaining), "t": timed, "q": nil, "qu": nil, "w": nil})
		}
		if t.Failed() {
			t.Fatalf("policy %q\nstate %q", w.Header()["Ratelimit-Policy"], w.Header()["Ratelimit"])
		}
	}
}

func integer(n int64) int64 { return min(n, 999_999_999_999_999) }

func seconds(d time.Duration) int64 { return (int64(d)-1)/int64(time.Second) + min(int64(d), 1) }

// parse parses a field with n items.
func parse(t *testing.T, lines []string, n int) []httpsfv.Item {
	t.Helper()
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil || len(list) != n {
		t.Fatalf("%q: got %d items, %v, want %d", lines, len(list), err, n)
	}
	items := make([]httpsfv.Item, n)
	for i := range list {
		it, ok := list[i].(httpsfv.Item)
		if !ok {
			t.Fatalf("%q: member %d is no item", lines, i)
		}
		items[i] = it
	}
	return items
}

// check checks the name of an item, its partition key and the other parameters.
func check(t *testing.T, it httpsfv.Item, rule *weir.Result, pk []byte, want map[string]any) {
	t.Helper()
	if it.Value != sfv.Plain(rule.Rule) {
		t.Errorf("the name is %v, want %q", it.Value, sfv.Plain(rule.Rule))
	}
	for name, value := range want {
		if got, ok := it.Params.Get(name); ok != (value != nil) || ok && got != value {
			t.Errorf("the parameter %s is %v, want %v", name, got, value)
		}
	}
	got, ok := it.Params.Get("pk")
	if b, isBytes := got.([]byte); ok != (len(pk) > 0) || ok && (!isBytes || string(b) != string(pk)) {
		t.Errorf("the parameter pk is %v, want %v", got, pk)
	}
}

// compare parses s with both implementations.
func compare(t *testing.T, s string) {
	t.Helper()
	got, err := sfv.Parse(s)
	list, wantErr := httpsfv.UnmarshalList([]string{s})
	for _, m := range list {
		if _, inner := m.(httpsfv.InnerList); inner {
			if err == nil {
				t.Errorf("%q: got %+v, want an error, because a member is an inner list", s, got)
			}
			return
		}
	}
	if differs(s) {
		return
	}
	if (err == nil) != (wantErr == nil) || len(got) != len(list) {
		t.Fatalf("%q: got %+v, %v, want %+v, %v", s, got, err, list, wantErr)
	}
	for i := range got {
		it := list[i].(httpsfv.Item)
		same(t, s, got[i].Value, it.Value)
		if len(got[i].Params) != len(it.Params.Names()) {
			t.Errorf("%q: got %d parameters, want %d", s, len(got[i].Params), len(it.Params.Names()))
		}
		for _, p := range got[i].Params {
			value, ok := it.Params.Get(p.Name)
			if !ok {
				t.Errorf("%q: got a parameter %s, want none", s, p.Name)
			}
			same(t, s, p.Value, value)
		}
	}
}

// differs reports whether httpsfv rejects a valid s, or the other way round: where RFC
// 9651 says that a parser may be lenient with base64.
func differs(s string) bool { return strings.Contains(s, ":") }

func same(t *testing.T, s string, got sfv.Value, want any) {
	t.Helper()
	ok := false
	switch v := want.(type) {
	case int64:
		ok = got.Kind == sfv.Integer && got.Int == v
	case float64:
		ok = got.Kind == sfv.Decimal
	case string:
		ok = got.Kind == sfv.String && got.Text == v
	case httpsfv.Token:
		ok = got.Kind == sfv.Token && got.Text == string(v)
	case httpsfv.DisplayString:
		ok = got.Kind == sfv.Display && got.Text == string(v)
	case []byte:
		ok = got.Kind == sfv.Bytes && got.Text == string(v)
	case bool:
		ok = got.Kind == sfv.Boolean && (got.Int == 1) == v
	case time.Time:
		ok = got.Kind == sfv.Date && got.Int == v.Unix()
	}
	if !ok {
		t.Errorf("%q: got %+v, want %T %[3]v", s, got, want)
	}
}

var pieces = []string{
	`"a"`, `"`, "a", "r", "t", "=", ";", ",", " ", "\t", "0", "1", "-", ".", "999999999999999", "5", "?1", "?0", "?", "@", `%"`, "%c3%bc", "%C3", "%", `\"`, `\\`, `\`,
	"*", "(", ")", ";r=0;t=9", "A", "é", "_", "/", "!",
}

// Both implementations agree on random lists.
func TestParse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	valid := 0
	for range 300_000 {
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		compare(t, b.String())
		if list, err := sfv.Parse(b.String()); err == nil && len(list) > 0 {
			valid++
		}
	}
	if valid < 10_000 {
		t.Errorf("%d of the lists are valid and not empty, want at least 10000", valid)
	}
}

// Both implementations agree on byte sequences with canonical base64.
func TestBytes(t *testing.T) {
	for n := range 100 {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i * 37)
		}
		s := "1;pk=:" + base64.StdEncoding.EncodeToString(data) + ":"
		got, err := sfv.Parse(s)
		list, wantErr := httpsfv.UnmarshalList([]string{s})
		if err != nil || wantErr != nil || len(got) != 1 || len(got[0].Params) != 1 {
			t.Fatalf("%s: got %+v, %v and %v", s, got, err, wantErr)
		}
		want, _ := list[0].(httpsfv.Item).Params.Get("pk")
		same(t, s, got[0].Params[0].Value, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range append(pieces, `"a";r=0;t=9, "b";r=1;pk=:YQ==:`) {
		f.Add(s)
	}
	f.Fuzz(compare)
}
