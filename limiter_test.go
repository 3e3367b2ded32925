package weir_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/outage"
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

// A tracer is a wrapper that records its requests.
type tracer struct {
	name string
	next weir.Decider
	log  *[]string
}

func (tr tracer) Unwrap() weir.Decider { return tr.next }

func (tr tracer) Decide(ctx context.Context, r weir.Request, each []weir.Result) (weir.Result, error) {
	*tr.log = append(*tr.log, fmt.Sprint(tr.name, " ", r.Op))
	return tr.next.Decide(ctx, r, each)
}

// tracing returns a wrapper that makes a tracer.
func tracing(name string, log *[]string) weir.Wrapper {
	return weirtest.Around(func(next weir.Decider) tracer { return tracer{name, next, log} })
}

// Every method goes through all wrappers, in the documented order. The limiters of With
// and Only have the wrappers too. Bare leaves them out.
func TestWrap(t *testing.T) {
	t.Parallel()
	var log []string
	l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}))
	l = weirtest.Wrap(t, weirtest.Wrap(t, l, tracing("2", &log), tracing("3", &log)), tracing("1", &log))
	jobs := weirtest.Wrap(t, weirtest.New(t, memory.New(nil), oneJob), tracing("1", &log), tracing("2", &log), tracing("3", &log))
	ctx, u := t.Context(), keyU
	lease, err := jobs.Acquire(ctx, u)
	reserved, err2 := l.Reserve(ctx, weir.Request{Key: u.Key, MaxWait: time.Second})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	log = nil
	for _, tt := range []struct {
		ops  string
		call func() error
	}{
		{"Consume", func() error { _, err := l.Allow(ctx, "u"); return err }},
		{"Consume", func() error { _, err := l.AllowN(ctx, 1, "u"); return err }},
		{"Peek", func() error { _, err := l.Peek(ctx, "u"); return err }},
		{"TakeUpTo", func() error { _, err := l.TakeUpTo(ctx, 1, "u"); return err }},
		{"Force", func() error { _, err := l.Force(ctx, 1, "u"); return err }},
		{"Reset", func() error { return l.Reset(ctx, "u") }},
		{"Refund", func() error { _, err := l.Refund(ctx, weir.Request{Key: u.Key, ID: "x"}); return err }},
		{"Settle", func() error { _, err := l.Settle(ctx, weir.Request{Key: u.Key, ID: "x"}, 1); return err }},
		{"Finish", func() error { _, err := l.Finish(ctx, weir.Request{Key: u.Key, ID: "x"}, weir.Actual{}); return err }},
		{"Consume", func() error { _, err := l.Decide(ctx, u, nil); return err }},
		{"Consume", func() error { _, err := l.Wait(ctx, "u"); return err }},
		{"Refund", func() error { _, err := reserved.Cancel(ctx); return err }},
		{"Peek Consume", func() error {
			a := l.DoMany(ctx, []weir.Request{{Key: u.Key, Op: weir.Peek}, u})
			return errors.Join(a[0].Err, a[1].Err)
		}},
		{"Renew", func() error { return lease.Renew(ctx) }},
		{"Release", func() error { _, err := lease.Release(ctx); return err }},
		{"Consume", func() error { _, err := jobs.TryAcquire(ctx, u); return err }},
		{"Consume", func() error { _, err := weirtest.Only(t, l, "a").Allow(ctx, "u"); return err }},
		{"Consume", func() error { _, err := weirtest.With(t, l).Allow(ctx, "u"); return err }},
		{"", func() error { _, err := l.Bare().Allow(ctx, "u"); return err }},
	} {
		if err := tt.call(); err != nil {
			t.Errorf("%s: %v", tt.ops, err)
		}
		var want []string
		for op := range strings.FieldsSeq(tt.ops) {
			want = append(want, "1 "+op, "2 "+op, "3 "+op)
		}
		if !slices.Equal(log, want) {
			t.Errorf("got %q, want %q", log, want)
		}
		log = nil
	}
}

// A wrapper that is nil, returns nil or fails is an error of Wrap.
func TestWrapErrors(t *testing.T) {
	t.Parallel()
	own := errors.New("weir: an error of a wrapper")
	l := weirtest.New(t, memory.New(nil), weirtest.PerSecond)
	returns := func(err error) weir.Wrapper {
		return func(*weir.Limiter, weir.Decider) (weir.Decider, error) { return nil, err }
	}
	for _, tt := range []struct {
		w    weir.Wrapper
		want error
		says string
	}{{nil, nil, "given to Limiter.Wrap is nil"}, {returns(nil), nil, "Limiter.Wrap"}, {returns(own), own, ""}} {
		got, err := l.Wrap(weirtest.Pass, tt.w, weirtest.Pass)
		if wantError(t, err, tt.want, tt.says); got != nil {
			t.Errorf("%q: got a limiter", tt.says)
		}
	}
	weirtest.Allow(t, weirtest.Wrap(t, l), keyU)
}

