package weir_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/store"
)

// shadowed returns the rules with a shadow rule named "next".
func shadowed(a algorithm.Algorithm, live ...weir.Rule) weir.Policy {
	return weirtest.Rules(append(live, weir.Rule{Name: "next", Algorithm: a, Shadow: true})...)
}

// A shadow rule decides as if it were the only rule, and the other rules as if it were
// not there. So a limiter with both answers like two limiters.
func TestShadowAlone(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	for _, candidate := range refundable {
		for _, live := range refundable {
			r := rand.New(rand.NewPCG(seed, 0))
			c := weirtest.NewClock()
			st, apart := weirtest.NewStore(c), weirtest.NewStore(c)
			both := weirtest.NewPolicy(t, st, shadowed(candidate, weir.Rule{Algorithm: live}))
			one := weirtest.New(t, apart, live)
			next := weirtest.NewPolicy(t, apart, weirtest.Rules(weir.Rule{Name: "next", Algorithm: candidate}))
			denials := 0
			for i := range 300 {
				c.Advance(time.Duration(r.IntN(8)) * time.Second)
				q := weir.Request{Key: weir.KeyOf("k"), Op: weir.Op(r.IntN(int(weir.Settle) + 1)), Cost: r.Int64N(4), ID: strconv.Itoa(r.IntN(20))}
				if q.Op == weir.Settle {
					q.Actual = weir.ActualCost(r.Int64N(6))
				}
				if q.Op < weir.Refund && r.IntN(2) == 0 {
					q.ID = "x" + strconv.Itoa(i)
				}
				got, err := both.Decide(t.Context(), q, nil)
				shadow := got.Shadow
				got.Shadow = nil
				if want, wantErr := one.Decide(t.Context(), q, nil); got != want || plainText(err) != plainText(wantErr) {
					t.Fatalf("seed %d, %+v beside %+v, %d: %+v:\ngot  %+v, %v\nwant %+v, %v", seed, candidate, live, i, q, got, err, want, wantErr)
				}
				if err != nil {
					// The candidate is not asked if the others cannot decide.
					if errors.Is(err, weir.ErrInvalidCost) && q.Op != weir.Settle {
						if q.Op == weir.Refund {
							q.Cost = 0
						}
						_, _ = next.Decide(t.Context(), q, nil)
					}
					continue
				}
				if q.Op == weir.Refund {
					q.Cost = 0
				}
				want, wantErr := next.Decide(t.Context(), q, nil)
				var denied *weir.DeniedError
				switch {
				case wantErr != nil:
					if plainText(shadow) != plainText(wantErr) {
						t.Fatalf("seed %d, %+v, %d: %+v: the shadow rule's error is %v, want %v", seed, candidate, i, q, shadow, wantErr)
					}
				case want.Allowed || q.Op > weir.Force:
					if shadow != nil {
						t.Fatalf("seed %d, %+v, %d: %+v: the shadow rule says %v, want that it allows", seed, candidate, i, q, shadow)
					}
				case !errors.As(shadow, &denied) || denied.Result != want:
					t.Fatalf("seed %d, %+v, %d: %+v: the shadow rule says %+v, want %+v", seed, candidate, i, q, shadow, want)
				default:
					denials++
				}
			}
			if denials < 5 {
				t.Errorf("seed %d, %+v: it denied %d requests, want more", seed, candidate, denials)
			}
		}
	}
}

