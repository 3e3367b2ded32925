package weir_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Rules describes each rule, and the shadow rules last.
func TestRules(t *testing.T) {
	t.Parallel()
	gcra := algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 10}
	queue := algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 4}
	log := algorithm.SlidingLog{Limit: 3000, Window: time.Minute}
	jobs := algorithm.Concurrency{Limit: 2, Lease: time.Minute}
	kept := algorithm.MetadataWindow{Limit: 3, Window: time.Hour}
	huge := weirtest.Window(algorithm.MaxTokens, time.Hour)
	for _, tt := range []struct {
		segments []string
		rules    []weir.Rule
		want     []weir.RuleInfo
	}{
		{[]string{"tenant", "user"}, []weir.Rule{
			{Name: "next", By: []string{"user", "tenant"}, Algorithm: gcra, Shadow: true},
			{Name: "tenant", By: []string{"tenant"}, Algorithm: gcra, Cost: 2},
			{Name: "queue", Algorithm: &queue},
			{Name: "jobs", Algorithm: jobs},
		}, []weir.RuleInfo{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: gcra, CostBy: weir.CostOwn, Cost: 2, Kind: "gcra", Limit: 10, Window: 5 * time.Second, Reserves: true, Refunds: true, Debt: true},
			{Name: "queue", By: []string{"tenant", "user"}, Algorithm: queue, Kind: "leakybucket", Limit: 5, Window: 5 * time.Second, Reserves: true, Refunds: true, Debt: true, Queues: true},
			{Name: "jobs", By: []string{"tenant", "user"}, Algorithm: jobs, Kind: "concurrency", Limit: 2, MaxCost: 1, Type: weir.LeaseRule},
			{Name: "next", By: []string{"tenant", "user"}, Algorithm: gcra, Shadow: true, Kind: "gcra", Limit: 10, Window: 5 * time.Second, Reserves: true, Refunds: true, Debt: true},
		}},
		{nil, []weir.Rule{{Algorithm: weirtest.Capped(log, 1000)}}, []weir.RuleInfo{
			{Name: "slidinglog", By: []string{"key"}, Algorithm: weirtest.Capped(log, 1000), Kind: "slidinglog", Limit: 3000, MaxCost: 1000, Window: time.Minute, Refunds: true, Debt: true},
		}},
		{nil, []weir.Rule{{Algorithm: kept}}, []weir.RuleInfo{
			{Name: "metadatawindow", By: []string{"key"}, Algorithm: kept, Kind: "metadatawindow", Limit: 3, Window: time.Hour, Debt: true, Entries: true},
		}},
		{nil, []weir.Rule{{Algorithm: huge}}, []weir.RuleInfo{
			{Name: "fixedwindow", By: []string{"key"}, Algorithm: huge, Kind: "fixedwindow", Limit: algorithm.MaxTokens, Window: time.Hour, Refunds: true},
		}},
	} {
		got := weirtest.NewPolicy(t, memory.New(nil), weir.Policy{Segments: tt.segments, Rules: tt.rules}).Rules()
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("got  %+v\nwant %+v", got, tt.want)
		}
	}
}

// What a rule does is asked of its kind, and not guessed from its numbers: in memory, by
// scripts, in wrappers and in the text of a denial.
func TestRuleTypes(t *testing.T) {
	t.Parallel()
	other := weir.Rule{Name: "other", Algorithm: weirtest.Window(algorithm.MaxTokens, time.Hour)}
	for _, tt := range []struct {
		a    algorithm.Algorithm
		want weir.RuleType
		text string // of a denial
	}{
		{weirtest.Windowless(weirtest.Window(5, time.Minute), 0), weir.LimitRule, "0 of 5 tokens remain"},
		{weirtest.Windowless(other.Algorithm, 0), weir.LimitRule, "0 of 9007199254740991 tokens remain"},
		{weirtest.Windowless(algorithm.SlidingLog{Limit: 5, Window: time.Minute}, 0), weir.LimitRule, "0 of 5 tokens remain"},
		{algorithm.Concurrency{Limit: 1, Lease: time.Minute}, weir.LeaseRule, "0 of 1 tokens remain"},
		{algorithm.Pause{}, weir.PauseRule, "which pauses the key"},
	} {
		for name, wrap := range map[string]weir.Wrapper{
			"memory": nil, "scripts": weirtest.Pass, "denycache": denycache.New(nil).Wrap, "closed": outage.New(nil).Wrap,
			"open": outage.New(&outage.Options{Fallback: outage.Open}).Wrap, "local": outage.New(&outage.Options{Fallback: outage.Local, Processes: 1}).Wrap,
		} {
			st, rules := weirtest.NewFaulty(), weirtest.Rules(weir.Rule{Name: "first", Algorithm: tt.a}, other)
			l := weirtest.NewPolicy(t, memory.New(nil), rules)
			if wrap != nil {
				l = weirtest.Wrap(t, weirtest.NewPolicy(t, st, rules), wrap)
			}
			info, each := l.Rules()[0], make([]weir.Result, 2)
			r := weir.Request{Key: weir.KeyOf("u"), Cost: info.Limit}
			switch tt.want {
			case weir.LeaseRule:
				r.ID = "id"
			case weir.PauseRule:
				r.Cost = 1
			}
			for i := range 4 {
				switch {
				case i == 2 && tt.want == weir.PauseRule:
					pause(t, l, time.Minute, "u")
				case i == 1 && r.ID != "":
					r.ID = "other"
				case i == 3: // only the outages differ from the request before
					st.Set(weirtest.Down)
				}
				res, err := l.Decide(t.Context(), r, each)
				switch {
				case errors.Is(err, store.ErrUnavailable) && i == 3:
					continue
				case err != nil || info.Type != tt.want || each[0].Type != tt.want || res.Rule == "first" && res.Type != tt.want || each[1].Type != weir.LimitRule:
					t.Errorf("%s, %v, request %d: got %+v, %v of %+v, want the type %v", name, info.Kind, i, res, err, each, tt.want)
				}
				if text := (&weir.DeniedError{Result: res}).Error(); i == 2 && !strings.Contains(text, tt.text) {
					t.Errorf("%s, %v: got %q, want %q", name, info.Kind, text, tt.text)
				}
			}
		}
	}
}

