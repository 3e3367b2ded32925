package weir_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Rules describes each rule, and the shadow rules last.
func TestRules(t *testing.T) {
	t.Parallel()
	gcra := algorithm.GCRA{Rate: algorithm.PerSecond(2), Burst: 10}
	queue := algorithm.LeakyBucket{Rate: algorithm.PerSecond(1), Queue: 4}
	log := weirtest.Capped(algorithm.SlidingLog{Limit: 3000, Window: time.Minute}, 1000)
	huge := weirtest.Window(algorithm.MaxTokens, time.Hour)
	both, key := []string{"tenant", "user"}, []string{"key"}
	for _, tt := range []struct {
		segments []string
		rules    []weir.Rule
		want     []weir.RuleInfo
	}{
		{both, []weir.Rule{
			{Name: "next", By: []string{"user", "tenant"}, Algorithm: gcra, Shadow: true},
			{Name: "tenant", By: both[:1], Algorithm: gcra, Cost: 2},
			{Name: "queue", Unit: "u", Algorithm: &queue},
			jobsRule,
			pauseRule,
		}, []weir.RuleInfo{
			{Name: "tenant", By: both[:1], Algorithm: gcra, CostBy: weir.CostOwn, Cost: 2, Kind: "gcra", Limit: 10, Window: 5 * time.Second, Reserves: true, Refunds: true, Debt: true},
			{Name: "queue", By: both, Algorithm: queue, CostBy: weir.CostUnit, Unit: "u", Kind: "leakybucket", Limit: 5, Window: 5 * time.Second, Reserves: true, Refunds: true, Debt: true, Queues: true},
			{Name: "jobs", By: both, Algorithm: jobsRule.Algorithm, Kind: "concurrency", Limit: 5, MaxCost: 1, Type: weir.LeaseRule},
			{Name: "pause", By: both, Algorithm: algorithm.Pause{}, CostBy: weir.CostNothing, Kind: "pause", Limit: algorithm.MaxTokens, Type: weir.PauseRule, Reserves: true, Refunds: true, Debt: true},
			{Name: "next", By: both, Algorithm: gcra, Shadow: true, Kind: "gcra", Limit: 10, Window: 5 * time.Second, Reserves: true, Refunds: true, Debt: true},
		}},
		{nil, []weir.Rule{{Algorithm: log}}, []weir.RuleInfo{
			{Name: "slidinglog", By: key, Algorithm: log, Kind: "slidinglog", Limit: 3000, MaxCost: 1000, Window: time.Minute, Refunds: true, Debt: true},
		}},
		{nil, []weir.Rule{metaRule}, []weir.RuleInfo{
			{Name: "list", By: key, Algorithm: metaRule.Algorithm, Kind: "metadatawindow", Limit: 5, Window: time.Hour, Debt: true, Entries: true},
		}},
		{nil, []weir.Rule{{Algorithm: huge}}, []weir.RuleInfo{
			{Name: "fixedwindow", By: key, Algorithm: huge, Kind: "fixedwindow", Limit: algorithm.MaxTokens, Window: time.Hour, Refunds: true},
		}},
	} {
		got := weirtest.NewPolicy(t, memory.New(nil), weir.Policy{Segments: tt.segments, Units: []string{"v", "u"}, Rules: tt.rules}).Rules()
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("got  %+v\nwant %+v", got, tt.want)
		}
	}
}

// The type of a rule is asked of its kind, and not guessed from its numbers, during an outage too.
func TestRuleTypes(t *testing.T) {
	t.Parallel()
	st, each := weirtest.NewFaulty(), make([]weir.Result, 3)
	l := weirtest.NewPolicy(t, st, weirtest.Rules(pauseRule, jobsRule, weir.Rule{Name: "high", Algorithm: weirtest.Windowless(weirtest.PerSecond, algorithm.MaxTokens)}))
	for i, l := range []*weir.Limiter{l, weirtest.Wrap(t, l, outage.New(&outage.Options{Fallback: outage.Open}).Wrap)} {
		st.Set([]weirtest.Fault{weirtest.Up, weirtest.Down}[i])
		res := weirtest.Decide(t, l, weir.Request{Key: keyU.Key, ID: "x"}, each...)
		for n, rule := range l.Rules() {
			if each[n].Type != rule.Type || each[n].Rule == res.Rule && res.Type != rule.Type {
				t.Errorf("outage %d: got %+v and %+v, want the type %v", i, res, each[n], rule.Type)
			}
		}
	}
}

// Limiters have the same Digest if their keys and limits are the same.
func TestDigest(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	limiter := func(opts *weir.Options, change func(p *weir.Policy)) *weir.Limiter {
		p := by(2, "0", "all", "all")
		p.Units, p.Rules[2].Unit = []string{"u", "v"}, "u"
		if change != nil {
			change(&p)
		}
		l, err := weir.NewPolicy(st, p, opts)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	one := limiter(nil, nil)
	share := func(n int) *weir.Limiter {
		l, err := one.Share(n, st)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for name, same := range map[string]*weir.Limiter{
		"another one":     limiter(&weir.Options{Prefix: weir.DefaultPrefix}, nil),
		"in a wrapper":    weirtest.Wrap(t, one, weirtest.Pass),
		"of With":         weirtest.With(t, one, weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}),
		"a shadow rule":   limiter(nil, func(p *weir.Policy) { p.Rules = append(p.Rules, shadow(rateRule)) }),
		"the whole share": share(1),
	} {
		if same.Digest() != one.Digest() || same.Store() != store.Store(st) {
			t.Errorf("%s: the digests or the stores differ", name)
		}
	}
	seen := map[[32]byte]string{one.Digest(): "the limiter"}
	for name, other := range map[string]*weir.Limiter{
		"prefix":          limiter(&weir.Options{Prefix: "p"}, nil),
		"Settles":         limiter(&weir.Options{Settles: true}, nil),
		"name":            limiter(nil, func(p *weir.Policy) { p.Name = "u" }),
		"segments":        limiter(nil, func(p *weir.Policy) { p.Segments = append(p.Segments, "z") }),
		"secret":          limiter(nil, func(p *weir.Policy) { p.Secret = []string{"1"} }),
		"By":              limiter(nil, func(p *weir.Policy) { p.Rules[0].By = []string{"1"} }),
		"By nil":          limiter(nil, func(p *weir.Policy) { p.Rules[0].By = nil }),
		"a rule's name":   limiter(nil, func(p *weir.Policy) { p.Rules[1].Name = "d" }),
		"a rule's cost":   limiter(nil, func(p *weir.Policy) { p.Rules[1].Cost = 2 }),
		"a rule's unit":   limiter(nil, func(p *weir.Policy) { p.Rules[2].Unit = "v" }),
		"a limit":         weirtest.With(t, one, weir.Rule{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 6}}),
		"one rule":        weirtest.Only(t, one, "a"),
		"the other rule":  weirtest.Only(t, one, "b"),
		"half of a share": share(2),
		"a fifth":         share(5),
	} {
		if was := seen[other.Digest()]; was != "" {
			t.Errorf("%s: the digest is that of %s", name, was)
		}
		seen[other.Digest()] = name
	}
}
