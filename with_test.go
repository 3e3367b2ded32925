package weir_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
)

// Reset clears the rules identified by the full key. Only(…).Reset clears one rule.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		policy weir.Policy
		only   string
		key    []string
		want   error
		gone   []string // the keys that Reset deletes, of the keys of x y z and x y w
	}{
		{"one rule", by(3, "all"), "", []string{"x", "y", "w"}, nil, []string{"weir:t:{x:y:w}:a.g2"}},
		{"two rules by all", by(3, "all", "all"), "", []string{"x", "y", "z"}, nil, []string{"weir:t:{x:y:z}:a.g2", "weir:t:{x:y:z}:b.g2"}},
		{"one by all", by(3, "0", "01", "all"), "", []string{"x", "y", "z"}, nil, []string{"weir:t:{x}:c.g2:y:z"}},
		{"all by name", by(3, "0", "01", "012"), "", []string{"x", "y", "z"}, nil, []string{"weir:t:{x}:c.g2:y:z"}},
		{"none by all", by(3, "0", "01", "02"), "", []string{"x", "y", "z"}, weir.ErrInvalidRule, nil},
		{"someone else", by(3, "all"), "", []string{"x", "y", "v"}, nil, nil},
		{"an invalid key", by(3, "all"), "", []string{"x", "", "z"}, weir.ErrInvalidKey, nil},
		{"only the shared one", by(3, "0", "01", "all"), "a", []string{"x", "any", "any"}, nil, []string{"weir:t:{x}:a.g2"}},
		{"only the last", by(3, "0", "01", "all"), "c", []string{"x", "y", "z"}, nil, []string{"weir:t:{x}:c.g2:y:z"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := weirtest.NewStore(weirtest.NewClock())
			l := weirtest.NewPolicy(t, st, tt.policy)
			for _, last := range []string{"z", "w"} {
				if _, err := l.Allow(t.Context(), "x", "y", last); err != nil {
					t.Fatal(err)
				}
			}
			keys := keysIn(st)
			want := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return slices.Contains(tt.gone, key) })
			if len(want) != len(keys)-len(tt.gone) {
				t.Fatalf("the test expects %q to go, of %q", tt.gone, keys)
			}
			if tt.only != "" {
				l = weirtest.Only(t, l, tt.only)
			}
			if err := l.Reset(t.Context(), tt.key...); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if got := keysIn(st); !slices.Equal(got, want) {
				t.Errorf("left %q, want %q", got, want)
			}
		})
	}
}

// If a key holds a foreign value, Reset deletes no key.
func TestResetForeign(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, by(1, "all", "all"))
	if _, err := l.Allow(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	weirtest.Plant(t, st, "weir:t:{u}:b.g2", store.Tag{'x', '1'}, 1)
	before := dump(t, st)
	for _, l := range []*weir.Limiter{l, weirtest.Only(t, l, "b")} {
		if err := l.Reset(t.Context(), "u"); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"weir:t:{u}:b.g2"`) {
			t.Errorf("got %v, want ErrForeign that names the key", err)
		}
		if after := dump(t, st); !slices.Equal(before, after) {
			t.Errorf("changed %q to %q", before, after)
		}
	}
	if err := weirtest.Only(t, l, "a").Reset(t.Context(), "u"); err != nil {
		t.Errorf("the other rule: %v", err)
	}
}

// If a key holds a foreign value, no rule consumes anything.
func TestForeignKeyConsumesNothing(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, by(1, "all", "all", "all"))
	weirtest.Plant(t, st, "weir:t:{u}:c.g2", store.Tag{'g', '1'}, 1, 2, 3)
	before := dump(t, st)
	for _, op := range []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo} {
		res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: op}, nil)
		if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"weir:t:{u}:c.g2"`) || res != (weir.Result{}) {
			t.Errorf("%v: got %+v, %v, want ErrForeign that names the key", op, res, err)
		}
	}
	if after := dump(t, st); !slices.Equal(before, after) {
		t.Errorf("changed %q to %q", before, after)
	}
}