func plainText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A request takes one call of a Batcher, for any number of shadow rules, and DoMany too.
func TestShadowRoundTrip(t *testing.T) {
	t.Parallel()
	st := &batching{recorder: &recorder{Store: weirtest.NewStore(weirtest.NewClock())}}
	l := weirtest.NewPolicy(t, st, shadowed(weirtest.Window(1, time.Minute), weir.Rule{Algorithm: weirtest.PerSecond}, weir.Rule{Name: "third", Algorithm: weirtest.Window(2, time.Hour), Shadow: true}))
	for i := range 3 {
		res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k")})
		var denied *weir.DeniedError
		rule := ""
		if errors.As(res.Shadow, &denied) {
			rule = denied.Result.Rule
		}
		if want := []string{"", "next", "third"}[i]; !res.Allowed || rule != want {
			t.Errorf("request %d: got %+v, want it allowed, and denied by %q", i, res, want)
		}
	}
	answers := l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf("k")}, {}, {Key: weir.KeyOf("other")}})
	if want := []int{3, 3, 3, 6}; !slices.Equal(st.batches, want) || st.calls() != 0 {
		t.Errorf("got batches of %d calls and %d other calls, want %d and none", st.batches, st.calls(), want)
	}
	if a := answers[0]; !a.Result.Allowed || !errors.Is(a.Result.Shadow, weir.ErrDenied) || a.Err != nil {
		t.Errorf("DoMany: got %+v, want it allowed, and denied by a shadow rule", a)
	}
	if a := answers[1]; !errors.Is(a.Err, weir.ErrInvalidKey) || a.Result != (weir.Result{}) {
		t.Errorf("DoMany: got %+v, want an ErrInvalidKey alone", a)
	}
	if a := answers[2]; !a.Result.Allowed || a.Result.Shadow != nil || a.Err != nil {
		t.Errorf("DoMany: got %+v, want it allowed by all", a)
	}
}

// An error of a shadow rule changes no answer.
func TestShadowError(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, shadowed(weirtest.Window(1, time.Minute), weir.Rule{Algorithm: weirtest.PerSecond}))
	weirtest.Plant(t, st, "weir:t:{foreign}:next.f2", store.Tag{'x', '1'}, 1)
	for _, tt := range []struct {
		name string
		r    weir.Request
		want error
	}{
		{"a foreign value", weir.Request{Key: weir.KeyOf("foreign")}, store.ErrForeign},
		{"a reservation that the algorithm does not support", weir.Request{Key: weir.KeyOf("k"), MaxWait: time.Second}, weir.ErrUnsupported},
	} {
		each := make([]weir.Result, 1)
		res, err := l.Decide(t.Context(), tt.r, each)
		if !errors.Is(res.Shadow, tt.want) || errors.Is(res.Shadow, weir.ErrDenied) {
			t.Errorf("%s: the shadow rule says %v, want %v", tt.name, res.Shadow, tt.want)
		}
		if res.Shadow = nil; err != nil || !res.Allowed || res.Remaining != 4 || res != each[0] {
			t.Errorf("%s: got %+v, %v, each %+v, want it allowed with 4 left", tt.name, res, err, each)
		}
	}
}

// If the others cannot decide, there is no Result, whatever a shadow rule says.
func TestShadowOfFailure(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, shadowed(weirtest.Window(1, time.Minute), weir.Rule{Algorithm: weirtest.PerSecond}))
	weirtest.Plant(t, st, "weir:t:{k}:g2", store.Tag{'x', '1'}, 1)
	for range 2 {
		if res, err := l.Allow(t.Context(), "k"); !errors.Is(err, store.ErrForeign) || res != (weir.Result{}) {
			t.Errorf("got %+v, %v, want an ErrForeign alone", res, err)
		}
	}
}

// A shadow rule does not get the metadata of a request.
func TestShadowMetadata(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), shadowed(weirtest.PerSecond, weir.Rule{Algorithm: algorithm.MetadataWindow{Limit: 2, Window: time.Minute}}))
	if res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Metadata: "m"}); !res.Allowed || res.Shadow != nil {
		t.Errorf("got %+v, want that both allow", res)
	}
	if entries, err := l.Entries(t.Context(), "k"); len(entries) != 1 || entries[0].Metadata != "m" || err != nil {
		t.Errorf("Entries: got %+v, %v", entries, err)
	}
}

