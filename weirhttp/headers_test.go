package weirhttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// answer returns the status of an answer, the type of its problem, the rules that are violated, and
// the fields about limits.
func answer(w *httptest.ResponseRecorder) string {
	text, header := []string{fmt.Sprint(w.Code)}, w.Result().Header // as it was when the handler began to write
	if w.Body.Len() > 0 {
		var p struct {
			Type, Title string
			Violated    []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || header.Get("Content-Type") != "application/problem+json" || p.Title == "" {
			return fmt.Sprint(err, header, w.Body)
		}
		text[0] += fmt.Sprint(" ", strings.TrimPrefix(path.Base(p.Type), "http-problem-types#"), " ", p.Violated)
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if strings.Contains(name, "Ratelimit") || name == "Retry-After" || name == "Content-Length" {
			text = append(text, strings.TrimPrefix(name, "Ratelimit-")+": "+strings.Join(header[name], " + "))
		}
	}
	return strings.Join(text, " | ")
}

// What each dialect says about a decision, at 300 ms past the full second 946684800. A wrapper need
// not fill the results of the rules, and its numbers can be out of the range of the fields.
func TestFields(t *testing.T) {
	draft, x, unix := weirhttp.Options{Headers: weirhttp.RateLimitDraft11}, weirhttp.Options{Headers: weirhttp.XRateLimit}, weirhttp.Options{Headers: weirhttp.XRateLimitUnix}
	none, team, noTeam := weirhttp.Options{}, draft, draft
	team.PartitionKey = func(*http.Request) []byte { return []byte("blue") }
	noTeam.PartitionKey = func(*http.Request) []byte { return nil }
	hint := func(d time.Duration) weirhttp.Options { return weirhttp.Options{LeaseRetryAfter: d} }

	two := weir.Result{Allowed: true, Rule: "two", Limit: 2, Window: time.Minute, Remaining: 1, ResetAfter: time.Minute}
	hour := weir.Result{Rule: "hour", Limit: 2, Window: time.Hour, RetryAfter: 1, ResetAfter: time.Hour}
	never := weir.Result{Rule: "a", Limit: 2, Window: time.Minute, Remaining: 2, RetryAfter: weir.Never}
	busy := weir.Result{Type: weir.LeaseRule, Rule: "busy", Limit: 2, RetryAfter: time.Hour, ResetAfter: time.Hour}
	soon := weir.Result{Type: weir.LeaseRule, Rule: "busy", Limit: 2, RetryAfter: 1500 * time.Millisecond}
	paused := weir.Result{Type: weir.PauseRule, Rule: "pause", Limit: algorithm.MaxTokens, RetryAfter: 6500 * time.Millisecond}
	open := weir.Result{Type: weir.PauseRule, Rule: "pause", Limit: algorithm.MaxTokens, Allowed: true}
	reset := func(after time.Duration) weir.Result {
		return weir.Result{Allowed: true, Rule: "a", Limit: 2, Window: time.Minute, ResetAfter: after}
	}
	degraded := func(kind weir.RuleType, err error, after time.Duration) weir.Result {
		return weir.Result{Type: kind, Rule: "a", Degraded: err, RetryAfter: after}
	}
	type rules = []weir.Result
	for _, tt := range []struct {
		name string
		opts weirhttp.Options
		res  weir.Result
		each rules // nil means that a wrapper left them out
		want string
	}{
		{"a result alone", draft, weir.Result{Allowed: true, Rule: "a", Limit: 5, Window: 1, Remaining: 4, ResetAfter: time.Second + 1}, nil,
			`204 | Ratelimit: "a";r=4;t=2 | Policy: "a";q=5;w=1`},
		{"no rule", draft, weir.Result{Allowed: true}, nil, "204"},
		{"denied without a rule", draft, weir.Result{}, nil, "429 quota-exceeded [] | Retry-After: 1"},
		{"sixteen digits", draft, two, rules{{Allowed: true, Rule: "a", Limit: 1<<53 - 1, Window: weir.Never, Remaining: 1<<53 - 1, ResetAfter: weir.Never}},
			`204 | Ratelimit: "a";r=999999999999999;t=9223372037 | Policy: "a";q=999999999999999;w=9223372037`},
		{"negative numbers", draft, two, rules{{Allowed: true, Rule: "a", Limit: -1, Window: time.Minute, Remaining: -1}},
			`204 | Ratelimit: "a";r=0;t=0 | Policy: "a";q=0;w=60`},
		{"denied by one of two", draft, hour, rules{two, hour},
			`429 quota-exceeded [hour] | Ratelimit: "two";r=1;t=60, "hour";r=0;t=1 | Policy: "two";q=2;w=60, "hour";q=2;w=3600 | Retry-After: 1`},
		{"denied for ever", draft, never, nil, `429 quota-exceeded [a] | Ratelimit: "a";r=2;t=0 | Policy: "a";q=2;w=60`},
		{"denied without a time", draft, weir.Result{Rule: "a", Limit: 2, Window: time.Minute}, nil,
			`429 quota-exceeded [a] | Ratelimit: "a";r=0;t=1 | Policy: "a";q=2;w=60 | Retry-After: 1`},
		{"no Window", draft, weir.Result{Rule: "a", Limit: 2, RetryAfter: time.Minute}, nil,
			`429 quota-exceeded [a] | Ratelimit: "a";r=0;t=60 | Policy: "a";q=2 | Retry-After: 60`},
		{"a name", draft, weir.Result{Rule: "\"\\é\n\x00\x7f 100%,;", RetryAfter: 1}, nil,
			`429 quota-exceeded ["\%C3%A9%0A%00%7F 100%25,;] | Ratelimit: "\"\\%C3%A9%0A%00%7F 100%25,;";r=0;t=1 | Policy: "\"\\%C3%A9%0A%00%7F 100%25,;";q=0 | Retry-After: 1`},
		{"a partition key", team, two, nil, `204 | Ratelimit: "two";r=1;t=60;pk=:Ymx1ZQ==: | Policy: "two";q=2;w=60;pk=:Ymx1ZQ==:`},
		{"an empty partition key", noTeam, two, nil, `204 | Ratelimit: "two";r=1;t=60 | Policy: "two";q=2;w=60`},
		{"no dialect", none, two, nil, "204"},
		{"no dialect, denied", none, hour, rules{two, hour}, "429 quota-exceeded [] | Retry-After: 1"},
		{"X-RateLimit", x, two, nil, "204 | X-Ratelimit-Limit: 2 | X-Ratelimit-Remaining: 1 | X-Ratelimit-Reset: 60"},
		{"X-RateLimit, denied", x, hour, rules{two, hour},
			"429 quota-exceeded [hour] | Retry-After: 1 | X-Ratelimit-Limit: 2 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 3600"},
		{"X-RateLimit without a rule", x, weir.Result{Allowed: true}, rules{two}, "204"},
		{"Unix time", unix, reset(700 * time.Millisecond), nil, "204 | X-Ratelimit-Limit: 2 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 946684801"},
		{"Unix time, rounded up", unix, reset(700*time.Millisecond + 1), nil, "204 | X-Ratelimit-Limit: 2 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 946684802"},
		{"the last Unix time", unix, reset(weir.Never), nil, "204 | X-Ratelimit-Limit: 2 | X-Ratelimit-Remaining: 0 | X-Ratelimit-Reset: 10170056838"},
		{"a pause", draft, paused, rules{paused, two}, `429 quota-exceeded [pause] | Ratelimit: "two";r=1;t=60 | Policy: "two";q=2;w=60 | Retry-After: 7`},
		{"a pause behind a rule", draft, paused, rules{two, paused}, `429 quota-exceeded [pause] | Ratelimit: "two";r=1;t=60 | Policy: "two";q=2;w=60 | Retry-After: 7`},
		{"a pause alone", draft, paused, nil, "429 quota-exceeded [pause] | Retry-After: 7"},
		{"a pause in X-RateLimit", x, paused, rules{paused, two}, "429 quota-exceeded [pause] | Retry-After: 7"},
		{"no pause in X-RateLimit", x, two, rules{open, two}, "204 | X-Ratelimit-Limit: 2 | X-Ratelimit-Remaining: 1 | X-Ratelimit-Reset: 60"},
		{"leases", draft, busy, nil, `429 quota-exceeded [busy] | Ratelimit: "busy";r=0 | Policy: "busy";q=2;qu="concurrent-requests" | Retry-After: 1`},
		{"leases in X-RateLimit", x, busy, nil, "429 quota-exceeded [busy] | Retry-After: 1 | X-Ratelimit-Limit: 2 | X-Ratelimit-Remaining: 0"},
		{"leases, with an option", hint(2500 * time.Millisecond), busy, nil, "429 quota-exceeded [] | Retry-After: 3"},
		{"a lease that expires sooner", hint(time.Minute), soon, nil, "429 quota-exceeded [] | Retry-After: 2"},
		{"leases, and a rule allows", none, busy, rules{busy, two}, "429 quota-exceeded [] | Retry-After: 1"},
		{"leases, and others deny", none, busy, rules{hour, busy, paused}, "429 quota-exceeded [] | Retry-After: 7"},
		{"leases, and never", none, never, rules{busy, hour}, "429 quota-exceeded []"},
		{"leases, over the share of the process", none, degraded(weir.LeaseRule, weir.ErrDenied, 5*time.Second), nil, "429 quota-exceeded [] | Retry-After: 1"},
		{"leases, in an outage", none, degraded(weir.LeaseRule, store.ErrUnavailable, 5*time.Second), nil, "503 temporary-reduced-capacity [] | Retry-After: 5"},
		{"an outage", none, degraded(0, store.ErrUnavailable, time.Second), nil, "503 temporary-reduced-capacity [] | Retry-After: 1"},
		{"above the limit in an outage", none, degraded(0, store.ErrUnavailable, weir.Never), nil, "429 quota-exceeded []"},
		{"over the share of the process", none, degraded(0, fmt.Errorf("%w: %w", store.ErrUnavailable, weir.ErrDenied), time.Second), nil, "429 quota-exceeded [] | Retry-After: 1"},
		{"sixteen rules, for the buffer", none, two, slices.Repeat(rules{two}, weir.MaxRules), "204"},
		{"the buffer after them", draft, two, nil, `204 | Ratelimit: "two";r=1;t=60 | Policy: "two";q=2;w=60`},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(300 * time.Millisecond)
			limit, _ := newMiddleware(t, deciderFunc(func(_ context.Context, _ weir.Request, each []weir.Result) (weir.Result, error) {
				if !slices.Equal(each, make(rules, weir.MaxRules)) {
					t.Errorf("%s: the buffer is %+v, want %d zero Results", tt.name, each, weir.MaxRules)
				}
				copy(each, tt.each)
				return tt.res, nil
			}), all, tt.opts)
			var next counting
			if got := answer(serve(t.Context(), limit(&next))); got != tt.want || (next.calls == 1) != tt.res.Allowed {
				t.Errorf("%s: %d calls of the handler\ngot  %s\nwant %s", tt.name, next.calls, got, tt.want)
			}
		})
	}
}

