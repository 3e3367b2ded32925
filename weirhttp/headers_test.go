package weirhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
	"github.com/weir-go/weir/weirhttp"
)

// limits returns the header fields about limits.
func limits(h http.Header) map[string]string {
	got := make(map[string]string)
	for name, values := range h {
		if strings.Contains(name, "Ratelimit") || name == "Retry-After" {
			got[name] = strings.Join(values, " | ")
		}
	}
	return got
}

// Each dialect, in virtual time, over two rules: 3 per minute with a burst of 2, and 3 a
// day.
func TestDialects(t *testing.T) {
	type fields = map[string]string
	for _, tt := range []struct {
		name string
		opts weirhttp.Options
		want []fields // of the requests 0, 1, and 2 s later, 3
		body string   // of the denied request
	}{
		{"none", weirhttp.Options{}, []fields{{}, {}, {"Retry-After": "18"}}, `"status":429}`},
		{"draft", weirhttp.Options{Headers: weirhttp.RateLimitDraft11}, []fields{
			{"Ratelimit-Policy": `"burst";q=2;w=40, "day";q=3;w=86400`, "Ratelimit": `"burst";r=1;t=20, "day";r=2;t=86400`},
			{"Ratelimit-Policy": `"burst";q=2;w=40, "day";q=3;w=86400`, "Ratelimit": `"burst";r=0;t=40, "day";r=1;t=86400`},
			{"Ratelimit-Policy": `"burst";q=2;w=40, "day";q=3;w=86400`, "Ratelimit": `"burst";r=0;t=18, "day";r=1;t=86398`, "Retry-After": "18"},
		}, `"status":429,"violated-policies":["burst"]}`},
		{"X-RateLimit", weirhttp.Options{Headers: weirhttp.XRateLimit}, []fields{
			{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "20"},
			{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "40"},
			{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "38", "Retry-After": "18"},
		}, `"status":429,"violated-policies":["burst"]}`},
		// Virtual time starts at 946684800, the first second of the year 2000.
		{"X-RateLimit, Unix", weirhttp.Options{Headers: weirhttp.XRateLimitUnix}, []fields{
			{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "946684820"},
			{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "946684840"},
			{"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "946684840", "Retry-After": "18"},
		}, `"status":429,"violated-policies":["burst"]}`},
	} {
		for _, scripts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, scripts %v", tt.name, scripts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testDialect(t, tt.opts, scripts, tt.want, tt.body) })
			})
		}
	}
}

