package weir_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

var (
	pauseRule = weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}
	rateRule  = weir.Rule{Name: "rate", Algorithm: weirtest.PerSecond}
)

// pause pauses key, and returns the ID of the pause.
func pause(t testing.TB, l *weir.Limiter, d time.Duration, key ...string) string {
	t.Helper()
	id, err := l.Pause(t.Context(), d, key...)
	if err != nil || id == "" {
		t.Fatalf("Pause of %q for %v: got %q, %v", key, d, id, err)
	}
	return id
}

// resume ends a pause, and fails the test unless it was running as want says.
func resume(t testing.TB, l *weir.Limiter, want bool, id string, key ...string) {
	t.Helper()
	if ok, err := l.Resume(t.Context(), id, key...); ok != want || err != nil {
		t.Errorf("Resume of %q: got %v, %v, want %v", key, ok, err, want)
	}
}

// Every limiter over the store denies a paused key until the pause ends or is resumed,
// and consumes nothing.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]weir.Rule{{pauseRule, rateRule}, {rateRule, pauseRule}} {
		c := weirtest.NewClock()
		st := weirtest.NewStore(c)
		l, other := weirtest.NewPolicy(t, st, weirtest.Rules(rules...)), weirtest.NewPolicy(t, st, weirtest.Rules(rules...))
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		pause(t, l, 10*time.Second, "u")
		c.Advance(time.Second)
		id := pause(t, other, 2*time.Second, "u") // a later, shorter one
		each := make([]weir.Result, 2)
		at := slices.IndexFunc(rules, func(r weir.Rule) bool { return r.Name == "pause" })
		for _, op := range []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo} {
			got := weirtest.Decide(t, other, weir.Request{Key: weir.KeyOf("u"), Op: op}, each...)
			want := weir.Result{Type: weir.PauseRule, Rule: "pause", Limit: algorithm.MaxTokens, Delay: weir.Never, RetryAfter: 9 * time.Second, ResetAfter: 9 * time.Second}
			if got != want || each[at] != want || !each[1-at].Allowed || each[1-at].Remaining != 5 {
				t.Errorf("%v: got %+v of %+v, want %+v", op, got, each, want)
			}
		}
		if a := l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf("u")}, {Key: weir.KeyOf("v")}}); a[0].Result.Rule != "pause" || !a[1].Result.Allowed {
			t.Errorf("DoMany: got %+v", a)
		}
		resume(t, l, true, id, "u")
		resume(t, l, false, id, "u")
		resume(t, l, false, id, "v")
		c.Advance(9*time.Second - time.Microsecond)
		if res := weirtest.Left(t, l, "u"); res.Allowed || res.RetryAfter != time.Microsecond {
			t.Errorf("1 µs before the end: got %+v", res)
		}
		c.Advance(time.Microsecond)
		if res := weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Cost: 2}); res.Rule != "rate" || res.Remaining != 3 || res.Granted != 2 {
			t.Errorf("after the end: got %+v", res)
		}
	}
}

// What a pause must not stop goes on: Force, Refund, Settle, Renew and Release.
func TestPauseIgnored(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	l := weirtest.NewPolicy(t, st, weirtest.Rules(pauseRule, rateRule))
	first, second := weir.Request{Key: weir.KeyOf("u"), ID: "1", Cost: 2}, weir.Request{Key: weir.KeyOf("u"), ID: "2", Cost: 3}
	weirtest.Allow(t, l, first)
	weirtest.Allow(t, l, second)
	pause(t, l, time.Hour, "u")
	if s, err := l.Settle(t.Context(), second, 1); err != nil || !s.Found || s.Cost != 1 {
		t.Errorf("Settle: %+v, %v", s, err)
	}
	if s, err := l.Refund(t.Context(), first); err != nil || !s.Found {
		t.Errorf("Refund: %+v, %v", s, err)
	}
	if res, err := l.Force(t.Context(), 9, "u"); err != nil || !res.Allowed || res.Granted != 9 || res.Rule != "rate" || res.Delay != 0 {
		t.Errorf("Force: %+v, %v", res, err)
	}
	if res := weirtest.Left(t, weirtest.Only(t, l, "rate"), "u"); res.RetryAfter != 6*time.Second { // 5 - 1 - 9, below 0
		t.Errorf("the rate: %+v", res)
	}

	l = weirtest.NewPolicy(t, st, weir.Policy{Name: "jobs", Rules: []weir.Rule{pauseRule, {Name: "jobs", Algorithm: oneJob}}})
	lease, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")})
	if err != nil {
		t.Fatal(err)
	}
	pause(t, l, time.Hour, "u")
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if held, err := lease.Release(t.Context()); !held || err != nil {
		t.Errorf("Release: %v, %v", held, err)
	}
	if _, err := l.TryAcquire(t.Context(), weir.Request{Key: weir.KeyOf("u")}); !errors.Is(err, weir.ErrDenied) || !strings.Contains(err.Error(), `rule "pause", which pauses the key: retry after 1h0m0s`) {
		t.Errorf("TryAcquire: %v, want it denied", err)
	}
}