// With and Only reject unknown rules, other algorithms and other segments.
func TestWithRejects(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	p := by(2, "0", "all")
	p.Rules[1].Algorithm = weirtest.Window(5, time.Minute)
	l := weirtest.NewPolicy(t, st, p)
	lone := weirtest.New(t, st, weirtest.PerSecond)
	a := weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}
	for _, tt := range []struct {
		name  string
		of    *weir.Limiter
		rules []weir.Rule
		want  error
		says  string
	}{
		{"an unknown rule", l, []weir.Rule{{Name: "c", Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `rule 0 is named "c": the rules of the limiter are "a", "b"`},
		{"no name among two", l, []weir.Rule{{Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `rule 0 is named "": the rules of the limiter are "a", "b"`},
		{"a rule twice", l, []weir.Rule{a, a}, weir.ErrInvalidRule, `rule "a" is given twice`},
		{"no algorithm", l, []weir.Rule{{Name: "a"}}, weir.ErrInvalidRule, `rule "a": its Algorithm is nil`},
		{"another algorithm", l, []weir.Rule{{Name: "b", Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `rule "b": its Algorithm is a gcra: it must be a fixedwindow`},
		{"another By", l, []weir.Rule{{Name: "a", By: []string{"0", "1"}, Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `By is ["0" "1"], and differs from the policy`},
		{"an unknown By", l, []weir.Rule{{Name: "a", By: []string{"9"}, Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `"9"`},
		{"an invalid limit", l, []weir.Rule{{Name: "a", Algorithm: algorithm.GCRA{}}}, weir.ErrInvalidLimit, `rule "a": `},
		{"a cost above the capacity", lone, []weir.Rule{{Algorithm: weirtest.PerSecond, Cost: 6}}, weir.ErrInvalidRule, `rule "gcra": Cost is 6`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			other, err := tt.of.With(tt.rules...)
			if other != nil {
				t.Errorf("got a limiter with %v", err)
			}
			wantError(t, err, tt.want, tt.says)
		})
	}
	_, err := l.Only("c")
	wantError(t, err, weir.ErrInvalidRule, `no rule "c": its rules are "a", "b"`)
	_, err = l.Only("")
	wantError(t, err, weir.ErrInvalidRule, `no rule ""`)
}

// With finds a rule by its name. If there is only one rule, its name can also be empty or
// the name of its algorithm. The segments of By can have any order.
func TestWithNames(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	lone := weirtest.New(t, st, weirtest.PerSecond)
	named := weirtest.NewPolicy(t, st, by(2, "01"))
	bigger := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 50}
	for i, l := range []*weir.Limiter{
		weirtest.With(t, lone, weir.Rule{Algorithm: bigger}),
		weirtest.With(t, lone, weir.Rule{Name: "gcra", Algorithm: bigger}),
		weirtest.With(t, named, weir.Rule{Name: "a", By: []string{"1", "0"}, Algorithm: bigger}),
		weirtest.With(t, named, weir.Rule{Algorithm: bigger}),
		weirtest.With(t, weirtest.Only(t, named, ""), weir.Rule{Algorithm: bigger}),
		weirtest.With(t, weirtest.With(t, named), weir.Rule{Algorithm: bigger}),
	} {
		key := []string{"x", "y"}[:min(i/2+1, 2)]
		if res := weirtest.Left(t, l, key...); res.Limit != 50 {
			t.Errorf("limiter %d: got %+v, want 50 tokens", i, res)
		}
	}
}

// Every method works on a limiter that With returned, over the same state.
func TestWithEveryVerb(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	free := weirtest.NewPolicy(t, st, by(1, "all", "all"))
	pro := weirtest.With(t, free, weir.Rule{Name: "a", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 50}}, weir.Rule{Name: "b", Algorithm: weirtest.PerSecond, Cost: 1})
	ctx, u := t.Context(), weir.KeyOf("u")
	if res := weirtest.Allow(t, pro, weir.Request{Key: u, Cost: 3, ID: "x"}); res.Remaining != 4 || res.Rule != "b" {
		t.Errorf("got %+v, want 4 left of b", res)
	}
	if res := weirtest.Left(t, free, "u"); res.Remaining != 2 || res.Rule != "a" {
		t.Errorf("free: got %+v, want 2 left of a", res)
	}
	if res, err := pro.TakeUpTo(ctx, 100, "u"); err != nil || res.Granted != 47 {
		t.Errorf("TakeUpTo: got %+v, %v, want 47", res, err)
	}
	if got, err := free.Refund(ctx, weir.Request{Key: u, ID: "x"}); got != (weir.Settlement{Found: true, Cost: 3, Kept: "a"}) || err != nil {
		t.Errorf("a refund under other limits: got %+v, %v, want that both rules keep their tokens", got, err)
	}
	if got, err := pro.Refund(ctx, weir.Request{Key: u, ID: "x"}); got != (weir.Settlement{Found: true}) || err != nil {
		t.Errorf("a second refund: got %+v, %v", got, err)
	}
	if res := weirtest.Left(t, free, "u"); res.Remaining != 0 || res.Rule != "a" {
		t.Errorf("free: got %+v, want none left of a, of which 47 of 50 are consumed", res)
	}
	if got := pro.DoMany(ctx, []weir.Request{{Key: u, Op: weir.Peek}}); got[0].Result != weirtest.Left(t, pro, "u") {
		t.Errorf("DoMany: got %+v, and Peek says %+v", got, weirtest.Left(t, pro, "u"))
	}
	if err := pro.Reset(ctx, "u"); err != nil {
		t.Fatal(err)
	}
	if keys := keysIn(st); len(keys) > 0 {
		t.Errorf("after Reset: %q", keys)
	}
}

// The limiter of Only decides by one rule, and takes the same keys.
func TestOnly(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	p := by(2, "0", "all")
	p.Rules[1].Algorithm = weirtest.Window(2, time.Minute)
	l := weirtest.NewPolicy(t, st, p)
	first, second := weirtest.Only(t, l, "a"), weirtest.Only(t, l, "b")
	if res, err := second.AllowN(t.Context(), 2, "x", "y"); err != nil || res.Rule != "b" || res.Remaining != 0 {
		t.Errorf("got %+v, %v, want none left of b", res, err)
	}
	if res := weirtest.Left(t, l, "x", "y"); res.Allowed || res.Rule != "b" {
		t.Errorf("got %+v, want a denial by b", res)
	}
	if res := weirtest.Left(t, first, "x", "y"); res.Remaining != 5 || res.Rule != "a" {
		t.Errorf("got %+v, want all of a", res)
	}
	if err := second.Reset(t.Context(), "x", "y"); err != nil {
		t.Fatal(err)
	}
	if res := weirtest.Left(t, l, "x", "y"); !res.Allowed || res.Remaining != 2 {
		t.Errorf("after Reset: got %+v", res)
	}
	if _, err := first.Allow(t.Context(), "x"); !errors.Is(err, weir.ErrInvalidKey) {
		t.Errorf("a key of one segment: %v, want ErrInvalidKey", err)
	}
}

// Entries lists the requests of one rule. If several rules keep metadata, the error asks
// for Limiter.Only.
func TestEntries(t *testing.T) {
	t.Parallel()
	kept := func(name string) weir.Rule {
		return weir.Rule{Name: name, Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Minute}}
	}
	rate := weir.Rule{Name: "rate", Algorithm: weirtest.PerSecond}
	for _, tt := range []struct {
		name   string
		policy weir.Policy
		only   string
		want   error
		says   string
	}{
		{"the only one", weirtest.Rules(rate, kept("kept")), "", nil, ""},
		{"by name", weirtest.Rules(rate, kept("kept"), kept("other")), "kept", nil, ""},
		{"two", weirtest.Rules(kept("kept"), kept("other")), "", weir.ErrInvalidRule, "2 rules keep metadata: select one with Limiter.Only"},
		{"another algorithm", weirtest.Rules(rate, kept("kept")), "rate", weir.ErrUnsupported, "algorithm.MetadataWindow"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), tt.policy)
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Cost: 2, Metadata: "ann"})
			if tt.only != "" {
				l = weirtest.Only(t, l, tt.only)
			}
			list, err := l.Entries(t.Context(), "u")
			if tt.want != nil {
				wantError(t, err, tt.want, tt.says)
				return
			}
			if err != nil || !slices.Equal(list, []weir.Entry{{Cost: 2, Metadata: "ann"}}) {
				t.Errorf("got %+v, %v, want the entry of ann", list, err)
			}
		})
	}
}