// testDialect makes one request for each element of want. The last one is denied, with
// body. If scripts is true, the limiter runs scripts, as over a server.
func testDialect(t *testing.T, opts weirhttp.Options, scripts bool, want []map[string]string, body string) {
	t.Helper()
	var st store.Store = memory.New(nil)
	if scripts {
		st = struct{ store.Store }{st}
	}
	lim, err := weir.NewPolicy(st, weir.Policy{Name: "test", Rules: []weir.Rule{
		{Name: "burst", Algorithm: algorithm.GCRA{Rate: algorithm.PerMinute(3), Burst: 2}},
		{Name: "day", Algorithm: algorithm.FixedWindow{Limit: 3, Window: 24 * time.Hour}},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	limit, _ := newMiddleware(t, lim, all, opts)
	var w *httptest.ResponseRecorder
	for i, fields := range want {
		if i == 2 {
			time.Sleep(2 * time.Second)
		}
		w = serve(limit(new(counting)), nil)
		if got := limits(w.Header()); !reflect.DeepEqual(got, fields) {
			t.Errorf("request %d: got %q, want %q", i, got, fields)
		}
	}
	if got := w.Body.String(); !strings.HasSuffix(got, body+"\n") {
		t.Errorf("got body %q, want the end %q", got, body)
	}
}

// XRateLimitUnix rounds the time of the reset up, not the time until the reset.
func TestUnixReset(t *testing.T) {
	for _, tt := range []struct {
		after, resetAfter time.Duration
		want              string
	}{
		{0, 0, "946684800"},
		{0, 1, "946684801"},
		{300 * time.Millisecond, 700 * time.Millisecond, "946684801"},
		{300 * time.Millisecond, 700*time.Millisecond + 1, "946684802"},
		{0, weir.Never, "10170056837"},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(tt.after)
			limit, _ := newMiddleware(t, deciderFunc(func(context.Context, weir.Request, []weir.Result) (weir.Result, error) {
				return weir.Result{Allowed: true, Rule: "a", Limit: 2, Window: time.Minute, ResetAfter: tt.resetAfter}, nil
			}), all, weirhttp.Options{Headers: weirhttp.XRateLimitUnix})
			if got := serve(limit(new(counting)), nil).Header().Get("X-RateLimit-Reset"); got != tt.want {
				t.Errorf("%v after %v: got %s, want %s", tt.resetAfter, tt.after, got, tt.want)
			}
		})
	}
}

// A rule that pauses has no quota to show. If it denies, Retry-After tells for how long.
func TestPausedFields(t *testing.T) {
	type fields = map[string]string
	rate := weir.Rule{Name: "rate", Algorithm: algorithm.FixedWindow{Limit: 3, Window: time.Minute}}
	for _, tt := range []struct {
		headers      weirhttp.Dialect
		rules        []weir.Rule
		open, paused fields
	}{
		{weirhttp.RateLimitDraft11, []weir.Rule{{Name: "pause", Algorithm: algorithm.Pause{}}, rate},
			fields{"Ratelimit-Policy": `"rate";q=3;w=60`, "Ratelimit": `"rate";r=2;t=60`},
			fields{"Ratelimit-Policy": `"rate";q=3;w=60`, "Ratelimit": `"rate";r=2;t=60`, "Retry-After": "7"}},
		{weirhttp.RateLimitDraft11, []weir.Rule{rate, {Name: "pause", Algorithm: algorithm.Pause{}}},
			fields{"Ratelimit-Policy": `"rate";q=3;w=60`, "Ratelimit": `"rate";r=2;t=60`},
			fields{"Ratelimit-Policy": `"rate";q=3;w=60`, "Ratelimit": `"rate";r=2;t=60`, "Retry-After": "7"}},
		{weirhttp.RateLimitDraft11, []weir.Rule{{Algorithm: algorithm.Pause{}}}, fields{}, fields{"Retry-After": "7"}},
		{weirhttp.XRateLimit, []weir.Rule{{Name: "pause", Algorithm: algorithm.Pause{}}, rate},
			fields{"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "2", "X-Ratelimit-Reset": "60"}, fields{"Retry-After": "7"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "test", Rules: tt.rules}, nil)
			if err != nil {
				t.Fatal(err)
			}
			limit, _ := newMiddleware(t, lim, all, weirhttp.Options{Headers: tt.headers})
			h := limit(new(counting))
			if got := limits(serve(h, nil).Header()); !reflect.DeepEqual(got, tt.open) {
				t.Errorf("open: got %q, want %q", got, tt.open)
			}
			if _, err := lim.Pause(t.Context(), 6500*time.Millisecond, "all"); err != nil {
				t.Fatal(err)
			}
			if w := serve(h, nil); w.Code != 429 || !reflect.DeepEqual(limits(w.Header()), tt.paused) {
				t.Errorf("paused: got %d with %q, want 429 with %q", w.Code, limits(w.Header()), tt.paused)
			}
		})
	}
}

// A limit without a Window is neither a lease nor a pause, even if it is as high as the
// limit of a pause.
func TestWindowless(t *testing.T) {
	for _, limit := range []int64{1, algorithm.MaxTokens} {
		q := fmt.Sprint(min(limit, 999_999_999_999_999))
		for dialect, want := range map[weirhttp.Dialect]map[string]string{
			weirhttp.RateLimitDraft11: {"Ratelimit-Policy": `"mine";q=` + q, "Ratelimit": `"mine";r=0;t=60`, "Retry-After": "60"},
			weirhttp.XRateLimit:       {"X-Ratelimit-Limit": fmt.Sprint(limit), "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60", "Retry-After": "60"},
		} {
			synctest.Test(t, func(t *testing.T) {
				var ops []weir.Op
				lim := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(weir.Rule{Name: "mine", Algorithm: weirtest.Windowless(weirtest.Window(limit, time.Minute), 0)}))
				d := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
					ops, r.Cost = append(ops, r.Op), limit
					return lim.Decide(ctx, r, each)
				})
				mw, errs := newMiddleware(t, d, all, weirhttp.Options{Headers: dialect})
				h := mw(new(counting))
				serve(h, nil)
				w := serve(h, nil)
				if got, body := limits(w.Header()), w.Body.String(); !reflect.DeepEqual(got, want) || !strings.HasSuffix(body, `"violated-policies":["mine"]}`+"\n") {
					t.Errorf("limit %d: got %q, %s, want %q", limit, got, body, want)
				}
				if want := []weir.Op{weir.Consume, weir.Consume}; !slices.Equal(ops, want) || len(*errs) > 0 {
					t.Errorf("limit %d: got the ops %v, errors %v, want %v: there is no lease to release", limit, ops, *errs, want)
				}
			})
		}
	}
}

