package weir_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// With and Only reject unknown rules, other algorithms and other segments.
func TestWithRejects(t *testing.T) {
	t.Parallel()
	p := by(2, "0", "all")
	p.Units = []string{"u", "v"}
	p.Rules[1].Algorithm = weirtest.Window(5, time.Minute)
	p.Rules = append(p.Rules, weir.Rule{Name: "c", By: []string{"0"}, Unit: "u", Algorithm: weirtest.PerSecond}, shadow(costing(window("next", 9), 5)))
	l, lone := weirtest.NewPolicy(t, memory.New(nil), p), weirtest.New(t, memory.New(nil), weirtest.PerSecond)
	a := weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}
	for _, tt := range []struct {
		of    *weir.Limiter
		rules []weir.Rule
		want  error
		says  string
	}{
		{l, []weir.Rule{{Name: "x", Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `With: rule 0 is named "x": the rules of the limiter are "a", "b", "c", "next"`},
		{l, []weir.Rule{{Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `rule 0 is named ""`},
		{l, []weir.Rule{a, a}, weir.ErrInvalidRule, `rule "a" is given twice`},
		{l, []weir.Rule{{Name: "a"}}, weir.ErrInvalidRule, `rule "a": its Algorithm is nil`},
		{l, []weir.Rule{{Name: "b", Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `rule "b": its Algorithm is a gcra: it must be a fixedwindow`},
		{l, []weir.Rule{{Name: "next", Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `rule "next": its Algorithm is a gcra: it must be a fixedwindow`},
		{l, []weir.Rule{window("next", 4)}, weir.ErrInvalidRule, "Cost is 5: it must be at most 4"},
		{l, []weir.Rule{{Name: "a", By: []string{"0", "1"}, Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `By is ["0" "1"], and differs from the policy`},
		{l, []weir.Rule{{Name: "a", By: []string{"9"}, Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `"9"`},
		{l, []weir.Rule{{Name: "a", Algorithm: algorithm.GCRA{}}}, weir.ErrInvalidLimit, `rule "a": `},
		{l, []weir.Rule{{Name: "a", Unit: "v", Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `With: rule "a": Unit is "v", and differs from the policy, which has "": leave it empty`},
		{l, []weir.Rule{{Name: "c", Unit: "v", Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `With: rule "c": Unit is "v", and differs from the policy, which has "u"`},
		{lone, []weir.Rule{{Algorithm: weirtest.PerSecond, Cost: 6}}, weir.ErrInvalidRule, `rule "gcra": Cost is 6`},
		{weirtest.Only(t, l, "a"), []weir.Rule{{Name: "b", Algorithm: weirtest.PerSecond}}, weir.ErrInvalidRule, `the rules of the limiter are "a"`},
	} {
		other, err := tt.of.With(tt.rules...)
		if other != nil {
			t.Errorf("got a limiter with %v", err)
		}
		wantError(t, err, tt.want, tt.says)
	}
	for _, name := range []string{"x", ""} {
		_, err := l.Only(name)
		wantError(t, err, weir.ErrInvalidRule, fmt.Sprintf(`Only: the limiter has no rule %q: its rules are "a", "b", "c", "next"`, name))
	}
}

// With finds a rule by its name. If there is only one rule, its name can also be empty or
// the name of its algorithm. The segments of By can have any order, and the unit be empty. A rule
// keeps its Cost if the new one is 0: a forgotten Cost does not allow more.
func TestWithNames(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lone, named := weirtest.New(t, st, weirtest.PerSecond), weirtest.NewPolicy(t, st, by(2, "01"))
	costly := weirtest.NewPolicy(t, st, weirtest.Rules(window("calls", 10), costing(weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}, 2)))
	units := weirtest.NewPolicy(t, st, weir.Policy{Units: []string{"u", "v"}, Rules: []weir.Rule{{Name: "a", Unit: "v", Algorithm: weirtest.PerSecond}, shadow(weir.Rule{Name: "b", Unit: "u", Algorithm: weirtest.PerSecond})}})
	bigger := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 50}
	for i, tt := range []struct {
		l    *weir.Limiter
		want string // of the rule with the limit of 50
	}{
		{weirtest.With(t, lone, weir.Rule{Algorithm: bigger}), "gcra 0 "},
		{weirtest.With(t, lone, weir.Rule{Name: "gcra", Algorithm: bigger}), "gcra 0 "},
		{weirtest.With(t, named, weir.Rule{Name: "a", By: []string{"1", "0"}, Algorithm: bigger}), "a 0 "},
		{weirtest.With(t, weirtest.Only(t, named, ""), weir.Rule{Algorithm: bigger}), "a 0 "},
		{weirtest.With(t, weirtest.With(t, named), weir.Rule{Algorithm: bigger}), "a 0 "},
		{weirtest.With(t, costly, weir.Rule{Name: "a", Algorithm: bigger}), "a 2 "},
		{weirtest.With(t, costly, weir.Rule{Name: "a", Cost: 3, Algorithm: bigger}), "a 3 "},
		{weirtest.With(t, units, weir.Rule{Name: "a", Algorithm: bigger}), "a 0 v"},
		{weirtest.With(t, units, weir.Rule{Name: "a", Unit: "v", Algorithm: bigger}), "a 0 v"},
		{weirtest.With(t, units, weir.Rule{Name: "b", Algorithm: bigger}), "b 0 u"},
		{weirtest.Only(t, weirtest.With(t, units, weir.Rule{Name: "b", Algorithm: bigger}), "b"), "b 0 u"},
	} {
		got := ""
		for _, r := range tt.l.Rules() {
			if r.Limit == 50 {
				got += fmt.Sprint(r.Name, " ", r.Cost, " ", r.Unit)
			}
		}
		if got != tt.want {
			t.Errorf("limiter %d: got %q, want %q", i, got, tt.want)
		}
	}
}

// A plan is a limiter on the same keys, so every method uses the limits of the plan.
func TestWith(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	hourly := algorithm.Concurrency{Limit: 5, Lease: time.Hour}
	free := weirtest.NewPolicy(t, st, weirtest.Rules(window("rate", 3), weir.Rule{Name: "jobs", Algorithm: oneJob}, shadow(window("next", 2))))
	pro := weirtest.With(t, free, window("rate", 5), weir.Rule{Name: "jobs", Algorithm: hourly}, window("next", 9))
	if free.LeaseTime() != time.Minute || pro.LeaseTime() != time.Hour {
		t.Errorf("the lease times are %v and %v", free.LeaseTime(), pro.LeaseTime())
	}
	lease, err := pro.TryAcquire(t.Context(), keyU)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.Advance(40 * time.Minute)
		if err := lease.Renew(t.Context()); err != nil {
			t.Errorf("Renew within the lease of the plan: %v", err)
		}
	}
	for i := range 4 {
		if res := weirtest.Allow(t, pro, weir.Request{Key: keyU.Key, ID: weirtest.Number(i)}); res.Shadow != nil {
			t.Errorf("got %+v", res)
		}
	}
	if pro, free := leftOf(t, pro, keyU.Key), leftOf(t, free, keyU.Key); pro != "1 0 5" || free != "0 0 0" {
		t.Errorf("%s are left of the plan, and %s of the limiter", pro, free)
	}
	if many := pro.DoMany(t.Context(), []weir.Request{{Key: keyU.Key, Op: weir.Peek}}); many[0].Err != nil || many[0].Result.Limit != 5 {
		t.Errorf("DoMany: got %+v", many)
	}
	if err := pro.Reset(t.Context(), "u"); err != nil || len(keysIn(st)) > 0 {
		t.Errorf("Reset: %v, and the store has %q", err, keysIn(st))
	}
}

// The limiter of Only decides by one rule, and takes the same keys, even if the rule has segments
// after the braces.
func TestOnly(t *testing.T) {
	t.Parallel()
	p := by(2, "0", "all")
	p.Rules[1].Algorithm = weirtest.Window(2, time.Minute)
	l := weirtest.NewPolicy(t, memory.New(nil), p)
	first, second := weirtest.Only(t, l, "a"), weirtest.Only(t, l, "b")
	for _, key := range []weir.Key{weir.KeyOf("x", "y"), weir.KeyOf("x", "y"), weir.KeyOf("x", "z")} {
		weirtest.Allow(t, second, weir.Request{Key: key})
	}
	if y, z := leftOf(t, l, weir.KeyOf("x", "y")), leftOf(t, l, weir.KeyOf("x", "z")); y != "5 0" || z != "5 1" || weirtest.Left(t, first, "x", "y").Rule != "a" {
		t.Errorf("%s and %s left", y, z)
	}
	if _, err := first.Allow(t.Context(), "x"); !errors.Is(err, weir.ErrInvalidKey) {
		t.Errorf("a key of one segment: %v, want ErrInvalidKey", err)
	}
}

// Reset clears the rules identified by the full key. Only(…).Reset clears one rule.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		policy weir.Policy
		only   string
		key    []string
		gone   []string // the keys that Reset deletes, of the keys of x y z and x y w
	}{
		{by(3, "all"), "", []string{"x", "y", "w"}, []string{"weir:t:{x:y:w}:a.g2"}},
		{by(3, "all", "all"), "", []string{"x", "y", "z"}, []string{"weir:t:{x:y:z}:a.g2", "weir:t:{x:y:z}:b.g2"}},
		{by(3, "0", "01", "012"), "", []string{"x", "y", "z"}, []string{"weir:t:{x}:c.g2:y:z"}},
		{by(3, "0", "01", "all"), "a", []string{"x", "any", "any"}, []string{"weir:t:{x}:a.g2"}},
		{by(3, "0", "01", "all"), "c", []string{"x", "y", "z"}, []string{"weir:t:{x}:c.g2:y:z"}},
	} {
		st := memory.New(nil)
		l := weirtest.NewPolicy(t, st, tt.policy)
		for _, last := range []string{"z", "w"} {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("x", "y", last)})
		}
		before := keysIn(st)
		if tt.only != "" {
			l = weirtest.Only(t, l, tt.only)
		}
		if err := l.Reset(t.Context(), tt.key...); err != nil {
			t.Fatal(err)
		}
		gone := slices.DeleteFunc(before, func(key string) bool { return slices.Contains(keysIn(st), key) })
		if !slices.Equal(gone, tt.gone) {
			t.Errorf("Reset of %q deleted %q, want %q", tt.key, gone, tt.gone)
		}
	}
}

// Share divides each limit over another store, with the same keys, and without wrappers
// and shadow rules. The answers of shares are compared with those of whole limits in
// package outage.
func TestShare(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st, other := weirtest.NewStore(c), weirtest.NewStore(c)
	l := weirtest.NewPolicy(t, st, weir.Policy{Units: []string{"u"}, Rules: []weir.Rule{
		window("a", 10), costing(weir.Rule{Name: "b", Algorithm: algorithm.SlidingLog{Limit: 20, Window: time.Hour}}, 5),
		{Name: "u", Unit: "u", Algorithm: weirtest.Window(100, time.Hour)}, pauseRule, shadow(rateRule),
	}})
	r := weir.Request{Key: keyU.Key, Cost: 2, Costs: weir.CostsOf(map[string]int64{"u": 20})}
	weirtest.Allow(t, l, r)
	pause(t, l, time.Hour, "u") // of which a share does not know
	share, err := weirtest.Wrap(t, l, deny).Share(3, other)
	if err != nil {
		t.Fatal(err)
	}
	if got := answerOf(r, weirtest.Decide(t, share, r), nil); got != "2: a 1 of 3, full in 1h0m0s" || leftOf(t, share, keyU.Key) != "1 1 13 open" {
		t.Errorf("got %s, and %s left", got, leftOf(t, share, keyU.Key))
	}
	if res := weirtest.Decide(t, share, r); res.Allowed {
		t.Errorf("got %+v, want it denied", res)
	}
	keys := []string{"weir:t:{u}:a.f2", "weir:t:{u}:b.l3", "weir:t:{u}:u.f2"}
	if got := keysIn(other); !slices.Equal(got, keys) || share.Store() != store.Store(other) || len(share.Rules()) != 4 {
		t.Errorf("the share has %q and %+v", got, share.Rules())
	}
	for n, says := range map[int]string{
		0:  "Share: the number of processes is 0: it must be at least 1",
		5:  `rule "b": its limit is 20, and the share of each of 5 processes is less than its Cost`,
		11: `rule "a": its limit is 10, and the share of each of 11 processes is less than one token`,
	} {
		got, err := l.Share(n, other)
		if wantError(t, err, weir.ErrInvalidRule, says); got != nil {
			t.Errorf("%d: got a limiter", n)
		}
	}
	_, err = l.Share(2, nil)
	wantError(t, err, nil, "store is nil")
	_, err = l.Share(2, memory.New(&memory.Options{MaxKeys: -1}))
	wantError(t, err, nil, "MaxKeys is -1")
	_, err = weirtest.New(t, st, weirtest.Capped(algorithm.SlidingLog{Limit: 3000, Window: time.Minute}, 1000)).Share(2, other)
	wantError(t, err, weir.ErrUnsupported, "can consume at most 1000 at once, and its algorithm has no method Divide")
	_, err = weirtest.New(t, st, fake{limit: must(oneJob.NewLimit())}).Share(1, other)
	if err != nil {
		t.Errorf("one process: %v", err)
	}
	two := algorithm.Concurrency{Limit: 2, Lease: time.Minute}
	_, err = weirtest.New(t, st, fake{limit: must(two.NewLimit())}).Share(2, other)
	wantError(t, err, weir.ErrUnsupported, "a concurrency holds leases, and its algorithm has no method Divide")
	_, err = weirtest.New(t, st, hasty{algorithm.SlidingLog{Limit: 20, Window: time.Hour}}).Share(2, st)
	wantError(t, err, weir.ErrUnsupported, "Divide of its weir_test.hasty returns a slidinglog with the limit 10: it must return a slidinglog with a limit of at most 5")
}

func must(l *contract.Limit, err error) *contract.Limit {
	if err != nil {
		panic(err)
	}
	return l
}

// A hasty algorithm has the method Divide of the algorithm that it embeds, which does not
// know its lower limit.
type hasty struct{ algorithm.SlidingLog }

func (h hasty) NewLimit() (*contract.Limit, error) {
	h.Limit /= 2
	return h.SlidingLog.NewLimit()
}

// ShareFloor gives each of many processes one request of a small limit, and no more than
// Share of a large limit. A share cannot be divided again, and cannot get other limits: its tokens
// are parts of the whole limit.
func TestShareFloor(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	whole := weirtest.NewPolicy(t, st, weirtest.Rules(window("small", 3), costing(window("costly", 19), 5), window("large", 100)))
	for n, want := range map[int]string{1: "3 19 100", 3: "1 6 33", 20: "1 6 5", 1 << 30: "1 6 1"} {
		share, err := whole.ShareFloor(n, st)
		if err != nil {
			t.Fatal(err)
		}
		if got := leftOf(t, share, weir.KeyOf("new")); got != want {
			t.Errorf("%d processes: got limits of %s, want %s", n, got, want)
		}
		for _, l := range []*weir.Limiter{share, weirtest.Only(t, share, "large")} {
			_, err = l.Share(2, st)
			wantError(t, err, weir.ErrUnsupported, "Share: the limiter is a share already")
			_, err = l.With(window("large", 7))
			wantError(t, err, weir.ErrUnsupported, "With: the limiter is a share: call With on the whole limiter, and then Share")
		}
	}
	_, err := whole.ShareFloor(0, st)
	wantError(t, err, weir.ErrInvalidRule, "Share: the number of processes is 0")
}
