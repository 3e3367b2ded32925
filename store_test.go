package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Every decision makes exactly one call of the store, and a pause touches only its own key.
func TestOneCall(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: memory.New(nil)}
	l := weirtest.NewPolicy(t, st, weirtest.Rules(
		minute("a", 60), window("b", 50), weir.Rule{Name: "c", Algorithm: algorithm.SlidingLog{Limit: 50, Window: time.Minute}}, pauseRule, shadow(window("d", 50)),
	))
	bare := weirtest.NewPolicy(t, st, weirtest.Rules(minute("a", 60), window("b", 50)))
	for _, tt := range []struct {
		l    *weir.Limiter
		r    weir.Request
		keys int // of the last call
	}{
		{bare, ask(1, ""), 2}, {bare, do(weir.Peek, 1, ""), 2}, {bare, do(weir.TakeUpTo, 5, "y"), 4},
		{bare, ask(1, "x"), 4}, {bare, settle(2, "x"), 4}, {bare, do(weir.Refund, 0, "x"), 4}, {bare, weir.Request{Op: weir.Reset}, 2},
		{l, weir.Request{Op: weir.Pause, ID: "p", For: time.Hour}, 1}, {l, do(weir.Resume, 0, "p"), 1},
	} {
		st.evals = 0
		tt.r.Key = keyU.Key
		if weirtest.Allow(t, tt.l, tt.r); st.evals != 1 || st.mgets+st.times != 0 || len(st.keys) != tt.keys {
			t.Errorf("%v: %d calls of the store, the last with %q, want one with %d keys", tt.r.Op, st.calls(), st.keys, tt.keys)
		}
	}
}

// Decisions use Options.Clock. A time out of range is an error.
func TestOptionsClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at   time.Time
		good bool
	}{
		{time.UnixMicro(1), true}, {time.UnixMicro(1<<52 - 1), true},
		{time.Time{}, false}, {time.UnixMicro(0), false}, {time.UnixMicro(1 << 52), false},
	} {
		st := &recorder{Store: memory.New(nil)}
		l, err := weir.New("t", st, metaRule.Algorithm, &weir.Options{Clock: func() time.Time { return tt.at }})
		if err != nil {
			t.Fatal(err)
		}
		res, err := l.AllowN(t.Context(), 5, "u")
		if (err == nil) != tt.good || res.Allowed != tt.good || tt.good && res.ResetAfter != time.Hour {
			t.Errorf("%v: got %+v, %v, want it to work: %v", tt.at, res, err, tt.good)
		}
		_, err = l.Entries(t.Context(), "u")
		many := l.DoMany(t.Context(), []weir.Request{{Key: keyU.Key, Op: weir.Peek}})
		if (err == nil) != tt.good || (many[0].Err == nil) != tt.good {
			t.Errorf("%v: Entries and DoMany: %v, %v, want them to work: %v", tt.at, err, many[0].Err, tt.good)
		}
		if st.times > 0 || !tt.good && st.calls() > 0 {
			t.Errorf("%v: the store was called", tt.at)
		}
	}
}

// A liar is a store that returns the reply, the values and the error of a test.
type liar struct {
	reply  []store.Value
	values []store.Value
	err    error
}

func (l liar) Eval(_ context.Context, _ *store.Script, _ []string, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
	return append(reply, l.reply...), l.err
}

func (l liar) MGet(_ context.Context, _ []string, values []store.Value) ([]store.Value, error) {
	return append(values, l.values...), l.err
}

func (l liar) Time(context.Context) (time.Time, error) { return weirtest.Epoch, l.err }

func integers(n ...int64) []store.Value {
	values := make([]store.Value, len(n))
	for i := range n {
		values[i] = store.IntegerValue(n[i])
	}
	return values
}