// A repeated request has not gone ahead, so it is denied, however long it can wait. It
// still consumes nothing.
func TestPauseReplay(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(pauseRule, rateRule))
	r := weir.Request{Key: weir.KeyOf("u"), ID: "1", Cost: 5}
	weirtest.Allow(t, l, r)
	pause(t, l, 2*time.Second, "u")
	if res := weirtest.Decide(t, l, r); res.Allowed || !res.Replayed || res.Rule != "pause" || res.RetryAfter != 2*time.Second || res.Granted != 0 {
		t.Errorf("got %+v, want it denied for 2 s", res)
	}
	r.MaxWait = time.Hour
	if res := weirtest.Decide(t, l, r); res.Allowed || !res.Replayed || res.Rule != "pause" || res.RetryAfter != 2*time.Second || res.Granted != 0 {
		t.Errorf("with a MaxWait: got %+v, want it denied for 2 s", res)
	}
	c.Advance(2 * time.Second)
	r.MaxWait = 0
	if res := weirtest.Decide(t, l, r); !res.Allowed || !res.Replayed || res.Delay != 0 || res.Remaining != 2 {
		t.Errorf("got %+v, want it allowed", res)
	}
	r.Op = weir.Force
	r.ID = "2"
	weirtest.Allow(t, l, r)
	pause(t, l, 2*time.Second, "u")
	if res := weirtest.Decide(t, l, r); !res.Allowed || !res.Replayed || res.Delay != 0 || res.Granted != 5 {
		t.Errorf("a repeated Force: got %+v", res)
	}
}

// A process that gives the ID itself extends its own pause.
func TestPauseByID(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(pauseRule, rateRule))
	for _, d := range []time.Duration{3 * time.Second, time.Second, 5*time.Second + 1} { // rounded up
		weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Op: weir.Pause, ID: "mine", For: d})
	}
	if res := weirtest.Left(t, l, "u"); res.RetryAfter != 5*time.Second+time.Microsecond {
		t.Errorf("got %+v", res)
	}
	resume(t, l, true, "mine", "u")
	if res := weirtest.Left(t, l, "u"); !res.Allowed {
		t.Errorf("after Resume: got %+v", res)
	}
}

// Reset ends the pauses of a key, if the rule is identified by the full key.
func TestPauseReset(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	l := weirtest.NewPolicy(t, st, weirtest.Rules(pauseRule, rateRule))
	closed := func(want bool) {
		t.Helper()
		if res := weirtest.Left(t, l, "u"); res.Allowed == want {
			t.Errorf("got %+v, want it closed: %v", res, want)
		}
	}
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u"), Cost: 5})
	pause(t, l, time.Hour, "u")
	weirtest.Decide(t, weirtest.Only(t, l, "rate"), weir.Request{Key: weir.KeyOf("u"), Op: weir.Reset})
	closed(true)
	weirtest.Allow(t, weirtest.Only(t, l, "rate"), weir.Request{Key: weir.KeyOf("u"), Cost: 5})
	weirtest.Decide(t, weirtest.Only(t, l, "pause"), weir.Request{Key: weir.KeyOf("u"), Op: weir.Reset})
	if res := weirtest.Left(t, l, "u"); res.Allowed || res.Rule != "rate" {
		t.Errorf("got %+v, want only the pause reset", res)
	}
	pause(t, l, time.Hour, "u")
	weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("u"), Op: weir.Reset})
	closed(false)
	if keys := keysIn(st); len(keys) != 0 {
		t.Errorf("Reset left %q", keys)
	}
}

// By says what a pause closes. If several rules pause, Only selects one.
func TestPauseBy(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	tenant := weir.Rule{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.Pause{}}
	l := weirtest.NewPolicy(t, st, weir.Policy{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{tenant, rateRule}})
	id := pause(t, l, time.Hour, "acme", "ann")
	if res := weirtest.Left(t, l, "acme", "bob"); res.Allowed || res.Rule != "tenant" {
		t.Errorf("got %+v, want the tenant paused", res)
	}
	resume(t, l, true, id, "acme", "bob")
	l = weirtest.NewPolicy(t, st, weir.Policy{Segments: []string{"tenant", "user"}, Rules: []weir.Rule{tenant, pauseRule, rateRule}})
	_, err := l.Pause(t.Context(), time.Second, "acme", "ann")
	weirtest.WantError(t, err, weir.ErrInvalidRule, "weir", "Pause: 2 rules pause keys: select one with Limiter.Only")
	_, err = l.Resume(t.Context(), id, "acme", "ann")
	weirtest.WantError(t, err, weir.ErrInvalidRule, "weir", "Resume: 2 rules")
	pause(t, weirtest.Only(t, l, "pause"), time.Hour, "acme", "ann")
	for user, want := range map[string]bool{"ann": false, "bob": true} {
		if res := weirtest.Left(t, l, "acme", user); res.Allowed != want {
			t.Errorf("%s: got %+v", user, res)
		}
	}
}

