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
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
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