// With leases, the other shadow rules do not take the name of the lease for an ID.
func TestShadowLeases(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(
		weir.Rule{Name: "leases", Algorithm: algorithm.Concurrency{Limit: 2, Lease: time.Minute}},
		weir.Rule{Name: "fewer", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Minute}, Shadow: true},
		weir.Rule{Name: "starts", Algorithm: weirtest.Window(3, time.Hour), Shadow: true},
	))
	lease := func(op weir.Op, id string) weir.Result {
		return weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k"), Op: op, ID: id})
	}
	says := func(res weir.Result, allowed bool, shadow string) {
		t.Helper()
		if text := plainText(res.Shadow); res.Allowed != allowed || (shadow == "") != (text == "") || !strings.Contains(text, shadow) {
			t.Errorf("got %+v, want allowed %v, and a shadow rule %q", res, allowed, shadow)
		}
	}
	says(lease(weir.Consume, "a"), true, "")
	says(lease(weir.Consume, "b"), true, "fewer")
	says(lease(weir.Renew, "b"), true, "")
	says(lease(weir.Consume, "c"), false, "fewer")
	says(lease(weir.Release, "a"), true, "")
	says(lease(weir.Consume, "a"), true, "starts") // the fourth start
	starts, err := l.Only("starts")
	if err != nil {
		t.Fatal(err)
	}
	if res := weirtest.Decide(t, starts, weir.Request{Key: weir.KeyOf("k"), Op: weir.Peek}); res.Allowed || res.Shadow != nil {
		t.Errorf("Only(starts): got %+v, want an enforced rule without tokens", res)
	}
}

// With replaces the limit of a shadow rule too. An Observer sees what it would have done,
// and a denycache.Cache does not.
func TestShadowAround(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	var outcomes []observe.Outcome
	l := weirtest.NewPolicy(t, weirtest.NewStore(c), shadowed(weirtest.Window(2, time.Hour), weir.Rule{Name: "now", Algorithm: weirtest.PerSecond}))
	l = weirtest.Wrap(t, l, observe.Observer(func(_ context.Context, d observe.Decision) { outcomes = append(outcomes, d.Outcome()) }).Wrap, denycache.New(nil).Wrap)
	for range 4 {
		weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("k")})
	}
	more, err := l.With(weir.Rule{Name: "next", Algorithm: weirtest.Window(3, time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		weirtest.Decide(t, more, weir.Request{Key: weir.KeyOf("k")})
	}
	if want := []observe.Outcome{"allowed", "allowed", "shadow_denied", "shadow_denied", "allowed", "denied", "denied"}; !slices.Equal(outcomes, want) {
		t.Errorf("got %q, want %q", outcomes, want)
	}
	if res := weirtest.Decide(t, more, weir.Request{Key: weir.KeyOf("k")}); res.Shadow != nil {
		t.Errorf("a remembered denial: a shadow rule says %v", res.Shadow)
	}
	if _, err := l.With(weir.Rule{Name: "next", Algorithm: weirtest.PerSecond}); !errors.Is(err, weir.ErrInvalidRule) || !strings.Contains(err.Error(), `"next"`) {
		t.Errorf("With: another algorithm of a shadow rule: got %v", err)
	}
	if _, err := l.With(weir.Rule{Name: "other", Algorithm: weirtest.PerSecond}); !errors.Is(err, weir.ErrInvalidRule) || !strings.Contains(err.Error(), `"now", "next"`) {
		t.Errorf("With: another name: got %v, want an error with the names", err)
	}
}

// A shadow rule's By can share no segment with the others, and does not move their keys.
func TestShadowKeys(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	p := weir.Policy{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "user", By: []string{"user"}, Algorithm: weirtest.PerSecond},
		{Name: "tenant", By: []string{"tenant"}, Algorithm: weirtest.PerSecond, Shadow: true},
	}}
	l := weirtest.NewPolicy(t, st, p)
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("acme", "ann")})
	if got, want := keysIn(st), []string{"weir:t:{acme}:tenant.g2", "weir:t:{ann}:user.g2"}; !slices.Equal(got, want) {
		t.Errorf("the keys are %q, want %q", got, want)
	}
	if err := l.Reset(t.Context(), "acme", "ann"); !errors.Is(err, weir.ErrInvalidRule) {
		t.Errorf("Reset: got %v, want an ErrInvalidRule, as without the shadow rule", err)
	}
	p.Rules[0].By = nil
	l = weirtest.NewPolicy(t, st, p)
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("acme", "bob")})
	if res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("acme", "bob"), Op: weir.Reset}); !res.Allowed || res.Shadow != nil {
		t.Errorf("Reset: got %+v, want that the tenant's shadow rule is left alone", res)
	}
	if got := keysIn(st); len(got) != 2 {
		t.Errorf("after the Reset, the keys are %q, want those of before", got)
	}
}