// The rule never stands in the way of what the other rules support, and is shown only if
// it denies.
func TestPauseTransparent(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]weir.Rule{
		"rate":     rateRule,
		"full":     {Name: "full", Algorithm: algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: time.Hour}},
		"own cost": {Name: "own", Algorithm: weirtest.PerSecond, Cost: 2},
		"log":      {Name: "log", Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Minute}},
		"metadata": {Name: "meta", Algorithm: algorithm.MetadataWindow{Limit: 5, Window: time.Minute}},
		"leases":   {Name: "leases", Algorithm: oneJob},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			for _, rules := range [][]weir.Rule{{pauseRule, other}, {other, pauseRule}} {
				with := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(rules...))
				alone := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(other))
				for i, r := range []weir.Request{
					{Op: weir.Peek}, {}, {Cost: 2}, {Cost: 2}, {Cost: 9}, {Cost: algorithm.MaxTokens}, {ID: "a"}, {ID: "a"}, {ID: "a", Cost: 2}, {MaxWait: time.Minute},
					{Op: weir.TakeUpTo, Cost: 9}, {Op: weir.TakeUpTo, Cost: 9, ID: "b"}, {Op: weir.Force, Cost: 3}, {Op: weir.Force, Cost: 3, ID: "c"},
					{Op: weir.Settle, ID: "a", Actual: weir.ActualCost(3)}, {Op: weir.Refund, ID: "a"}, {Metadata: "x"}, {Op: weir.Renew, ID: "a"}, {Op: weir.Release, ID: "a"},
					{Op: weir.Reset}, {Op: weir.Peek, Cost: 2},
				} {
					r.Key = weir.KeyOf("u")
					want, wantErr := alone.Decide(t.Context(), r, nil)
					each := make([]weir.Result, 2)
					got, err := with.Decide(t.Context(), r, each)
					plain, _ := with.Decide(t.Context(), weir.Request{Key: r.Key, Op: weir.Peek, ID: r.ID}, nil)
					if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) || plain.Rule == "pause" {
						t.Errorf("%d, %+v:\ngot  %+v, %v\nwant %+v, %v", i, r, got, err, want, wantErr)
					}
					p := each[slices.IndexFunc(rules, func(r weir.Rule) bool { return r.Name == "pause" })]
					if p.Rule != "" && (!p.Allowed || p.Remaining != algorithm.MaxTokens || p.Delay != 0 || p.RetryAfter != 0 || p.ResetAfter != 0) {
						t.Errorf("%d, %+v: the pause answers %+v", i, r, p)
					}
				}
			}
		})
	}
}

// A decision of a memory store on slots answers as a script does.
func TestPauseOnSlots(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st, twin := weirtest.NewStore(c), weirtest.NewStore(c)
	for i, rules := range [][]weir.Rule{{pauseRule, rateRule}, {rateRule, pauseRule}, {rateRule, pauseRule, {Name: "hour", Algorithm: weirtest.Window(9, time.Hour), Cost: 1}}} {
		p := weirtest.Rules(rules...)
		p.Name = fmt.Sprint("t", i)
		onSlots, byScript := weirtest.NewPolicy(t, st, p), weirtest.NewPolicy(t, &weirtest.Hooked{Store: twin}, p)
		for n := range 60 {
			r := weir.Request{Key: weir.KeyOf("u"), Op: []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo}[n%3], Cost: int64(n % 4)}
			switch n % 20 {
			case 7:
				r = weir.Request{Key: r.Key, Op: weir.Pause, ID: "x", For: 2 * time.Second}
			case 15:
				r = weir.Request{Key: r.Key, Op: weir.Resume, ID: "x"}
			case 16:
				r.Op, r.MaxWait = weir.Consume, time.Second
				if len(rules) > 2 {
					r.MaxWait = 0
				}
			}
			a, b := make([]weir.Result, len(rules)), make([]weir.Result, len(rules))
			got, want := weirtest.Decide(t, onSlots, r, a...), weirtest.Decide(t, byScript, r, b...)
			if got != want || !slices.Equal(a, b) {
				t.Fatalf("%d, %+v:\ngot  %+v of %+v\nwant %+v of %+v", n, r, got, a, want, b)
			}
			c.Advance(300 * time.Millisecond)
		}
	}
}

