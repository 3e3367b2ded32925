package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/denycache"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/observe"
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

// An Observer sees what a shadow rule would have done under the limits of a plan, and a
// denycache.Cache does not remember it.
func TestWithShadow(t *testing.T) {
	t.Parallel()
	var outcomes []observe.Outcome
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(rateRule, shadow(window("next", 2))))
	l = weirtest.Wrap(t, l, observe.Observer(func(_ context.Context, d observe.Decision) { outcomes = append(outcomes, d.Outcome()) }).Wrap, denycache.New(nil).Wrap)
	for range 3 {
		weirtest.Allow(t, l, keyU)
	}
	more := weirtest.With(t, l, window("next", 4))
	for range 4 {
		if res := weirtest.Decide(t, more, keyU); !res.Allowed && res.Shadow != nil && len(outcomes) > 6 {
			t.Errorf("a remembered denial: got %+v", res)
		}
	}
	if want := []observe.Outcome{"allowed", "allowed", "shadow_denied", "allowed", "allowed", "denied", "denied"}; !slices.Equal(outcomes, want) {
		t.Errorf("got %q, want %q", outcomes, want)
	}
}

// A stricter limit holds from the next request on. What the earlier limit let a caller
// consume counts until the state ends by that limit or, after a Force under the new
// limit, by the new one.
func TestWithStricter(t *testing.T) {
	t.Parallel()
	bucket := func(capacity int64, refill algorithm.Rate) weir.Policy {
		return weirtest.Rules(weir.Rule{Name: "b", Algorithm: algorithm.TokenBucket{Capacity: capacity, Refill: refill}})
	}
	log := func(window time.Duration) weir.Policy {
		return weirtest.Rules(weir.Rule{Name: "l", Algorithm: algorithm.SlidingLog{Limit: 10, Window: window}})
	}
	buckets := []weir.Policy{bucket(100, algorithm.PerSecond(10)), bucket(3, algorithm.PerMinute(10))}
	logs := []weir.Policy{log(time.Minute), log(time.Hour)}
	play(t, []trace{
		{name: "TokenBucket", policies: buckets, steps: []step{
			{0, 0, ask(50, ""), "50", ""},
			{0, 1, ask(1, ""), "denied for 4m48s", ""},
			{7 * second, 1, ask(1, ""), "1", ""},
		}},
		{name: "TokenBucket, after a Force", policies: buckets, steps: []step{
			{0, 0, ask(50, ""), "50", ""},
			{0, 1, do(weir.Force, 1, ""), "1", ""},
			{0, 1, ask(1, ""), "denied for 4m54s", ""},
			{294*second - 1000, 1, ask(1, ""), "denied for 1µs", ""},
			{1000, 1, ask(1, ""), "1", ""},
		}},
		{name: "SlidingLog", policies: logs, steps: []step{
			{0, 0, ask(10, ""), "10", ""},
			{0, 1, ask(1, ""), "denied for 1h0m0s", ""},
			{time.Minute, 1, ask(1, ""), "1", ""},
		}},
		{name: "SlidingLog, after a Force", policies: logs, steps: []step{
			{0, 0, ask(10, ""), "10", ""},
			{0, 1, do(weir.Force, 1, ""), "1", ""},
			{time.Minute, 1, ask(1, ""), "denied for 59m0s", ""},
			{59 * time.Minute, 1, ask(1, ""), "1", ""},
		}},
	})
}

// The limiter of Only decides by one rule, and takes the same keys, even if the rule has segments
// after the braces.
func TestOnly(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	p := by(2, "0", "all")
	p.Rules[1].Algorithm = weirtest.Window(2, time.Minute)
	l := weirtest.NewPolicy(t, st, p)
	first, second := weirtest.Only(t, l, "a"), weirtest.Only(t, l, "b")
	u := weir.Request{Key: weir.KeyOf("x", "y")}
	for _, want := range []int64{1, 0} {
		if res := weirtest.Allow(t, second, u); res.Rule != "b" || res.Remaining != want {
			t.Errorf("got %+v, want %d left of b", res, want)
		}
	}
	weirtest.Allow(t, second, weir.Request{Key: weir.KeyOf("x", "z")})
	if res := weirtest.Left(t, l, "x", "y"); res.Allowed || res.Rule != "b" {
		t.Errorf("got %+v, want a denial by b", res)
	}
	if res := weirtest.Left(t, first, "x", "y"); res.Remaining != 5 || res.Rule != "a" {
		t.Errorf("got %+v, want all of a", res)
	}
	if _, err := first.Allow(t.Context(), "x"); !errors.Is(err, weir.ErrInvalidKey) {
		t.Errorf("a key of one segment: %v, want ErrInvalidKey", err)
	}
}

