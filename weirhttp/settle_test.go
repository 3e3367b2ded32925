package weirhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

var (
	places = weir.Rule{Name: "places", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Hour}, Cost: 1}
	tokens = weir.Rule{Name: "tokens", Algorithm: algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerDay(10)}}
)

// newWork returns a limiter of rules whose decisions can be settled, and a function that returns
// what Peek says remains in each rule.
func newWork(t *testing.T, settles bool, rules ...weir.Rule) (*weir.Limiter, func() string) {
	t.Helper()
	lim, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "work", Rules: rules}, &weir.Options{Settles: settles})
	if err != nil {
		t.Fatal(err)
	}
	return lim, func() string {
		t.Helper()
		each := make([]weir.Result, len(rules))
		if _, err := lim.Decide(context.Background(), weir.Request{Key: weir.KeyOf("all"), Op: weir.Peek}, each); err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, one := range each {
			left = append(left, fmt.Sprint(one.Rule, " ", one.Remaining))
		}
		return strings.Join(left, ", ")
	}
}

// workFor makes requests at a cost of 3. Without a lease, they have an ID.
func workFor(lease bool) weirhttp.RequestFunc {
	if lease {
		return asking(weir.Request{Cost: 3})
	}
	return asking(weir.Request{Cost: 3, ID: "work"})
}

// A settleCase is a way in which a request ends.
type settleCase struct {
	handle  []func(context.Context) error
	refunds bool  // Options.RefundPanics
	left    int64 // tokens, afterwards
	asks    bool  // for another cost
}

// A seen is what comes of it.
type seen struct {
	errs         int
	ends         string // the ends that are sent when the handler has returned
	during, left string // what Peek says
}

// What the handler says last is what its request costs, and the place is free when it has
// returned, even if its client has gone, or the decision was unknown.
func TestSettle(t *testing.T) {
	settle := func(n int64) func(context.Context) error {
		return func(ctx context.Context) error { return weirhttp.Settle(ctx, weir.ActualCost(n)) }
	}
	zero := func(ctx context.Context) error { return weirhttp.Settle(ctx, weir.Actual{}) }
	panics := func(v any) func(context.Context) error { return func(context.Context) error { panic(v) } }
	type calls = []func(context.Context) error
	for name, tt := range map[string]settleCase{
		"nothing":                      {nil, true, 7, false},
		"Settle":                       {calls{settle(5)}, true, 5, true},
		"Settle at 0":                  {calls{settle(0)}, false, 10, true},
		"Settle twice":                 {calls{settle(5), settle(2)}, false, 8, true},
		"Settle, and then not":         {calls{settle(5), zero}, false, 7, false},
		"Refund":                       {calls{weirhttp.Refund}, false, 10, true},
		"Settle then Refund":           {calls{settle(5), weirhttp.Refund}, false, 10, true},
		"Refund then Settle":           {calls{weirhttp.Refund, settle(5)}, false, 5, true},
		"panic":                        {calls{panics("handler")}, false, 7, false},
		"panic, refunded":              {calls{panics("handler")}, true, 10, true},
		"panic after Settle, refunded": {calls{settle(5), panics("handler")}, true, 5, true},
		"a proxy's client leaves":      {calls{panics(http.ErrAbortHandler)}, true, 7, false},
	} {
		for _, lease := range []bool{false, true} {
			for _, how := range []string{"at once", "gone", "lost reply", "late grant", "outage"} {
				for _, d := range []string{"a limiter", "of a plan", "opaque"} { // the last one does not say which rules it has
					t.Run(fmt.Sprintf("%s, lease %v, %s, %s", name, lease, how, d), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { tt.run(t, lease, how, d) })
					})
				}
			}
		}
	}
}