// TestReply has what becomes of the reply to a script. One that no script makes is an error, and
// the request is not allowed. A server replies with one string, which holds all integers.
func TestReply(t *testing.T) {
	t.Parallel()
	now := weirtest.Epoch.UnixMicro()
	const least, most = -1 << 63, 1<<63 - 1
	head := fmt.Sprintf("%d %d", now/1e6, now%1e6)
	text := func(s string) []store.Value { return []store.Value{store.BulkValue(s)} }
	full := fmt.Sprint(now+1e6, " 5")
	for _, tt := range []struct {
		name  string
		reply []store.Value // for one FixedWindow of 5: allowed, now, edge, count
		want  string        // empty: an ErrScript
	}{
		{"of a server", text("1;" + head + ";f2 " + fmt.Sprint(now+1e6, " 3")), "1: fixedwindow 1 of 5, full in 1s"},
		{"a denial of a server", text("0;" + head + ";f2 " + full), "denied for 1s: fixedwindow 0 of 5, full in 1s"},
		{"of a store in Go", integers(1, now, now+1e6, 3), "1: fixedwindow 1 of 5, full in 1s"},
		{"nothing", nil, ""},
		{"yes, with a state that denies", integers(1, now, now+1, 5), ""},
		{"no, with a state that just allows", integers(0, now, now+1, 4), ""},
		{"neither yes nor no", integers(2, now, now+1, 5), ""},
		{"more than was asked for", integers(2, now, 0, 0), ""},
		{"the greatest numbers", integers(1, most, most, most), ""},
		{"a text with a state that denies", text("1;" + head + ";f2 " + full), ""},
		{"a text with a state that allows", text("0;" + head + ";"), ""},
	} {
		l := weirtest.New(t, liar{reply: tt.reply}, weirtest.Window(5, time.Hour))
		for _, op := range []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo} {
			r := weir.Request{Key: keyU.Key, Op: op}
			res, err := l.Decide(t.Context(), r, nil)
			switch got := answerOf(r, res, err); {
			case tt.want == "" && (!errors.Is(err, store.ErrScript) || res != (weir.Result{})), tt.want != "" && got != tt.want && op == weir.Consume:
				t.Errorf("%s, %v: got %s, want %q", tt.name, op, got, tt.want)
			}
		}
	}
	for name, reply := range map[string][]store.Value{"an integer": integers(1), "another tag": text("l2 0000000000000001"), "no metadata": text("m2 1 1")} {
		want := map[bool]error{true: store.ErrScript, false: store.ErrForeign}[name == "an integer"] // a text can be the list of the key
		if list, err := weirtest.New(t, liar{reply: reply}, metaRule.Algorithm).Entries(t.Context(), "u"); !errors.Is(err, want) || list != nil {
			t.Errorf("Entries of %s: got %+v, %v, want %v", name, list, err, want)
		}
	}
	for _, values := range [][]store.Value{nil, make([]store.Value, 1), make([]store.Value, 3)} {
		l := weirtest.New(t, liar{values: values}, weirtest.PerSecond)
		for i, a := range l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf("u"), Op: weir.Peek}, {Key: weir.KeyOf("v"), Op: weir.Peek}}) {
			if !errors.Is(a.Err, store.ErrScript) || a.Result != (weir.Result{}) {
				t.Errorf("%d values for 2 keys, answer %d: got %+v, want ErrScript", len(values), i, a)
			}
		}
	}
}

// An error of the store is returned with a zero Result.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for _, want := range []error{store.ErrUnavailable, store.ErrScript, store.ErrForeign, context.DeadlineExceeded, context.Canceled} {
		st := liar{reply: integers(1, weirtest.Epoch.UnixMicro(), 0, 0, 1), values: make([]store.Value, 1), err: fmt.Errorf("some store: %w", want)}
		l, list, jobs := weirtest.New(t, st, weirtest.PerSecond), weirtest.New(t, st, metaRule.Algorithm), weirtest.New(t, st, oneJob)
		ctx, u := t.Context(), keyU
		many := func(op weir.Op) (any, any, error) {
			a := l.DoMany(ctx, []weir.Request{{Key: u.Key, Op: op}})[0]
			return a.Result, weir.Result{}, a.Err
		}
		for name, call := range map[string]func() (any, any, error){
			"Allow":      func() (any, any, error) { r, err := l.Allow(ctx, "u"); return r, weir.Result{}, err },
			"peeks":      func() (any, any, error) { return many(weir.Peek) },
			"a batch":    func() (any, any, error) { return many(weir.Consume) },
			"Entries":    func() (any, any, error) { list, err := list.Entries(ctx, "u"); return len(list), 0, err },
			"Wait":       func() (any, any, error) { r, err := l.Wait(ctx, "u"); return r, weir.Result{}, err },
			"TryAcquire": func() (any, any, error) { r, err := jobs.TryAcquire(ctx, u); return r, (*weir.Lease)(nil), err },
		} {
			got, zero, err := call()
			if !errors.Is(err, want) || got != zero || want != store.ErrUnavailable && errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %+v, %v, want %v alone", name, got, err, want)
			}
		}
	}
}