// With and Only call each wrapper again, with a limiter that has their rules and no
// wrappers, and return its error.
func TestWrapAgain(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	l := weirtest.NewPolicy(t, st, weirtest.Rules(window("a", 5), window("b", 7)))
	own := errors.New("a limit of 9 does not suit")
	var given, log []string
	picky := func(lim *weir.Limiter, next weir.Decider) (weir.Decider, error) {
		text := ""
		for _, r := range lim.Rules() {
			text += fmt.Sprint(r.Name, r.Limit, " ")
		}
		if given = append(given, text); strings.Contains(text, "b9") != strings.Contains(text, "a") {
			return nil, own
		}
		if weirtest.Left(t, lim, "u"); len(log) > 0 || lim.Store() != store.Store(st) {
			t.Errorf("got a limiter in wrappers, or over %v", lim.Store())
		}
		return next, nil
	}
	if got, err := l.Wrap(picky); got != nil || err != own {
		t.Errorf("Wrap: got %v, %v, want the error of the wrapper", got, err)
	}
	l = weirtest.Wrap(t, weirtest.With(t, l, window("b", 9)), picky, tracing("1", &log))
	if got, err := l.With(window("b", 8)); got != nil || err != own {
		t.Errorf("With: got %v, %v, want the error of the wrapper", got, err)
	}
	if got, err := l.Only("b"); got != nil || err != own {
		t.Errorf("Only: got %v, %v, want the error of the wrapper", got, err)
	}
	weirtest.With(t, l, window("a", 6))
	if want := []string{"a5 b7 ", "a5 b9 ", "a5 b8 ", "b9 ", "a6 b9 "}; !slices.Equal(given, want) {
		t.Errorf("the wrapper was given %q, want %q", given, want)
	}
}

// A circle stands around itself.
type circle struct{ weir.Decider }

func (c *circle) Unwrap() weir.Decider { return c }

// Find looks into every Decider that has a method Unwrap, and into a Limiter.
func TestFind(t *testing.T) {
	t.Parallel()
	name := func(name string) weir.Wrapper { return tracing(name, new([]string)) }
	opaque := around(func(ctx context.Context, next weir.Decider, r weir.Request, each []weir.Result) (weir.Result, error) {
		return next.Decide(ctx, r, each)
	})
	l := weirtest.New(t, memory.New(nil), weirtest.PerSecond)
	inner := weirtest.Wrap(t, l, name("inner"))
	for _, tt := range []struct {
		in   []weir.Wrapper
		want string // the name of the first tracer; empty if none is found
		many bool   // the store's Decider, which is a ManyDecider, is found
	}{
		{nil, "", true},
		{[]weir.Wrapper{name("1")}, "1", true},
		{[]weir.Wrapper{weirtest.Pass, weirtest.Pass, name("1")}, "1", true},
		{[]weir.Wrapper{name("1"), opaque}, "1", false},
		{[]weir.Wrapper{opaque, name("1")}, "", false},
		{[]weir.Wrapper{func(*weir.Limiter, weir.Decider) (weir.Decider, error) { return inner, nil }}, "inner", true},
		{[]weir.Wrapper{func(*weir.Limiter, weir.Decider) (weir.Decider, error) { return new(circle), nil }}, "", false}, // it ends
	} {
		weirtest.Wrap(t, l, append([]weir.Wrapper{func(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) {
			found, ok := weir.Find[tracer](next)
			_, many := weir.Find[weir.ManyDecider](next)
			if found.name != tt.want || ok != (tt.want != "") || many != tt.many {
				t.Errorf("got %q, %v and a ManyDecider: %v, want %q and %v", found.name, ok, many, tt.want, tt.many)
			}
			return next, nil
		}}, tt.in...)...)
	}
	for _, d := range []weir.Decider{nil, (*weir.Limiter)(nil)} {
		if found, ok := weir.Find[tracer](d); ok {
			t.Errorf("found %+v in %v", found, d)
		}
	}
	if got, ok := weir.Find[*weir.Limiter](inner); !ok || got != inner {
		t.Errorf("got %v, %v, want the limiter itself", got, ok)
	}
}

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