func (tt settleCase) run(t *testing.T, lease bool, how, who string) {
	rules := []weir.Rule{tokens}
	if lease {
		rules = []weir.Rule{tokens, places}
	}
	lim, left := newWork(t, true, rules...)
	var mu sync.Mutex
	ends := ""
	f := deciderFunc(func(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
		switch {
		case r.Op != weir.Consume:
			mu.Lock()
			defer mu.Unlock()
			if ends += "Finish"; r.Op != weir.Finish {
				ends = "a bill"
			}
			return lim.Decide(ctx, r, each)
		case r.ID == "", how == "at once", how == "gone":
			return lim.Decide(ctx, r, each)
		case how == "lost reply":
			_, _ = lim.Decide(ctx, r, each)
		case how == "late grant":
			time.AfterFunc(300*time.Millisecond, func() { _, _ = lim.Decide(context.Background(), r, nil) })
		}
		return weir.Result{}, store.ErrUnavailable
	})
	d, opts := weir.Decider(observed{lim, f}), weirhttp.Options{FailOpen: true, RefundPanics: tt.refunds}
	switch who {
	case "opaque":
		d = f
	case "of a plan":
		plan := d
		d, opts.Plan = failing(errors.New("not asked")), func(*http.Request) (weir.Decider, error) { return plan, nil }
	}
	ctx, cancel := context.WithCancel(t.Context())
	limit, errs := newMiddleware(t, d, workFor(lease), opts)
	during, returned := "", false
	h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if during = left(); how == "gone" {
			cancel()
		}
		for _, call := range tt.handle {
			if err := call(r.Context()); err != nil {
				t.Error(err)
			}
		}
		returned = true
	}))
	func() {
		defer func() {
			if v := recover(); (v == nil) != returned {
				t.Errorf("got panic %v", v)
			}
		}()
		serve(ctx, h)
	}()
	cancel()
	mu.Lock()
	sent := ends
	mu.Unlock()

	unknown, found := how != "at once" && how != "gone", how != "outage" && how != "late grant"
	want := seen{0, "", "tokens 7", fmt.Sprint("tokens ", tt.left)}
	switch {
	case lease || unknown && who == "opaque":
		want.ends = "Finish"
	case tt.asks:
		want.ends = "a bill"
	}
	if unknown {
		want.errs = 1
	}
	if !found {
		if want.during = "tokens 10"; tt.asks {
			want.errs++ // the decision is not found
		}
	}
	if how == "outage" {
		want.left = "tokens 10"
	} else if how == "late grant" && !lease { // under an ID of the RequestFunc, so the end is not repeated
		want.left = "tokens 7"
	}
	if lease {
		if want.left += ", places 2"; found {
			want.during += ", places 1"
		} else {
			want.during += ", places 2"
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if got := (seen{len(*errs), sent, during, left()}); got != want {
		t.Errorf("got %+v, errors %v, want %+v", got, *errs, want)
	}
}

// A cost that the decision does not get is an error for OnError, and the place is free all the
// same. So is a bill that is not found, because the handler has refunded it.
func TestSettleFails(t *testing.T) {
	settle := func(n int64) weir.Actual { return weir.ActualCost(n) }
	work := weir.Request{Key: weir.KeyOf("all"), ID: "work", Cost: 3}
	for name, tt := range map[string]struct {
		settles, refunded bool
		rules             []weir.Rule
		actual            weir.Actual
		want              string // the error
		left              string
	}{
		"no amounts":                {false, false, []weir.Rule{tokens, places}, weir.Actual{}, "", "tokens 7, places 2"},
		"without Options.Settles":   {false, false, []weir.Rule{tokens, places}, settle(5), "Options.Settles", "tokens 7, places 2"},
		"an invalid amount":         {true, false, []weir.Rule{tokens, places}, settle(-1), "it must be 0 or more", "tokens 7, places 2"},
		"an invalid amount, alone":  {true, false, []weir.Rule{tokens}, settle(-1), "it must be 0 or more", "tokens 7"},
		"a unit that nobody counts": {true, false, []weir.Rule{tokens, places}, weir.ActualCosts(weir.CostsOf(map[string]int64{"x": 1})), "x", "tokens 7, places 2"},
		"a bill that was refunded":  {true, true, []weir.Rule{tokens, places}, settle(5), "was not found", "tokens 10, places 2"},
	} {
		for _, opaque := range []bool{false, true} {
			lim, left := newWork(t, tt.settles, tt.rules...)
			d := weir.Decider(lim)
			if opaque {
				d = deciderFunc(lim.Decide)
			}
			limit, errs := newMiddleware(t, d, asking(work), weirhttp.Options{})
			serve(t.Context(), limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if tt.refunded {
					_, _ = lim.Refund(r.Context(), work)
				}
				if err := weirhttp.Settle(r.Context(), tt.actual); err != nil {
					t.Error(err)
				}
			})))
			if got := fmt.Sprint(*errs); len(*errs) > 1 || (len(*errs) == 1) != (tt.want != "") || !strings.Contains(got, tt.want) || left() != tt.left {
				t.Errorf("%s, opaque %v: got errors %s and %s, want %q and %s", name, opaque, got, left(), tt.want, tt.left)
			}
		}
	}
}