// A rule keeps its Cost in With if the new one is 0: a forgotten Cost does not allow
// more.
func TestWithKeepsCost(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(weir.Rule{Name: "calls", Cost: 5, Algorithm: weirtest.Window(10, time.Minute)}))
	plan := weirtest.With(t, l, weir.Rule{Name: "calls", Algorithm: weirtest.Window(12, time.Minute)})
	if res := weirtest.Allow(t, plan, weir.Request{Key: weir.KeyOf("u")}); res.Remaining != 7 {
		t.Errorf("got %+v, want 5 of 12 consumed", res)
	}
	if _, err := l.With(weir.Rule{Name: "calls", Algorithm: weirtest.Window(4, time.Minute)}); !errors.Is(err, weir.ErrInvalidRule) {
		t.Errorf("a limit below the Cost: got %v", err)
	}
}

// A limiter whose windows are longer finds a decision of this one, in the buckets that
// both have.
func TestWithOtherSpans(t *testing.T) {
	t.Parallel()
	spans := func(window time.Duration) algorithm.SlidingBuckets {
		return algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: window, Limit: 1000}}}
	}
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), spans(5*time.Second))
	other := weirtest.With(t, l, weir.Rule{Algorithm: spans(10 * time.Second)})
	r := weir.Request{Key: weir.KeyOf("k"), Cost: 3, ID: "x"}
	weirtest.Allow(t, l, r)
	if res := weirtest.Decide(t, other, r); !res.Replayed {
		t.Errorf("other windows: a repeat: got %+v", res)
	}
	if got, err := other.Settle(t.Context(), r, 3); got != (weir.Settlement{Found: true, Cost: 3}) || err != nil {
		t.Errorf("other windows: Settle: got %+v, %v", got, err)
	}
	if got, err := l.Refund(t.Context(), r); !got.Found || err != nil || weirtest.Left(t, l, "k").Remaining != 1000 {
		t.Errorf("Refund: got %+v, %v", got, err)
	}
}