// A rule that refills its tokens within a nanosecond is not taken for an
// algorithm.Concurrency.
func TestQuickRule(t *testing.T) {
	for _, a := range []algorithm.Algorithm{
		algorithm.GCRA{Rate: algorithm.PerSecond(2_000_000_000), Burst: 1},
		algorithm.LeakyBucket{Rate: algorithm.PerSecond(2_000_000_000)},
		algorithm.TokenBucket{Refill: algorithm.PerSecond(2_000_000_000), Capacity: 1},
	} {
		lim, err := weir.New("test", memory.New(nil), a, nil)
		if err != nil {
			t.Fatal(err)
		}
		limit, _ := newMiddleware(t, lim, all, weirhttp.Options{Headers: weirhttp.RateLimitDraft11})
		got := serve(limit(new(counting)), nil).Header().Get("Ratelimit-Policy")
		if want := fmt.Sprintf("%q;q=1;w=1", lim.Rules()[0].Name); got != want {
			t.Errorf("%+v: got %s, want %s", a, got, want)
		}
	}
}

// Results out of the range of the fields, and those of wrappers that do not fill each.
func TestResults(t *testing.T) {
	for _, tt := range []struct {
		name string
		res  weir.Result
		each []weir.Result
		want string
	}{
		{"a result alone", weir.Result{Allowed: true, Rule: "a", Limit: 5, Window: 1, Remaining: 4, ResetAfter: time.Second + 1}, nil, `"a";q=5;w=1 / "a";r=4;t=2`},
		{"no rule", weir.Result{Allowed: true}, nil, " / "},
		{"denied without a rule", weir.Result{}, nil, " / "},
		{
			"sixteen digits, and the longest times", weir.Result{Rule: "a"},
			[]weir.Result{{Allowed: true, Rule: "a", Limit: 1<<53 - 1, Window: weir.Never, Remaining: 1<<53 - 1, ResetAfter: weir.Never}},
			`"a";q=999999999999999;w=9223372037 / "a";r=999999999999999;t=9223372037`,
		},
		{
			"denied by one of two", weir.Result{Rule: "b"},
			[]weir.Result{{Allowed: true, Rule: "a", Limit: 2, Window: time.Minute, Remaining: 1, ResetAfter: time.Minute}, {Rule: "b", Limit: 2, Window: time.Hour, RetryAfter: 1, ResetAfter: time.Hour}},
			`"a";q=2;w=60, "b";q=2;w=3600 / "a";r=1;t=60, "b";r=0;t=1`,
		},
		{
			"never", weir.Result{Rule: "a", RetryAfter: weir.Never},
			[]weir.Result{{Rule: "a", Limit: 2, Window: time.Minute, Remaining: 2, RetryAfter: weir.Never}},
			`"a";q=2;w=60 / "a";r=2;t=0`,
		},
		{
			"negative numbers", weir.Result{Rule: "a"},
			[]weir.Result{{Allowed: true, Rule: "a", Limit: -1, Window: time.Minute, Remaining: -1}},
			`"a";q=0;w=60 / "a";r=0;t=0`,
		},
		{
			"denied without a time", weir.Result{Rule: "a"},
			[]weir.Result{{Rule: "a", Limit: 2, Window: time.Minute}},
			`"a";q=2;w=60 / "a";r=0;t=1`,
		},
		{
			"a concurrency limit", weir.Result{Rule: "a"},
			[]weir.Result{{Type: weir.LeaseRule, Rule: "a", Limit: 2, RetryAfter: time.Minute, ResetAfter: time.Minute}},
			`"a";q=2;qu="concurrent-requests" / "a";r=0`,
		},
		{
			"a name", weir.Result{Rule: `a`},
			[]weir.Result{{Allowed: true, Rule: "\"\\é\n\x00\x7f 100%,;", Limit: 2, Window: time.Minute, Remaining: 2}},
			`"\"\\%C3%A9%0A%00%7F 100%25,;";q=2;w=60 / "\"\\%C3%A9%0A%00%7F 100%25,;";r=2;t=0`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limit, _ := newMiddleware(t, deciderFunc(func(_ context.Context, _ weir.Request, each []weir.Result) (weir.Result, error) {
				copy(each, tt.each)
				return tt.res, nil
			}), all, weirhttp.Options{Headers: weirhttp.RateLimitDraft11})
			h := serve(limit(new(counting)), nil).Header()
			if got := h.Get("RateLimit-Policy") + " / " + h.Get("RateLimit"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A decision leaves nothing in the buffer for the next one.
func TestBuffer(t *testing.T) {
	rules := 0
	limit, _ := newMiddleware(t, deciderFunc(func(_ context.Context, _ weir.Request, each []weir.Result) (weir.Result, error) {
		if len(each) != weir.MaxRules {
			t.Errorf("each has %d elements, want %d", len(each), weir.MaxRules)
		}
		for i := range each {
			if each[i] != (weir.Result{}) {
				t.Errorf("each[%d] is %+v, want a zero Result", i, each[i])
			}
		}
		for i := range rules {
			each[i] = weir.Result{Allowed: true, Rule: "r", Limit: 1, Window: time.Second}
		}
		return weir.Result{Allowed: true, Rule: "r"}, nil
	}), all, weirhttp.Options{Headers: weirhttp.RateLimitDraft11})
	for _, rules = range []int{16, 2, 1, 0} {
		h := serve(limit(new(counting)), nil).Header()
		if got := 1 + strings.Count(h.Get("RateLimit"), ","); got != max(rules, 1) {
			t.Errorf("got %d items, want %d", got, max(rules, 1))
		}
	}
}

// A partition key is a Byte Sequence in both fields. An empty one is left out.
func TestPartitionKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 2, Window: time.Minute}), all, weirhttp.Options{
			Headers:      weirhttp.RateLimitDraft11,
			PartitionKey: func(r *http.Request) []byte { return []byte(r.URL.Query().Get("team")) },
		})
		for team, want := range map[string]string{"blue": ";pk=:Ymx1ZQ==:", "": ""} {
			h := serve(limit(new(counting)), httptest.NewRequest(http.MethodGet, "/?team="+team, nil)).Header()
			if p, s := h.Get("RateLimit-Policy"), h.Get("RateLimit"); !strings.HasSuffix(p, "w=60"+want) || !strings.HasSuffix(s, "t=60"+want) {
				t.Errorf("got %q and %q, want %q", p, s, want)
			}
		}
	})
}

// The handler can replace the fields. The fields of two middlewares are added up.
func TestFieldsOfOthers(t *testing.T) {
	for _, tt := range []struct {
		dialect weirhttp.Dialect
		name    string
		want    string
	}{
		{weirhttp.RateLimitDraft11, "RateLimit", `"fixedwindow";r=8;t=60 | "slidinglog";r=1;t=60`},
		{weirhttp.XRateLimit, "X-RateLimit-Remaining", "1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			outer, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 9, Window: time.Minute}), all, weirhttp.Options{Headers: tt.dialect})
			inner, _ := newMiddleware(t, newLimiter(t, algorithm.SlidingLog{Limit: 2, Window: time.Minute}), all, weirhttp.Options{Headers: tt.dialect})
			var seen http.Header
			w := serve(outer(inner(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				seen = w.Header().Clone()
				w.Header().Set(tt.name, "mine")
			}))), nil)
			if got := strings.Join(seen.Values(tt.name), " | "); got != tt.want {
				t.Errorf("the handler sees %q, want %q", got, tt.want)
			}
			if got := w.Header().Values(tt.name); len(got) != 1 || got[0] != "mine" {
				t.Errorf("the client sees %q, want what the handler has set", got)
			}
		})
	}
}