// An outer handler has set fields: those of the draft are added, and those of X-RateLimit replaced. What
// it has said about the length of its own body does not hold for the answer.
func TestFieldsOfOthers(t *testing.T) {
	lease := weir.Result{Type: weir.LeaseRule, Rule: "b", Limit: 3, RetryAfter: time.Hour}
	for headers, want := range map[weirhttp.Dialect]string{
		weirhttp.RateLimitDraft11: `429 quota-exceeded [b] | Ratelimit: "a";r=1 + "b";r=0 | Policy: "a";q=1 + "b";q=3;qu="concurrent-requests" | Retry-After: 1 | X-Ratelimit-Limit: 9 | X-Ratelimit-Reset: 9`,
		weirhttp.XRateLimit:       `429 quota-exceeded [b] | Ratelimit: "a";r=1 | Policy: "a";q=1 | Retry-After: 1 | X-Ratelimit-Limit: 3 | X-Ratelimit-Remaining: 0`,
	} {
		limit, _ := newMiddleware(t, deciderFunc(func(context.Context, weir.Request, []weir.Result) (weir.Result, error) { return lease, nil }), all, weirhttp.Options{Headers: headers})
		w := httptest.NewRecorder()
		for name, value := range map[string]string{"RateLimit": `"a";r=1`, "RateLimit-Policy": `"a";q=1`, "X-RateLimit-Limit": "9", "X-RateLimit-Reset": "9", "Content-Length": "3"} {
			w.Header().Set(name, value)
		}
		limit(new(counting)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := answer(w); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A client that comes back after Retry-After, which is rounded up, is allowed.
func TestDenied(t *testing.T) {
	type step struct {
		at   time.Duration
		want string
	}
	window := func(d time.Duration) []weir.Rule {
		return []weir.Rule{{Algorithm: algorithm.FixedWindow{Limit: 1, Window: d}}}
	}
	for name, tt := range map[string]struct {
		headers weirhttp.Dialect
		rules   []weir.Rule
		steps   []step
	}{
		"two rules": {weirhttp.RateLimitDraft11, []weir.Rule{
			{Name: "burst", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(3), Burst: 2}},
			{Name: "day", Algorithm: algorithm.FixedWindow{Limit: 3, Window: 24 * time.Hour}},
		}, []step{
			{0, `204 | Ratelimit: "burst";r=1;t=20, "day";r=2;t=86400 | Policy: "burst";q=2;w=40, "day";q=3;w=86400`},
			{0, `204 | Ratelimit: "burst";r=0;t=40, "day";r=1;t=86400 | Policy: "burst";q=2;w=40, "day";q=3;w=86400`},
			{2 * time.Second, `429 quota-exceeded [burst] | Ratelimit: "burst";r=0;t=18, "day";r=1;t=86398 | Policy: "burst";q=2;w=40, "day";q=3;w=86400 | Retry-After: 18`},
			{20 * time.Second, `204 | Ratelimit: "burst";r=0;t=40, "day";r=0;t=86380 | Policy: "burst";q=2;w=40, "day";q=3;w=86400`},
		}},
		"a minute": {weirhttp.NoHeaders, window(time.Minute), []step{
			{0, "204"}, {0, "429 quota-exceeded [] | Retry-After: 60"},
			{time.Minute - time.Microsecond, "429 quota-exceeded [] | Retry-After: 1"}, {time.Minute, "204"},
		}},
		"a little more than a second": {weirhttp.NoHeaders, window(time.Second + time.Microsecond), []step{
			{0, "204"}, {0, "429 quota-exceeded [] | Retry-After: 2"}, {2 * time.Second, "204"},
		}},
		"less than a second": {weirhttp.NoHeaders, window(time.Millisecond), []step{
			{0, "204"}, {0, "429 quota-exceeded [] | Retry-After: 1"}, {time.Second, "204"},
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit, errs := newMiddleware(t, weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(tt.rules...)), all, weirhttp.Options{Headers: tt.headers})
			start, h := time.Now(), limit(new(counting))
			for _, s := range tt.steps {
				time.Sleep(time.Until(start.Add(s.at)))
				if got := answer(serve(t.Context(), h)); got != s.want {
					t.Errorf("%s, after %v:\ngot  %s\nwant %s", name, s.at, got, s.want)
				}
			}
			if len(*errs) > 0 {
				t.Errorf("got errors %v, want none", *errs)
			}
		})
	}
}