// Check returns the error of misuse that Decide returns, and calls no store.
func TestCheck(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: memory.New(nil)}
	l := weirtest.NewPolicy(t, st, weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}, weir.Rule{Name: "b", Algorithm: weirtest.Window(5, time.Hour)}))
	u := weir.KeyOf("u")
	for _, tt := range []struct {
		r    weir.Request
		each int
		want error // of misuse
	}{
		{weir.Request{Key: u}, 0, nil},
		{weir.Request{Key: u, Cost: 1 << 60}, 2, nil}, // a denial is no misuse
		{weir.Request{Key: u, Op: weir.Refund, ID: "x"}, 3, nil},
		{weir.Request{}, 0, weir.ErrInvalidKey},
		{weir.Request{Key: u, Cost: -1}, 0, weir.ErrInvalidCost},
		{weir.Request{Key: u, MaxWait: 1}, 0, weir.ErrUnsupported},
		{weir.Request{Key: u, Op: 99}, 0, weir.ErrUnsupported},
	} {
		got := l.Check(tt.r, make([]weir.Result, tt.each))
		if calls := st.calls(); calls > 0 || !errors.Is(got, tt.want) {
			t.Errorf("%+v: got %v after %d calls of the store, want %v", tt.r, got, calls, tt.want)
		}
		_, err := l.Decide(t.Context(), tt.r, make([]weir.Result, tt.each))
		if *st = (recorder{Store: st.Store}); (got == nil) != (err == nil) || got != nil && got.Error() != err.Error() {
			t.Errorf("%+v: got %v, and Decide returned %v", tt.r, got, err)
		}
	}
	wantError(t, l.Check(weir.Request{Key: u}, make([]weir.Result, 1)), nil, "each has 1 elements")
}

// Limiters have the same Digest if their keys and limits are the same.
func TestDigest(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	if l := weirtest.New(t, st, weirtest.PerSecond); l.Store() != store.Store(st) {
		t.Errorf("the store is %v", l.Store())
	}
	limiter := func(prefix string, p weir.Policy) *weir.Limiter {
		l, err := weir.NewPolicy(st, p, &weir.Options{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	policy := func(change func(p *weir.Policy)) weir.Policy {
		p := weir.Policy{Name: "t", Segments: []string{"x", "y"}, Rules: []weir.Rule{
			{Name: "a", By: []string{"x"}, Algorithm: weirtest.Window(40, time.Hour)}, {Name: "b", Algorithm: weirtest.Window(80, time.Hour)},
		}}
		if change != nil {
			change(&p)
		}
		return p
	}
	one := limiter("", policy(nil))
	share := func(n int) *weir.Limiter {
		l, err := one.Share(n, st)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for name, same := range map[string]*weir.Limiter{
		"another one":  limiter(weir.DefaultPrefix, policy(nil)),
		"in a wrapper": weirtest.Wrap(t, one, weirtest.Pass),
		"of With":      weirtest.With(t, one, weir.Rule{Name: "a", Algorithm: weirtest.Window(40, time.Hour)}),
		"a shadow rule": limiter("", policy(func(p *weir.Policy) {
			p.Rules = append(p.Rules, weir.Rule{Name: "c", Algorithm: weirtest.PerSecond, Shadow: true})
		})),
		"the whole share": share(1),
	} {
		if same.Digest() != one.Digest() {
			t.Errorf("%s: the digests differ", name)
		}
	}
	seen := map[[32]byte]string{one.Digest(): "the limiter"}
	for name, other := range map[string]*weir.Limiter{
		"prefix":          limiter("p", policy(nil)),
		"name":            limiter("", policy(func(p *weir.Policy) { p.Name = "u" })),
		"segments":        limiter("", policy(func(p *weir.Policy) { p.Segments = append(p.Segments, "z") })),
		"secret":          limiter("", policy(func(p *weir.Policy) { p.Secret = []string{"y"} })),
		"By":              limiter("", policy(func(p *weir.Policy) { p.Rules[0].By = []string{"y"} })),
		"By nil":          limiter("", policy(func(p *weir.Policy) { p.Rules[0].By = nil })),
		"a rule's name":   limiter("", policy(func(p *weir.Policy) { p.Rules[1].Name = "c" })),
		"a rule's cost":   limiter("", policy(func(p *weir.Policy) { p.Rules[1].Cost = 2 })),
		"a limit":         weirtest.With(t, one, weir.Rule{Name: "b", Algorithm: weirtest.Window(81, time.Hour)}),
		"one rule":        weirtest.Only(t, one, "a"),
		"the other rule":  weirtest.Only(t, one, "b"),
		"half of a share": share(2),
		"a quarter":       share(4),
	} {
		if was := seen[other.Digest()]; was != "" {
			t.Errorf("%s: the digest is that of %s", name, was)
		}
		seen[other.Digest()] = name
	}
}