// An answer to a Settle that is not full is an error.
func TestSettlement(t *testing.T) {
	lim := weirtest.NewPolicy(t, memory.New(nil), counted)
	five, bytes := weir.ActualCost(5), weir.ActualCosts(weir.CostsOf(map[string]int64{"bytes": 5}))
	for name, tt := range map[string]struct {
		actual weir.Actual
		res    weir.Result
		each   int64 // what the rule of the unit costs
		want   string
	}{
		"full":             {five, weir.Result{Allowed: true, Granted: 5}, 0, ""},
		"not found":        {five, weir.Result{}, 0, "was not found"},
		"kept":             {five, weir.Result{Rule: "day", Granted: 3}, 0, `rule "day" keeps`},
		"in debt":          {five, weir.Result{Allowed: true, Granted: 4}, 0, "costs 4 of the actual 5"},
		"a unit":           {bytes, weir.Result{Allowed: true}, 5, ""},
		"a unit in debt":   {bytes, weir.Result{Allowed: true}, 4, `costs 4 of the actual 5 bytes in rule "bytes"`},
		"a refund":         {weir.ActualRefund(), weir.Result{Allowed: true}, 0, ""},
		"nothing refunded": {weir.ActualRefund(), weir.Result{}, 0, "was not found"},
	} {
		limit, errs := newMiddleware(t, observed{lim, func(_ context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
			if r.Op == weir.Consume {
				return weir.Result{Allowed: true}, nil
			}
			if each[0] = (weir.Result{Allowed: true, Granted: tt.each}); r.ID != "work" || r.Key != weir.KeyOf("all") || (r.Op == weir.Refund) != (tt.actual == weir.ActualRefund()) {
				t.Errorf("%s: got %+v", name, r)
			}
			return tt.res, nil
		}}, workFor(false), weirhttp.Options{})
		serve(t.Context(), limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = weirhttp.Settle(r.Context(), tt.actual) })))
		if got := fmt.Sprint(*errs); (len(*errs) == 1) != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got errors %s, want %q", name, got, tt.want)
		}
	}
}

// Settle returns an error without a decision with an ID, and after the handler. A request without
// an ID reaches the handler as it is.
func TestSettleNothing(t *testing.T) {
	lim := newLimiter(t, tokens.Algorithm)
	limit, errs := newMiddleware(t, lim, all, weirhttp.Options{})
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	limit(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		if err := weirhttp.Refund(got.Context()); err == nil || got != r {
			t.Errorf("got %v, and the same request is %v", err, got == r)
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
	limit, _ = newMiddleware(t, lim, workFor(false), weirhttp.Options{})
	var ctx context.Context
	serve(t.Context(), limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })))
	if err := weirhttp.Settle(ctx, weir.ActualCost(1)); err == nil || !strings.Contains(err.Error(), "has returned") || len(*errs) > 0 {
		t.Errorf("got %v, errors %v", err, *errs)
	}
}

// A shadow rule that counts a unit, behind as many rules as a limiter can have, has no result.
func TestSettleManyRules(t *testing.T) {
	p := weir.Policy{Name: "many", Units: []string{"u"}}
	for i := range weir.MaxRules + 1 {
		p.Rules = append(p.Rules, weir.Rule{Name: fmt.Sprint("r", i), Unit: "u", Algorithm: weirtest.Window(9, time.Hour), Shadow: i == weir.MaxRules})
	}
	lim, err := weir.NewPolicy(memory.New(nil), p, &weir.Options{Settles: true})
	if err != nil {
		t.Fatal(err)
	}
	units := func(n int64) weir.Costs { return weir.CostsOf(map[string]int64{"u": n}) }
	limit, errs := newMiddleware(t, lim, asking(weir.Request{ID: "a", Costs: units(5)}), weirhttp.Options{})
	serve(t.Context(), limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = weirhttp.Settle(r.Context(), weir.ActualCosts(units(2)))
	})))
	if res := weirtest.Decide(t, lim, weir.Request{Key: weir.KeyOf("all"), Op: weir.Peek, Costs: units(1)}); res.Remaining != 7 || len(*errs) > 0 {
		t.Errorf("got %+v, errors %v, want 7 of 9 to remain", res, *errs)
	}
}