// Ready runs the scripts of every algorithm, with keys of its own, and leaves no key.
func TestReady(t *testing.T) {
	t.Parallel()
	log := algorithm.SlidingLog{Limit: 3, Window: time.Hour}
	for _, p := range []weir.Policy{
		weirtest.Rules(rateRule), weirtest.Rules(metaRule), weirtest.Rules(jobsRule), weirtest.Rules(weir.Rule{Algorithm: log, Cost: 3}),
		weirtest.Rules(jobsRule, weir.Rule{Name: "b", Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Minute, Limit: 9}}}}, shadow(rateRule)),
		{Units: []string{"u", "v"}, Rules: []weir.Rule{{Name: "u", Unit: "u", Algorithm: weirtest.PerSecond}, {Name: "v", Unit: "v", Algorithm: log, Shadow: true}}},
		{Segments: []string{"tenant", "user", "token"}, Secret: []string{"token"}, Rules: []weir.Rule{
			{Name: "a", By: []string{"tenant"}, Algorithm: weirtest.PerSecond},
			{Name: "b", By: []string{"tenant", "token"}, Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerHour(1)}},
		}},
	} {
		mem := memory.New(nil)
		st := &recorder{Store: mem}
		if err := weirtest.Wrap(t, weirtest.NewPolicy(t, st, p), deny).Ready(t.Context()); err != nil || len(keysIn(mem)) > 0 {
			t.Errorf("%+v: %v, left %q", p, err, keysIn(mem))
		}
		asked := strings.Join(st.all, "\n")
		for _, r := range p.Rules {
			if !strings.Contains(asked, "}:"+r.Name) {
				t.Errorf("rule %q was not tried: %s", r.Name, asked)
			}
		}
		if len(st.all) != strings.Count(asked, "weir:t:{%ready:") {
			t.Errorf("asked for %s", asked)
		}
	}
}

// Each error of Ready is either unavailable, or lasts.
func TestReadyErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		is, want    error
		unavailable bool
	}{
		{store.ErrUnavailable, store.ErrUnavailable, true},
		{fmt.Errorf("%w: %w: set a password", store.ErrUnavailable, store.ErrMisconfigured), store.ErrMisconfigured, false},
		{store.ErrNoGoForm, store.ErrNoGoForm, false},
		{context.DeadlineExceeded, context.DeadlineExceeded, true},
	} {
		for fails := range 4 { // the call that fails
			backend := memory.New(nil)
			n := 0
			st := &weirtest.Hooked{Store: backend, Before: func(context.Context, *store.Script) error {
				if n++; n == fails+1 {
					return fmt.Errorf("x: %w", tt.is)
				}
				return nil
			}}
			err := weirtest.New(t, st, weirtest.PerSecond).Ready(t.Context())
			if !errors.Is(err, tt.want) || errors.Is(err, store.ErrUnavailable) != tt.unavailable || !strings.HasPrefix(err.Error(), "weir: Ready: ") {
				t.Errorf("call %d fails with %v: got %v", fails, tt.is, err)
			}
			if keys := keysIn(backend); len(keys) > 0 && fails < 3 {
				t.Errorf("call %d fails with %v: left %q", fails, tt.is, keys)
			}
		}
	}
}
