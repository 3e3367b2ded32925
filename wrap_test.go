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
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
)

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

// Every method goes through all wrappers, in the documented order. The limiters of With
// and Only have the wrappers too.
func TestWrap(t *testing.T) {
	t.Parallel()
	var log []string
	wrapper := func(name string) weir.Wrapper {
		return weirtest.Around(func(next weir.Decider) tracer { return tracer{name, next, &log} })
	}
	l := weirtest.NewPolicy(t, weirtest.NewStore(weirtest.NewClock()), weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.PerSecond}))
	l = weirtest.Wrap(t, weirtest.Wrap(t, l, wrapper("2"), wrapper("3")), wrapper("1"))
	jobs := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), algorithm.Concurrency{Limit: 1, Lease: time.Minute})
	jobs = weirtest.Wrap(t, jobs, wrapper("1"), wrapper("2"), wrapper("3"))
	ctx, u := t.Context(), weir.KeyOf("u")
	lease, err := jobs.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")})
	if err != nil {
		t.Fatal(err)
	}
	reserved, err := l.Reserve(ctx, weir.Request{Key: u, MaxWait: time.Second})
	if err != nil {
		t.Fatal(err)
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
		{"Reset", func() error { return l.Reset(ctx, "u") }},
		{"Refund", func() error { _, err := l.Refund(ctx, weir.Request{Key: u, ID: "x"}); return err }},
		{"Consume", func() error { _, err := l.Decide(ctx, weir.Request{Key: u}, nil); return err }},
		{"Consume", func() error { _, err := l.Wait(ctx, "u"); return err }},
		{"Refund", func() error { _, err := reserved.Cancel(ctx); return err }},
		{"Peek Consume", func() error {
			a := l.DoMany(ctx, []weir.Request{{Key: u, Op: weir.Peek}, {Key: u}})
			return errors.Join(a[0].Err, a[1].Err)
		}},
		{"Renew", func() error { return lease.Renew(ctx) }},
		{"Release", func() error { _, err := lease.Release(ctx); return err }},
		{"Consume", func() error { _, err := jobs.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")}); return err }},
		{"Consume", func() error { _, err := weirtest.Only(t, l, "a").Allow(ctx, "u"); return err }},
		{"Consume", func() error { _, err := weirtest.With(t, l).Allow(ctx, "u"); return err }},
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
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	returns := func(err error) weir.Wrapper {
		return func(*weir.Limiter, weir.Decider) (weir.Decider, error) { return nil, err }
	}
	for _, tt := range []struct {
		w    weir.Wrapper
		want error
		says string
	}{{nil, nil, "given to Limiter.Wrap is nil"}, {returns(nil), nil, "Limiter.Wrap"}, {returns(own), own, ""}} {
		got, err := l.Wrap(weirtest.Pass, tt.w, weirtest.Pass)
		if got != nil {
			t.Errorf("%q: got a limiter", tt.says)
		}
		wantError(t, err, tt.want, tt.says)
	}
	weirtest.Allow(t, weirtest.Wrap(t, l), weir.Request{Key: weir.KeyOf("u")})
}

// With and Only call each wrapper again, with a limiter that has their rules and no
// wrappers, and return its error.
func TestWrapAgain(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.Window(5, time.Hour)}, weir.Rule{Name: "b", Algorithm: weirtest.Window(7, time.Hour)}))
	own := errors.New("a limit of 9 does not suit")
	var given, log []string
	picky := func(lim *weir.Limiter, next weir.Decider) (weir.Decider, error) {
		text := ""
		for _, r := range lim.Rules() {
			if text += fmt.Sprint(r.Name, r.Limit, " "); r.Limit == 9 {
				return nil, own
			}
		}
		given = append(given, text)
		if weirtest.Left(t, lim, "u"); len(log) > 0 || lim.Store() != store.Store(st) {
			t.Errorf("got a limiter in wrappers, or over %v", lim.Store())
		}
		return next, nil
	}
	l = weirtest.Wrap(t, l, picky, weirtest.Around(func(next weir.Decider) tracer { return tracer{"1", next, &log} }))
	plan := weirtest.With(t, l, weir.Rule{Name: "b", Algorithm: weirtest.Window(8, time.Hour)})
	weirtest.Only(t, plan, "b")
	if want := []string{"a5 b7 ", "a5 b8 ", "b8 "}; !slices.Equal(given, want) {
		t.Errorf("the wrapper was given %q, want %q", given, want)
	}
	nine := weir.Rule{Name: "b", Algorithm: weirtest.Window(9, time.Hour)}
	if got, err := l.With(nine); got != nil || err != own {
		t.Errorf("With: got %v, %v, want the error of the wrapper", got, err)
	}
	early := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "a", Algorithm: weirtest.Window(5, time.Hour)}, nine))
	few := func(lim *weir.Limiter, next weir.Decider) (weir.Decider, error) {
		if len(lim.Rules()) == 1 {
			return nil, own
		}
		return next, nil
	}
	if got, err := weirtest.Wrap(t, early, few).Only("a"); got != nil || err != own {
		t.Errorf("Only: got %v, %v, want the error of the wrapper", got, err)
	}
}