func TestShadowMisuse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p    weir.Policy
		want string
	}{
		{weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.PerSecond, Shadow: true}), "at least one must not be"},
		{weirtest.Rules(weir.Rule{Algorithm: weirtest.PerSecond}, weir.Rule{Algorithm: weirtest.PerSecond, Shadow: true}), "has no Name"},
		{weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}, weir.Rule{Name: "a", Algorithm: weirtest.PerSecond, Shadow: true}), `"a"`},
		{shadowed(weirtest.PerSecond, weir.Rule{Name: "next", Algorithm: weirtest.PerSecond}), `"next"`},
		{shadowed(algorithm.MetadataWindow{Limit: 1, Window: time.Second}, weir.Rule{Algorithm: weirtest.PerSecond}), "keeps metadata"},
		{shadowed(algorithm.Concurrency{Limit: 1, Lease: time.Second}, weir.Rule{Algorithm: weirtest.PerSecond}), "holds leases"},
		{shadowed(nil, weir.Rule{Algorithm: weirtest.PerSecond}), "Algorithm is nil"},
		{weirtest.Rules(weir.Rule{Algorithm: weirtest.PerSecond}, weir.Rule{Name: "a", By: []string{"x"}, Algorithm: weirtest.PerSecond, Shadow: true}), `"x"`},
	} {
		tt.p.Name = "t"
		if _, err := weir.NewPolicy(weirtest.NewStore(weirtest.NewClock()), tt.p, nil); !errors.Is(err, weir.ErrInvalidRule) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want an ErrInvalidRule with %q", tt.p.Rules, err, tt.want)
		}
	}
}

// A shadow rule with a Cost consumes it from a TakeUpTo, as beside other rules, and keeps
// it in a Settle.
func TestShadowCost(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(
		weir.Rule{Name: "tokens", Algorithm: weirtest.Window(100, time.Hour)},
		weir.Rule{Name: "calls", Algorithm: weirtest.Window(10, time.Hour), Cost: 5, Shadow: true},
	))
	r := weir.Request{Key: weir.KeyOf("k"), Op: weir.TakeUpTo, Cost: 20, ID: "x"}
	for i := range 2 {
		if res := weirtest.Decide(t, l, r); res.Granted != 20 || res.Shadow != nil || res.Replayed != (i > 0) {
			t.Errorf("got %+v, %v, want 20 tokens and no shadow", res, res.Shadow)
		}
	}
	if ok, err := l.Settle(t.Context(), r, 7); !ok.Found || err != nil {
		t.Errorf("Settle: got %v, %v", ok, err)
	}
	calls := weirtest.Only(t, l, "calls")
	if res := weirtest.Left(t, calls, "k"); res.Remaining != 5 {
		t.Errorf("the shadow rule has %d left, want 5", res.Remaining)
	}
	for _, id := range []string{"y", "z"} {
		r.ID = id
		if res := weirtest.Decide(t, l, r); res.Granted == 0 || errors.Is(res.Shadow, weir.ErrDenied) != (id == "z") {
			t.Errorf("%s: got %+v, %v", id, res, res.Shadow)
		}
	}
}