// Mistakes are errors that say what is right.
func TestPauseMistakes(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	ctx := t.Context()
	l := weirtest.NewPolicy(t, st, weirtest.Rules(pauseRule, rateRule))
	for d, says := range map[time.Duration]string{0: "the time is 0s: it must be positive", -time.Second: "the time is -1s: it must be positive", weir.Never: "at most 1250999h53m"} {
		_, err := l.Pause(ctx, d, "u")
		weirtest.WantError(t, err, nil, "weir", says)
	}
	_, err := l.Pause(ctx, time.Second, "u", "v")
	weirtest.WantError(t, err, weir.ErrInvalidKey, "weir", "the key has 2 segments")
	_, err = l.Resume(ctx, "", "u")
	weirtest.WantError(t, err, weir.ErrInvalidKey, "weir", "Resume: Request.ID is empty")
	_, err = l.Resume(ctx, strings.Repeat("x", 129), "u")
	weirtest.WantError(t, err, weir.ErrInvalidKey, "weir", "at most 128")
	_, err = weirtest.NewPolicy(t, st, weirtest.Rules(rateRule)).Pause(ctx, time.Second, "u")
	weirtest.WantError(t, err, weir.ErrUnsupported, "weir", "Pause: no rule pauses keys: add a rule with the Algorithm algorithm.Pause{}")
	var none *weir.Limiter
	_, err = none.Pause(ctx, time.Second, "u")
	weirtest.WantError(t, err, nil, "weir", "the Limiter is nil")
	_, err = weir.NewPolicy(st, weir.Policy{Name: "t", Rules: []weir.Rule{rateRule, {Name: "pause", Algorithm: algorithm.Pause{}, Cost: 2}}}, nil)
	weirtest.WantError(t, err, weir.ErrInvalidRule, "weir", `rule "pause": Cost is 2: it must be 0`)
	_, err = weir.NewPolicy(st, weir.Policy{Name: "t", Rules: []weir.Rule{rateRule, {Name: "pause", Algorithm: algorithm.Pause{}, Shadow: true}}}, nil)
	weirtest.WantError(t, err, weir.ErrInvalidRule, "weir", "cannot be a shadow rule")
	if keys := keysIn(st); len(keys) != 0 {
		t.Errorf("mistakes wrote %q", keys)
	}
	if info := l.Rules()[0]; info.Type != weir.PauseRule || info.CostBy != weir.CostNothing || !info.Reserves || !info.Refunds || !info.Debt || info.Limit != algorithm.MaxTokens || l.Rules()[1].Type != weir.LimitRule {
		t.Errorf("Rules: %+v", info)
	}
}

// A pause is one call of the store, and touches only its own key. Shadow rules see none
// of it.
func TestPauseOneCall(t *testing.T) {
	t.Parallel()
	rec := &recorder{Store: memory.New(nil)}
	l := weirtest.NewPolicy(t, rec, weirtest.Rules(pauseRule, rateRule, weir.Rule{Name: "try", Algorithm: weirtest.PerSecond, Shadow: true}))
	id := pause(t, l, time.Hour, "u")
	if want := []string{"weir:t:{u}:pause.p1"}; rec.calls() != 1 || !slices.Equal(rec.keys, want) {
		t.Errorf("%d calls with %q, want 1 with %q", rec.calls(), rec.keys, want)
	}
	resume(t, l, true, id, "u")
	if rec.calls() != 2 || len(rec.keys) != 1 {
		t.Errorf("%d calls with %q, want 2", rec.calls(), rec.keys)
	}
}

// A share knows no pauses of the whole limiter.
func TestPauseShare(t *testing.T) {
	t.Parallel()
	l := weirtest.NewPolicy(t, memory.New(nil), weirtest.Rules(pauseRule, rateRule))
	pause(t, l, time.Hour, "u")
	share, err := l.Share(5, memory.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	if res := weirtest.Allow(t, share, weir.Request{Key: weir.KeyOf("u")}); res.Limit != 1 || res.Rule != "rate" {
		t.Errorf("got %+v", res)
	}
}

// A foreign value is an error that names the key, and is not overwritten.
func TestPauseForeign(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	l := weirtest.NewPolicy(t, st, weirtest.Rules(rateRule, pauseRule))
	const key = "weir:t:{u}:pause.p1"
	weirtest.Plant(t, st, key, store.Tag{'g', '1'}, 1, 2)
	before := dump(t, st)
	for _, op := range []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo, weir.Force, weir.Refund, weir.Settle, weir.Pause, weir.Resume, weir.Reset} {
		_, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: op, ID: "x", For: time.Second, Actual: weir.ActualCost(1)}, nil)
		if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), key) {
			t.Errorf("%v: got %v, want an ErrForeign that names the key", op, err)
		}
	}
	if after := dump(t, st); !slices.Equal(before, after) {
		t.Errorf("the store holds %q, want %q", after, before)
	}
}