// Find looks into every Decider that has a method Unwrap.
func TestFind(t *testing.T) {
	t.Parallel()
	tracing := func(name string) weir.Wrapper {
		return weirtest.Around(func(next weir.Decider) tracer { return tracer{name, next, new([]string)} })
	}
	opaque := weirtest.Around(func(next weir.Decider) impatient { return impatient{next} }) // has no Unwrap
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	for _, tt := range []struct {
		in   []weir.Wrapper
		want string // the name of the first tracer; empty if none is found
		many bool   // the store's Decider, which is a ManyDecider, is found
	}{
		{nil, "", true},
		{[]weir.Wrapper{tracing("1")}, "1", true},
		{[]weir.Wrapper{tracing("1"), tracing("2")}, "1", true},
		{[]weir.Wrapper{weirtest.Pass, weirtest.Pass, tracing("1")}, "1", true},
		{[]weir.Wrapper{tracing("1"), opaque}, "1", false},
		{[]weir.Wrapper{opaque, tracing("1")}, "", false},
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
	if found, ok := weir.Find[tracer](nil); ok {
		t.Errorf("found %+v in nothing", found)
	}
}

// A together is a Decider that decides many requests together, and records how many.
type together struct {
	weir.Decider
	sizes *[]int
}

func (d together) DecideMany(ctx context.Context, requests []weir.Request, answers []weir.Answer) {
	*d.sizes = append(*d.sizes, len(requests))
	weir.DecideMany(ctx, d.Decider, requests, answers)
}

// DecideMany decides requests together with a ManyDecider, and otherwise one by one. So
// DoMany keeps its batches if every wrapper is a ManyDecider.
func TestDecideMany(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		opaque  bool // a wrapper is no ManyDecider
		batches []int
	}{{false, []int{3}}, {true, nil}} {
		st := &batching{recorder: &recorder{Store: weirtest.NewStore(weirtest.NewClock())}}
		sizes := new([]int)
		wrappers := []weir.Wrapper{weirtest.Around(func(next weir.Decider) together { return together{next, sizes} })}
		if tt.opaque {
			wrappers = append(wrappers, weirtest.Pass)
		}
		l := weirtest.Wrap(t, weirtest.New(t, st, weirtest.PerSecond), wrappers...)
		u := weir.KeyOf("u")
		answers := l.DoMany(t.Context(), []weir.Request{{Key: u, Cost: 4}, {Key: u, Cost: 2}, {}, {Key: u}})
		for i, want := range []bool{true, false, false, true} {
			if a := answers[i]; a.Result.Allowed != want || (a.Err != nil) != (i == 2) {
				t.Errorf("a wrapper is no ManyDecider: %v: answer %d: got %+v, want allowed: %v", tt.opaque, i, a, want)
			}
		}
		if !slices.Equal(*sizes, []int{4}) || !slices.Equal(st.batches, tt.batches) || tt.opaque == (st.evals == 0) {
			t.Errorf("a wrapper is no ManyDecider: %v: %d requests together, batches of %d, and %d calls", tt.opaque, *sizes, st.batches, st.evals)
		}
	}
}

// Find looks into a Limiter that a Wrapper returned.
func TestFindInLimiter(t *testing.T) {
	t.Parallel()
	l := weirtest.New(t, weirtest.NewStore(weirtest.NewClock()), weirtest.PerSecond)
	inner := weirtest.Wrap(t, l, weirtest.Around(func(next weir.Decider) tracer { return tracer{"inner", next, new([]string)} }))
	found := false
	weirtest.Wrap(t, l, func(_ *weir.Limiter, next weir.Decider) (weir.Decider, error) {
		_, found = weir.Find[tracer](next)
		return next, nil
	}, func(*weir.Limiter, weir.Decider) (weir.Decider, error) { return inner, nil })
	if !found {
		t.Error("Find does not look into a Limiter")
	}
	if got, ok := weir.Find[*weir.Limiter](inner); !ok || got != inner {
		t.Errorf("got %v, %v, want the limiter itself", got, ok)
	}
	if _, ok := weir.Find[tracer]((*weir.Limiter)(nil)); ok {
		t.Error("found a Decider in a nil Limiter")
	}
}

// Find ends even if an Unwrap returns its own Decider.
func TestFindInCircle(t *testing.T) {
	t.Parallel()
	if _, ok := weir.Find[tracer](new(circle)); ok {
		t.Error("found a Decider that is not there")
	}
}

// A circle stands around itself.
type circle struct{ weir.Decider }

func (c *circle) Unwrap() weir.Decider { return c }
