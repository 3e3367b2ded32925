package sfvtest

import (
	"context"
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

func integer(n int64) int64 { return min(n, 999_999_999_999_999) }

func seconds(d time.Duration) int64 { return (int64(d)-1)/int64(time.Second) + min(int64(d), 1) }

// What the middleware writes is what the other implementation writes for the same Items.
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
		var policies, states httpsfv.List
		for _, rule := range d.rules {
			policy, state, after := httpsfv.NewItem(sfv.Plain(rule.Rule)), httpsfv.NewItem(sfv.Plain(rule.Rule)), seconds(rule.ResetAfter)
			if !rule.Allowed && rule.RetryAfter != weir.Never {
				after = max(seconds(rule.RetryAfter), 1)
			}
			policy.Params.Add("q", integer(rule.Limit))
			state.Params.Add("r", integer(rule.Remaining))
			if rule.Type == weir.LeaseRule {
				policy.Params.Add("qu", "concurrent-requests")
			} else {
				state.Params.Add("t", after)
				if rule.Window > 0 {
					policy.Params.Add("w", seconds(rule.Window))
				}
			}
			if len(pk) > 0 {
				policy.Params.Add("pk", pk)
				state.Params.Add("pk", pk)
			}
			policies, states = append(policies, policy), append(states, state)
		}
		for name, list := range map[string]httpsfv.List{"RateLimit-Policy": policies, "RateLimit": states} {
			if want, err := httpsfv.Marshal(list); err != nil || w.Header().Get(name) != want {
				t.Fatalf("%s:\ngot  %s\nwant %s, %v", name, w.Header().Get(name), want, err)
			}
		}
	}
}

// compare parses s with both implementations. What the other one accepts, sfv reads in the same way,
// if it is a String or an Integer. It reports whether there is an item.
func compare(t *testing.T, s string) bool {
	t.Helper()
	got, err := sfv.Parse(s)
	list, invalid := httpsfv.UnmarshalList([]string{s})
	if invalid != nil {
		return false // sfv can accept it: it does not look into values that nobody reads
	}
	for _, m := range list {
		if _, inner := m.(httpsfv.InnerList); inner {
			if err == nil {
				t.Errorf("%q: got %+v, want an error, because a member is an inner list", s, got)
			}
			return false
		}
	}
	if err != nil || len(got) != len(list) {
		t.Fatalf("%q: got %+v, %v, want %+v", s, got, err, list)
	}
	for i := range got {
		it := list[i].(httpsfv.Item)
		same(t, s, got[i].Value, it.Value)
		for _, name := range it.Params.Names() {
			want, _ := it.Params.Get(name)
			same(t, s, got[i].Params[name], want)
		}
		if len(got[i].Params) != len(it.Params.Names()) {
			t.Errorf("%q: got %+v, want %v", s, got[i].Params, it.Params.Names())
		}
	}
	return len(got) > 0
}

func same(t *testing.T, s string, got sfv.Value, value any) {
	t.Helper()
	want := sfv.Value{Text: got.Text}
	switch v := value.(type) {
	case int64:
		want.Kind, want.Int = sfv.Integer, v
	case string:
		want.Kind, want.Text = sfv.String, v
	}
	if got != want {
		t.Errorf("%q: got %+v, want %T %[3]v", s, got, value)
	}
}

var pieces = []string{
	`"a"`, `"`, "a", "r", "t", "=", ";", ",", " ", "\t", "0", "1", "-", ".", "999999999999999", "5", "?1", "?0", "?", "@", `%"`, "%c3%bc", "%C3", "%", `\"`, `\\`, `\`,
	"*", "(", ")", ";r=0;t=9", "A", "é", "_", "/", "!", ":", ":YQ==:",
}

// Both implementations agree on random lists.
func TestParse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	valid := 0
	for range 100_000 {
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		if compare(t, b.String()) {
			valid++
		}
	}
	if valid < 2000 {
		t.Errorf("%d of the lists are valid and not empty, want at least 2000", valid)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range append(pieces, `"a";r=0;t=9, "b";r=1;pk=:YQ==:`) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { compare(t, s) })
}