// A stricter limit holds from the next request on. What the earlier limit let a caller
// consume counts until the state ends by that limit or, after a Force under the new
// limit, by the new one.
func TestWithStricter(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before, after algorithm.Algorithm
		used          int64
		gone          time.Duration // then no state of the earlier limit is left
		retry, forced time.Duration // RetryAfter at once, without a Force and with one
	}{
		"TokenBucket": {
			algorithm.TokenBucket{Capacity: 100, Refill: algorithm.PerSecond(10)}, algorithm.TokenBucket{Capacity: 3, Refill: algorithm.PerMinute(10)},
			50, 7 * time.Second, 288 * time.Second, 294 * time.Second,
		},
		"SlidingLog": {
			algorithm.SlidingLog{Limit: 10, Window: time.Minute}, algorithm.SlidingLog{Limit: 10, Window: time.Hour},
			10, time.Minute, time.Hour, time.Hour,
		},
	} {
		for _, force := range []bool{false, true} {
			clock := weirtest.NewClock()
			lim := weirtest.New(t, weirtest.NewStore(clock), tt.before)
			if res, err := lim.AllowN(t.Context(), tt.used, "mallory"); err != nil || !res.Allowed {
				t.Fatal(res, err)
			}
			strict, err := lim.With(weir.Rule{Algorithm: tt.after})
			if err != nil {
				t.Fatal(err)
			}
			retry := tt.retry
			if force {
				retry = tt.forced
				if _, err := strict.Force(t.Context(), 1, "mallory"); err != nil {
					t.Fatal(err)
				}
			}
			denied := func(want time.Duration) {
				t.Helper()
				if res, err := strict.Allow(t.Context(), "mallory"); err != nil || res.Allowed || res.RetryAfter != want {
					t.Errorf("%s, with a Force: %t: got %+v, %v; want it denied for %v", name, force, res, err, want)
				}
			}
			denied(retry)
			clock.Advance(tt.gone)
			if force {
				denied(retry - tt.gone)
				clock.Advance(retry - tt.gone)
			}
			if res, err := strict.Allow(t.Context(), "mallory"); err != nil || !res.Allowed {
				t.Errorf("%s, with a Force: %t: got %+v, %v; want it allowed", name, force, res, err)
			}
		}
	}
}