// Reset clears the rules identified by the full key. Only(…).Reset clears one rule. If a key holds
// a foreign value, no request changes any key.
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
		{"only the shared one", by(3, "0", "01", "all"), "a", []string{"x", "any", "any"}, nil, []string{"weir:t:{x}:a.g2"}},
		{"only the last", by(3, "0", "01", "all"), "c", []string{"x", "y", "z"}, nil, []string{"weir:t:{x}:c.g2:y:z"}},
		{"a foreign value", by(3, "all", "all"), "", []string{"f", "f", "f"}, store.ErrForeign, nil},
		{"only a foreign value", by(3, "all", "all"), "b", []string{"f", "f", "f"}, store.ErrForeign, nil},
		{"only beside a foreign value", by(3, "all", "all"), "a", []string{"f", "f", "f"}, nil, []string{"weir:t:{f:f:f}:a.g2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := memory.New(nil)
			l := weirtest.NewPolicy(t, st, tt.policy)
			for _, last := range []string{"z", "w"} {
				weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("x", "y", last)})
			}
			if tt.key[0] == "f" {
				weirtest.Plant(t, st, "weir:t:{f:f:f}:b.g2", store.Tag{'x', '1'}, 1)
				weirtest.Allow(t, weirtest.Only(t, l, "a"), weir.Request{Key: weir.KeyOf("f", "f", "f")})
				before := dump(t, st)
				for _, op := range []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo, weir.Force} {
					res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf(tt.key...), Op: op}, nil)
					if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"weir:t:{f:f:f}:b.g2"`) || res != (weir.Result{}) || !slices.Equal(before, dump(t, st)) {
						t.Errorf("%v: got %+v, %v, want an ErrForeign that names the key, and that nothing changes", op, res, err)
					}
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

// Entries lists the requests of one rule. If several rules keep metadata, the error asks
// for Limiter.Only.
func TestEntries(t *testing.T) {
	t.Parallel()
	other := metaRule
	other.Name = "other"
	for _, tt := range []struct {
		rules []weir.Rule
		only  string
		want  error
		says  string
	}{
		{[]weir.Rule{rateRule, metaRule}, "", nil, ""},
		{[]weir.Rule{rateRule, metaRule, other}, "list", nil, ""},
		{[]weir.Rule{metaRule, other}, "", weir.ErrInvalidRule, "Entries: 2 rules keep metadata: select one with Limiter.Only"},
		{[]weir.Rule{rateRule, metaRule}, "rate", weir.ErrUnsupported, "algorithm.MetadataWindow"},
	} {
		l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(tt.rules...))
		weirtest.Allow(t, l, weir.Request{Key: keyU.Key, Cost: 2, Metadata: "ann"})
		if tt.only != "" {
			l = weirtest.Only(t, l, tt.only)
		}
		list, err := l.Entries(t.Context(), "u")
		if tt.want != nil {
			wantError(t, err, tt.want, tt.says)
		} else if err != nil || !slices.Equal(list, []weir.Entry{{Cost: 2, Metadata: "ann"}}) {
			t.Errorf("got %+v, %v, want the entry of ann", list, err)
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
// Share of a large limit.
func TestShareFloor(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(window("small", 3), costing(window("costly", 19), 5), window("large", 100)))
	for n, want := range map[int]string{1: "3 19 100", 3: "1 6 33", 20: "1 6 5", 1 << 30: "1 6 1"} {
		share, err := l.ShareFloor(n, memory.New(nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := leftOf(t, share, keyU.Key); got != want {
			t.Errorf("%d processes: got limits of %s, want %s", n, got, want)
		}
		weirtest.Allow(t, share, keyU)
	}
	_, err := l.ShareFloor(0, memory.New(nil))
	wantError(t, err, weir.ErrInvalidRule, "Share: the number of processes is 0")
}

// A share cannot be divided again, and cannot get other limits: its tokens are parts of
// the whole limit.
func TestShareOfAShare(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		share, err := weirtest.New(t, memory.New(nil), weirtest.PerSecond).Share(n, memory.New(nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*weir.Limiter{share, weirtest.Only(t, share, "")} {
			_, err = l.Share(2, memory.New(nil))
			wantError(t, err, weir.ErrUnsupported, "Share: the limiter is a share already")
			_, err = l.With(weir.Rule{Algorithm: weirtest.PerSecond})
			wantError(t, err, weir.ErrUnsupported, "With: the limiter is a share: call With on the whole limiter, and then Share")
		}
	}
}
