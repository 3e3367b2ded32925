package weir_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fake is an algorithm whose NewLimit returns the limit and the error of a test.
type fake struct {
	limit *contract.Limit
	err   error
}

func (f fake) NewLimit() (*contract.Limit, error) { return f.limit, f.err }

// A debtless algorithm is a FixedWindow that cannot be in debt.
type debtless struct{ algorithm.FixedWindow }

func (d debtless) NewLimit() (*contract.Limit, error) {
	l, err := d.FixedWindow.NewLimit()
	if err != nil {
		return nil, err
	}
	limit := *l
	limit.MaxDebt = 0
	return &limit, nil
}

var (
	jobsRule = weir.Rule{Name: "jobs", Algorithm: algorithm.Concurrency{Limit: 5, Lease: time.Minute}}
	metaRule = weir.Rule{Name: "list", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Hour}}
)

// NewPolicy rejects invalid policies, stores and limits, and says what would be right.
func TestNewPolicyRejects(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	many := make([]weir.Rule, weir.MaxRules+1)
	for i := range many {
		many[i] = weir.Rule{Name: string(rune('a' + i)), Algorithm: weirtest.PerSecond}
	}
	one := many[:1]
	long := strings.Repeat("x", weir.MaxSegment+1)
	x := func(r weir.Rule) weir.Policy { r.Name = "x"; return weirtest.Rules(r) }
	of := func(a algorithm.Algorithm) weir.Policy { return x(weir.Rule{Algorithm: a}) }
	shadows := func(r weir.Rule) weir.Policy { return weirtest.Rules(many[0], shadow(r)) }
	kind := &contract.MeterKind{Head: contract.Head{Name: "mine", Tag: store.Tag{'z', '1'}}}
	for _, tt := range []struct {
		name   string
		store  store.Store
		policy weir.Policy
		want   error // nil: any
		says   string
	}{
		{"no store", nil, weirtest.Rules(one...), nil, "the store is nil: pass a store, for example memory.New(nil)"},
		{"a store that cannot work", memory.New(&memory.Options{MaxKeys: -1}), weirtest.Rules(one...), nil, "MaxKeys is -1"},
		{"a nil memory store", (*memory.Store)(nil), weirtest.Rules(one...), nil, "make one with New"},
		{"no name", st, weir.Policy{Name: "-", Rules: one}, weir.ErrInvalidRule, "name is empty: give each limiter its own name"},
		{"a long name", st, weir.Policy{Name: long, Rules: one}, weir.ErrInvalidRule, "129 bytes"},
		{"no segments", st, weir.Policy{Segments: []string{}, Rules: one}, weir.ErrInvalidRule, "Policy.Segments has 0 names: it must have from 1 to 8"},
		{"an empty segment", st, weir.Policy{Segments: []string{"ip", ""}, Rules: one}, weir.ErrInvalidRule, "Policy.Segments[1] is empty"},
		{"a segment twice", st, weir.Policy{Segments: []string{"ip", "ip"}, Rules: one}, weir.ErrInvalidRule, `Policy.Segments has the name "ip" twice`},
		{"an unknown secret", st, weir.Policy{Secret: []string{"token"}, Rules: one}, weir.ErrInvalidRule, `Policy.Secret names the segment "token", which does not exist: the segments are "key"`},
		{"nine units", st, weir.Policy{Units: strings.Split("abcdefghi", ""), Rules: one}, weir.ErrInvalidRule, "Policy.Units has 9 names: it must have at most 8"},
		{"a long unit", st, weir.Policy{Units: []string{"a", long}, Rules: one}, weir.ErrInvalidRule, "Policy.Units[1] has 129 bytes"},
		{"an unknown unit", st, x(weir.Rule{Unit: "u", Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, `rule "x": Unit is "u": Policy.Units must declare it: it has none`},
		{"a unit and a cost", st, x(weir.Rule{Unit: "u", Cost: 1, Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, `Cost is 1: it must be 0, because the rule counts the unit "u"`},
		{"a unit of leases", st, x(weir.Rule{Unit: "u", Algorithm: oneJob}), weir.ErrInvalidRule, "it must be empty, because a concurrency does not count tokens"},
		{"no rules", st, weirtest.Rules(), weir.ErrInvalidRule, "from 1 to 16"},
		{"17 rules", st, weirtest.Rules(many...), weir.ErrInvalidRule, "17 rules"},
		{"an invalid limit", st, weirtest.Rules(many[0], weir.Rule{Name: "x", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1)}}), weir.ErrInvalidLimit, `weir: rule "x": GCRA.Burst is 0`},
		{"no limit", st, of(fake{}), weir.ErrInvalidRule, "returned no limit"},
		{"a limit without a kind", st, of(fake{limit: &contract.Limit{Capacity: 1}}), weir.ErrInvalidRule, "without a Kind"},
		{"a limit without capacity", st, of(fake{limit: &contract.Limit{Kind: kind}}), weir.ErrInvalidRule, "Capacity 0"},
		{"a kind without arithmetic", st, of(fake{limit: &contract.Limit{Kind: kind, Capacity: 1}}), weir.ErrInvalidRule, "kind mine"},
		{"one name missing", st, weirtest.Rules(many[0], weir.Rule{Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, "rule 1 has no Name"},
		{"one name twice", st, weirtest.Rules(many[0], many[1], many[0]), weir.ErrInvalidRule, `two rules are named "a"`},
		{"a long rule name", st, weirtest.Rules(weir.Rule{Name: long, Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, "rule 0: its Name has 129 bytes"},
		{"negative cost", st, x(weir.Rule{Algorithm: weirtest.PerSecond, Cost: -1}), weir.ErrInvalidRule, "Cost is -1"},
		{"a cost above the capacity", st, x(weir.Rule{Algorithm: weirtest.PerSecond, Cost: 6}), weir.ErrInvalidRule, "Cost is 6: it must be at most 5"},
		{"a cost above the most at once", st, x(weir.Rule{Algorithm: weirtest.Capped(weirtest.PerSecond, 2), Cost: 3}), weir.ErrInvalidRule, "Cost is 3: a gcra can consume at most 2 at once"},
		{"a cost of a pause", st, x(weir.Rule{Algorithm: algorithm.Pause{}, Cost: 2}), weir.ErrInvalidRule, "Cost is 2: it must be 0, because a pause consumes no tokens"},
		{"by nothing", st, by(3, "all"), weir.ErrInvalidRule, `rule "a": By is empty`},
		{"by an unknown segment", st, by(3, "9"), weir.ErrInvalidRule, `rule "a": By names the segment "9", which does not exist: the segments are "0", "1", "2"`},
		{"by one segment twice", st, by(3, "010"), weir.ErrInvalidRule, `By names the segment "0" twice: name it once`},
		{"nothing in common", st, by(2, "0", "1"), weir.ErrInvalidRule, "the rules have no segment in common"},
		{"leases and metadata", st, weirtest.Rules(jobsRule, metaRule), weir.ErrInvalidRule, "cannot share a limiter: a lease needs an ID, and metadata cannot be refunded"},
		{"only a shadow rule", st, weirtest.Rules(shadow(rateRule)), weir.ErrInvalidRule, "at least one must not be"},
		{"a shadow rule without a name", st, shadows(weir.Rule{Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, "a shadow rule has no Name"},
		{"a shadow rule with a name twice", st, shadows(many[0]), weir.ErrInvalidRule, `two rules are named "a"`},
		{"a shadow rule that keeps metadata", st, shadows(metaRule), weir.ErrInvalidRule, "keeps metadata, so it cannot be a shadow rule"},
		{"a shadow rule that pauses", st, shadows(pauseRule), weir.ErrInvalidRule, "closes keys, so it cannot be a shadow rule"},
		{"a shadow rule that holds leases", st, shadows(jobsRule), weir.ErrInvalidRule, "holds leases, so it can be a shadow rule only if another rule holds leases too"},
		{"a shadow rule without an algorithm", st, shadows(weir.Rule{Name: "x"}), weir.ErrInvalidRule, "Algorithm is nil"},
		{"a shadow rule by an unknown segment", st, shadows(weir.Rule{Name: "x", By: []string{"s"}, Algorithm: weirtest.PerSecond}), weir.ErrInvalidRule, `"s"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			switch tt.policy.Name {
			case "":
				tt.policy.Name = "t"
			case "-":
				tt.policy.Name = ""
			}
			if tt.name == "by nothing" {
				tt.policy.Rules[0].By = []string{}
			}
			l, err := weir.NewPolicy(tt.store, tt.policy, nil)
			if l != nil {
				t.Errorf("got a limiter with %v", err)
			}
			wantError(t, err, tt.want, tt.says)
		})
	}
}

// With Options.Settles, a limiter whose rules cannot be settled is an error of New, NewPolicy and
// With. The advice in the error is true for the rule.
func TestSettles(t *testing.T) {
	t.Parallel()
	of := func(a algorithm.Algorithm) []weir.Rule { return []weir.Rule{{Algorithm: a}} }
	daily := algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 1000}
	place, w := costing(jobsRule, 1), window("w", 5)
	var limiters []*weir.Limiter
	for _, tt := range []struct {
		rules []weir.Rule
		says  string // empty: the rules can be settled
	}{
		{of(algorithm.GCRA{Rate: algorithm.PerDay(1), Burst: 3}), ""},
		{of(algorithm.SlidingCounter{Limit: 1 << 26, Window: time.Hour}), ""},
		{[]weir.Rule{place, w}, ""},
		{[]weir.Rule{costing(w, 1)}, "Settle: every rule has a Cost"},
		{[]weir.Rule{place, costing(w, 1)}, "Settle: every rule has a Cost"},
		{of(debtless{weirtest.Window(5, time.Hour)}), "is a fixedwindow, which cannot be in debt: use another algorithm"},
		{[]weir.Rule{metaRule}, "is a metadatawindow, whose tokens cannot be refunded"},
		{[]weir.Rule{place}, "Settle: a rule holds leases: no other rule can be settled"},
		{[]weir.Rule{jobsRule, w}, `rule "jobs" holds leases: with Options.Settles, set its Cost to 1`},
		{[]weir.Rule{place, w, {Name: "try", Algorithm: oneJob, Shadow: true}}, `rule "try" holds leases: with Options.Settles, set its Cost to 1`},
		{of(algorithm.GCRA{Rate: algorithm.Every(algorithm.MaxSpan), Burst: 1}), "which cannot be in debt with the limit 1 in 1250999h53m47.370496s: lower the limit, shorten its time"},
		{of(daily), "which has the limit 1000 in 24000h0m0s and can be in debt by 51124: Options.Settles needs 100 times the limit"},
		{of(weirtest.Windowless(daily, 0)), "which has the limit 1000 and can be in debt by 51124: Options.Settles needs 100 times the limit: lower the limit, or use another algorithm"},
		{of(algorithm.SlidingCounter{Limit: 1 << 27, Window: time.Hour}), "can be in debt by 8455716863"},
	} {
		weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(tt.rules...))
		l, err := weir.NewPolicy(memory.New(nil), weir.Policy{Name: "l", Rules: tt.rules}, &weir.Options{Settles: true})
		if limiters = append(limiters, l); tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%+v: got %v, want %q", tt.rules, err, tt.says)
		}
	}
	_, err := limiters[0].With(of(daily)...)
	wantError(t, err, weir.ErrUnsupported, "Options.Settles needs 100 times the limit")
	weirtest.With(t, weirtest.Only(t, limiters[0], ""), of(daily)...)
}

// Misuse is rejected before the store is called. Check returns the same error.
func TestMisuse(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: memory.New(nil)}
	limiter := func(settles bool, p weir.Policy) *weir.Limiter {
		p.Name = "t"
		l, err := weir.NewPolicy(st, p, &weir.Options{Settles: settles})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	of := func(list ...weir.Rule) *weir.Limiter { return limiter(false, weirtest.Rules(list...)) }
	other := metaRule
	other.Name = "other"
	lists := of(metaRule, other)
	one, two, costs := of(rateRule), of(rateRule, window("w", 5)), of(costing(rateRule, 1))
	list, leases, w := of(metaRule), of(jobsRule, rateRule), of(window("w", 5))
	work := limiter(true, weirtest.Rules(costing(jobsRule, 1), window("w", 5)))
	units := limiter(false, weir.Policy{Units: []string{"rows", "later", "bytes"}, Rules: []weir.Rule{
		{Name: "bytes", Unit: "bytes", Algorithm: weirtest.PerSecond}, {Name: "rows", Unit: "rows", Algorithm: weirtest.PerSecond}}})
	three := limiter(false, by(3, "0", "02"))
	pauses := of(pauseRule, weir.Rule{Name: "closed", Algorithm: algorithm.Pause{}}, rateRule)
	paused := of(pauseRule, rateRule)
	small := of(weir.Rule{Name: "small", Algorithm: algorithm.SlidingLog{Limit: 20, Window: time.Hour}})
	named := func(amounts map[string]int64) weir.Request { return weir.Request{Costs: weir.CostsOf(amounts)} }
	bytes := weir.CostsOf(map[string]int64{"bytes": 1})
	long := strings.Repeat("x", algorithm.MaxLease+1)
	huge := of(window("huge", algorithm.MaxTokens))
	actual := func(op weir.Op, id string, a weir.Actual) weir.Request {
		return weir.Request{Op: op, ID: id, Actual: a}
	}
	cost := weir.ActualCost
	for _, tt := range []struct {
		of   *weir.Limiter
		r    weir.Request // without a key, it gets one
		want error        // nil: any
		says string
	}{
		{one, ask(-1, ""), weir.ErrInvalidCost, "Request.Cost is -1: it must be 0 or more; 0 means 1"},
		{three, weir.Request{Key: weir.KeyOf("a", "b")}, weir.ErrInvalidKey, `2 segments: it must have 3: "0", "1", "2"`},
		{three, weir.Request{Key: weir.KeyOf(strings.Split("abcdefghi", "")...)}, weir.ErrInvalidKey, "9 segments"},
		{three, weir.Request{Key: weir.KeyOf("a", "", "c"), Op: weir.Reset}, weir.ErrInvalidKey, `"1" is empty`}, // though no rule is by it
		{three, weir.Request{Op: weir.Reset}, weir.ErrInvalidRule, "Reset: no rule is identified by the full key: select a rule with Limiter.Only"},
		{one, do(99, 1, ""), weir.ErrUnsupported, "Request.Op is Op(99)"},
		{one, weir.Request{MaxWait: -1}, nil, "Request.MaxWait is -1ns: it must be 0 or more"},
		{one, weir.Request{Op: weir.TakeUpTo, MaxWait: second}, weir.ErrUnsupported, "TakeUpTo: Request.MaxWait is 1s: it must be 0"},
		{one, weir.Request{Op: weir.Force, MaxWait: second}, weir.ErrUnsupported, "Force: Request.MaxWait is 1s: it must be 0"},
		{two, weir.Request{MaxWait: 1}, weir.ErrUnsupported, `rule "w" is a fixedwindow, whose tokens cannot be reserved`},
		{one, weir.Request{Metadata: "x"}, weir.ErrUnsupported, "algorithm.MetadataWindow"},
		{list, weir.Request{Metadata: strings.Repeat("x", algorithm.MaxMetadata+1)}, weir.ErrInvalidMetadata, "it must have at most"},
		{list, ask(1, "x"), weir.ErrUnsupported, `Request.ID: rule "list" is a metadatawindow, whose tokens cannot be refunded: leave the ID empty`},
		{costs, do(weir.TakeUpTo, 1, ""), weir.ErrUnsupported, "TakeUpTo: every rule has a Cost or a Unit"},
		{leases, do(weir.TakeUpTo, 1, "x"), weir.ErrUnsupported, `"jobs" is a concurrency, which holds one lease for each request`},
		{leases, ask(1, ""), weir.ErrInvalidLease, "it must name the lease: call TryAcquire or Acquire, or set an ID"},
		{leases, ask(1, long), weir.ErrInvalidLease, "129 bytes"},
		{leases, ask(2, "x"), weir.ErrInvalidCost, "at most 1"},
		{one, do(weir.Renew, 0, "x"), weir.ErrUnsupported, "Renew: no rule holds leases"},
		{leases, do(weir.Renew, 0, ""), weir.ErrInvalidLease, "Renew: Request.ID is empty"},
		{leases, do(weir.Release, 0, long), weir.ErrInvalidLease, "129 bytes"},

		{leases, do(weir.Force, 1, "x"), weir.ErrUnsupported, `Force: rule "jobs" is a concurrency, which cannot be in debt`},
		{huge, do(weir.Force, 1, ""), weir.ErrUnsupported, `rule "huge" is a fixedwindow, which cannot be in debt with the limit 9007199254740991 in 1h0m0s: lower the limit`},
		{small, do(weir.Force, 1<<52, ""), weir.ErrInvalidCost, `the cost is 4503599627370496: rule "small" is a slidinglog, which can consume at most 4503599627370495 at once`},
		{w, do(weir.Force, 1<<60, ""), weir.ErrInvalidCost, "which can consume at most 9007199254740991 at once"},

		{one, do(weir.Refund, 0, ""), weir.ErrInvalidKey, "Refund: Request.ID is empty"},
		{list, do(weir.Refund, 0, "x"), weir.ErrUnsupported, `Refund: rule "list" is a metadatawindow, whose tokens cannot be refunded: use another algorithm`},
		{leases, do(weir.Refund, 0, "x"), weir.ErrUnsupported, "Refund: a rule holds leases: set Options.Settles"},
		{w, do(weir.Settle, 0, "x"), weir.ErrInvalidCost, "Settle: Request.Actual is not set: set it to ActualCost(n)"},
		{work, actual(weir.Settle, "x", weir.ActualCosts(weir.Costs{})), weir.ErrInvalidCost, "Settle: Request.Actual is not set"},
		{w, settle(-1, "x"), weir.ErrInvalidCost, "Settle: the actual cost is -1: it must be 0 or more"},
		{w, settle(1<<53, "x"), weir.ErrInvalidCost, "can consume at most 9007199254740991 at once"},
		{w, settle(1, ""), weir.ErrInvalidKey, "Settle: Request.ID is empty"},
		{costs, settle(1, "x"), weir.ErrUnsupported, "Settle: every rule has a Cost"},
		{list, settle(1, "x"), weir.ErrUnsupported, `Settle: rule "list" is a metadatawindow`},
		{leases, settle(1, "x"), weir.ErrUnsupported, "Settle: a rule holds leases: set Options.Settles"},
		{units, settle(1, "x"), weir.ErrUnsupported, "every rule has a Cost or a Unit: use SettleCosts or ActualCosts"},
		{w, actual(weir.Settle, "x", weir.ActualRefund()), weir.ErrInvalidCost, "which is for a Finish: call Refund"},
		{one, actual(weir.Settle, "x", weir.ActualCosts(bytes)), weir.ErrInvalidCost, `Request.Actual names the unit "bytes": Policy.Units must declare it: it has none`},
		{leases, actual(weir.Finish, "x", cost(1)), weir.ErrUnsupported, "Finish: a rule holds leases: set Options.Settles"},
		{work, actual(weir.Finish, "x", weir.ActualRefund().With(bytes)), weir.ErrInvalidCost, "Finish: Request.Actual has a refund and amounts"},
		{work, actual(weir.Finish, "x", cost(-1)), weir.ErrInvalidCost, "Finish: the actual cost is -1"},
		{work, actual(weir.Finish, "x", weir.ActualCosts(bytes)), weir.ErrInvalidCost, "Policy.Units must declare it"},
		{work, do(weir.Finish, 0, long), weir.ErrInvalidLease, "129 bytes"},

		{units, named(map[string]int64{"bytes": 1, "later": 1}), weir.ErrInvalidCost, `rule "rows" counts the unit "rows", which Request.Costs does not name: name it with CostsOf, even if its amount is 0, and call Decide or another method that takes a Request`},
		{units, named(map[string]int64{"bytes": 1, "rows": 1, "byte": 1}), weir.ErrInvalidCost, `Request.Costs names the unit "byte": Policy.Units must declare it: it has "rows", "later", "bytes"`},
		{units, named(map[string]int64{"bytes": -1, "rows": 1}), weir.ErrInvalidCost, `Request.Costs has -1 of the unit "bytes": it must be 0 or more`},
		{units, named(map[string]int64{"1": 1, "2": 1, "3": 1, "4": 1, "5": 1, "6": 1, "7": 1, "8": 1, "9": 1}), weir.ErrInvalidCost, "Request.Costs names 9 units: it must name at most 8"},
		{units, named(map[string]int64{"": 1, "bytes": 1}), weir.ErrInvalidCost, `Request.Costs names a unit "": each unit needs a name`},

		{paused, weir.Request{Op: weir.Pause, ID: "x"}, nil, "the time is 0s: it must be positive"},
		{paused, weir.Request{Op: weir.Pause, ID: "x", For: -second}, nil, "the time is -1s: it must be positive"},
		{paused, weir.Request{Op: weir.Pause, ID: "x", For: weir.Never}, nil, "at most 1250999h53m"},
		{paused, do(weir.Resume, 0, ""), weir.ErrInvalidKey, "Resume: Request.ID is empty"},
		{paused, do(weir.Resume, 0, long), weir.ErrInvalidKey, "at most 128"},
		{one, weir.Request{Op: weir.Pause, ID: "x", For: second}, weir.ErrUnsupported, "Pause: no rule pauses keys: add a rule with the Algorithm algorithm.Pause{}"},
		{pauses, weir.Request{Op: weir.Pause, ID: "x", For: second}, weir.ErrInvalidRule, "Pause: 2 rules pause keys: select one with Limiter.Only"},
		{pauses, do(weir.Resume, 0, "x"), weir.ErrInvalidRule, "Resume: 2 rules"},
	} {
		if tt.r.Key == (weir.Key{}) {
			tt.r.Key = weir.KeyOf([]string{"u", "u", "u"}[:len(tt.of.Segments())]...)
		}
		res, err := tt.of.Decide(t.Context(), tt.r, nil)
		wantError(t, err, tt.want, tt.says)
		if got := tt.of.Check(tt.r, nil); res != (weir.Result{}) || got == nil || got.Error() != err.Error() {
			t.Errorf("got %+v, and Check returns %v, want %v", res, got, err)
		}
	}
	ctx := t.Context()
	u := weir.Request{Key: weir.KeyOf("u")}
	for _, tt := range []struct {
		call func() error
		want error
		says string
	}{
		{func() error { _, err := one.Allow(ctx); return err }, weir.ErrInvalidKey, `the key has 0 segments: it must have 1: "key"`},
		{func() error { _, err := two.Decide(ctx, u, make([]weir.Result, 1)); return err }, nil, "each has 1 elements: it must have one for each of the 2 rules"},
		{func() error { return two.Check(u, make([]weir.Result, 1)) }, nil, "each has 1 elements"},
		{func() error { _, err := one.AllowN(ctx, 0, "u"); return err }, weir.ErrInvalidCost, "AllowN: the cost is 0: it must be at least 1"},
		{func() error { _, err := one.TakeUpTo(ctx, -1, "u"); return err }, weir.ErrInvalidCost, "TakeUpTo: the cost is -1"},
		{func() error { _, err := one.Force(ctx, 0, "u"); return err }, weir.ErrInvalidCost, "Force: the cost is 0"},
		{func() error { _, err := one.WaitN(ctx, 0, "u"); return err }, weir.ErrInvalidCost, "WaitN: the cost is 0"},
		{func() error { _, err := one.Entries(ctx, "u"); return err }, weir.ErrUnsupported, "Entries: no rule keeps metadata: a rule must be an algorithm.MetadataWindow"},
		{func() error { _, err := lists.Entries(ctx, "u"); return err }, weir.ErrInvalidRule, "Entries: 2 rules keep metadata: select one with Limiter.Only"},
		{func() error { _, err := list.Entries(ctx); return err }, weir.ErrInvalidKey, "0 segments"},
		{func() error { _, err := one.StoreKeys(weir.KeyOf("u", "v")); return err }, weir.ErrInvalidKey, "the key has 2 segments"},
		{func() error { _, err := one.TryAcquire(ctx, u); return err }, weir.ErrUnsupported, "no rule holds leases: a rule must be an algorithm.Concurrency"},
		{func() error { _, err := leases.TryAcquire(ctx, weir.Request{}); return err }, weir.ErrInvalidKey, "0 segments"},
		{func() error { _, err := work.TryAcquire(ctx, weir.Request{Op: weir.TakeUpTo}); return err }, weir.ErrUnsupported, "Request.Op is TakeUpTo: it must be Consume"},
		{func() error {
			_, err := one.Reserve(ctx, weir.Request{Key: u.Key, Op: weir.Peek, MaxWait: 1})
			return err
		}, weir.ErrUnsupported, "Reserve: Request.Op is Peek"},
		{func() error { _, err := w.Wait(ctx, "u"); return err }, errors.ErrUnsupported, "cannot be reserved"},
		{func() error { _, err := units.Allow(ctx, "u"); return err }, weir.ErrInvalidCost, "which Request.Costs does not name"},
		{func() error { return units.DoMany(ctx, []weir.Request{u})[0].Err }, weir.ErrInvalidCost, "which Request.Costs does not name"},
		{func() error { _, err := paused.Pause(ctx, second, "u", "v"); return err }, weir.ErrInvalidKey, "the key has 2 segments"},
	} {
		wantError(t, tt.call(), tt.want, tt.says)
	}
	if n := st.calls(); n > 0 {
		t.Errorf("the store was called %d times", n)
	}
	for _, r := range []weir.Request{u, {Key: u.Key, Cost: 1 << 60}, {Key: u.Key, Op: weir.Refund, ID: "x"}} { // a denial is no misuse
		if err := two.Check(r, make([]weir.Result, 3)); err != nil {
			t.Errorf("%+v: Check returns %v", r, err)
		}
	}
}

// Zero values and nil pointers return errors that say what to call, or nothing.
func TestZeroValues(t *testing.T) {
	t.Parallel()
	ctx, st := t.Context(), memory.New(nil)
	u := weir.Request{Key: weir.KeyOf("u"), MaxWait: 1}
	for _, l := range []*weir.Limiter{nil, {}} {
		for name, call := range map[string]func() error{
			"Valid":     l.Valid,
			"Allow":     func() error { _, err := l.Allow(ctx, "u"); return err },
			"Decide":    func() error { _, err := l.Decide(ctx, u, nil); return err },
			"DoMany":    func() error { return l.DoMany(ctx, make([]weir.Request, 1))[0].Err },
			"Pause":     func() error { _, err := l.Pause(ctx, 1, "u"); return err },
			"Entries":   func() error { _, err := l.Entries(ctx, "u"); return err },
			"Wait":      func() error { _, err := l.Wait(ctx, "u"); return err },
			"Reserve":   func() error { _, err := l.Reserve(ctx, u); return err },
			"Acquire":   func() error { _, err := l.Acquire(ctx, u); return err },
			"With":      func() error { _, err := l.With(); return err },
			"Only":      func() error { _, err := l.Only(""); return err },
			"Wrap":      func() error { _, err := l.Wrap(weirtest.Pass); return err },
			"Share":     func() error { _, err := l.Share(2, st); return err },
			"Check":     func() error { return l.Check(u, nil) },
			"StoreKeys": func() error { _, err := l.StoreKeys(u.Key); return err },
			"Ready":     func() error { return l.Ready(ctx) },
		} {
			t.Run(name, func(t *testing.T) { wantError(t, call(), nil, "make one with New or NewPolicy") })
		}
		_, parsed := l.ParseStoreKey("weir:t:{u}:g2")
		if l.Rules() != nil || l.Units() != nil || l.Store() != nil || l.Digest() != [32]byte{} || l.Bare() != l || l.Name() != "" || l.Segments() != nil || l.StorePrefix() != "" || l.LeaseTime() != weir.Never || parsed {
			t.Error("a zero Limiter has something")
		}
	}
	for _, r := range []*weir.Reservation{nil, {}} {
		_, err := r.Cancel(ctx)
		wantError(t, err, nil, "Limiter.Reserve")
		wantError(t, r.Wait(ctx), nil, "Limiter.Reserve")
	}
	for _, lease := range []*weir.Lease{nil, {}} {
		_, err := lease.Release(ctx)
		wantError(t, err, nil, "Acquire")
		_, err = lease.Finish(ctx, weir.Actual{})
		wantError(t, err, nil, "Acquire")
		wantError(t, lease.Renew(ctx), nil, "Acquire")
		lease.KeepAlive(ctx, func(err error) { wantError(t, err, nil, "Acquire") })
		lease.KeepAlive(ctx, nil)
		if lease.ID() != "" {
			t.Errorf("ID is %q", lease.ID())
		}
	}
	for _, err := range []error{weir.ErrInvalidRule, weir.ErrInvalidKey, weir.ErrUnsupported, weir.ErrDenied, weir.ErrLeaseLost} {
		wantError(t, err, nil, "")
	}
	l := weirtest.New(t, st, &weirtest.PerSecond) // a pointer to an algorithm
	if err := l.Valid(); err != nil || !weirtest.Left(t, l, "u").Allowed {
		t.Errorf("Valid: %v", err)
	}
	if l, err := weir.New("t", st, algorithm.GCRA{}, nil); l != nil || !errors.Is(err, weir.ErrInvalidLimit) {
		t.Errorf("a zero algorithm: got %v, %v", l, err)
	}
}
