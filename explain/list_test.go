package explain_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/explain"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// users returns a limiter of 600 users of two tenants, whose names are secret. User n has
// used n%20+1 of 20 tokens. Each decision has an ID, so half of the keys are markers.
func users(t *testing.T) *weir.Limiter {
	t.Helper()
	clock := weirtest.NewClock()
	lim := weirtest.NewPolicy(t, weirtest.NewStore(clock), weir.Policy{
		Segments: []string{"tenant", "user"}, Secret: []string{"user"},
		Rules: []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Limit: 1 << 20, Window: 8 * time.Second}}}},
			{Name: "user", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 20}},
		},
	})
	for n := range 600 {
		clock.Advance(time.Millisecond)
		weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf([]string{"acme", "a*"}[n%2], fmt.Sprint("user", n)), Cost: int64(n%20 + 1), ID: fmt.Sprint(n)})
	}
	return lim
}

// Each caller is listed once for each rule, though it has several keys and markers.
func TestList(t *testing.T) {
	t.Parallel()
	lim := users(t)
	for _, c := range []struct {
		opts *explain.ListOptions
		want map[string]int
	}{
		{nil, map[string]int{"tenant": 2, "user": 600}},
		{&explain.ListOptions{Rule: "tenant", Usage: true}, map[string]int{"tenant": 2}},
		{&explain.ListOptions{Segments: []string{"a*"}, Usage: true}, map[string]int{"tenant": 1, "user": 300}},
		{&explain.ListOptions{Segments: []string{"acme", "user0"}}, map[string]int{"user": 1}},
		{&explain.ListOptions{Segments: []string{"ac"}}, map[string]int{}},
	} {
		got := map[string]int{}
		for caller, err := range explain.List(t.Context(), lim, c.opts) {
			if got[caller.Rule]++; err != nil || (caller.Usage != nil) != (c.opts != nil && c.opts.Usage) {
				t.Fatalf("got %+v, %v", caller, err)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%+v: got %v, want %v", c.opts, got, c.want)
		}
	}
	n := 0
	for range explain.List(t.Context(), lim, nil) {
		if n++; n == 3 {
			break
		}
	}
}

// The callers that use most come first. A secret segment is a hash, by which the caller
// can be reset.
func TestTop(t *testing.T) {
	t.Parallel()
	lim := users(t)
	top, err := explain.Top(t.Context(), lim, 40, &explain.ListOptions{Rule: "user"})
	if err != nil || len(top.Callers) != 40 || top.Listed != 600 || !top.Complete {
		t.Fatalf("got %+v, %v", top, err)
	}
	for i, c := range top.Callers {
		want := int64(20)
		if i >= 30 {
			want = 19
		}
		if c.Used != want || !c.Segments[1].Hashed || c.Segments[0].Hashed {
			t.Errorf("caller %d: got %d used, %+v, want %d", i, c.Used, c.Segments, want)
		}
	}
	first := top.Callers[0]
	weirtest.Decide(t, weirtest.Only(t, lim, "user"), weir.Request{Key: first.Key, Op: weir.Reset})
	again, err := explain.Top(t.Context(), lim, 40, &explain.ListOptions{Rule: "user"})
	if err != nil || slices.ContainsFunc(again.Callers, func(c explain.Caller) bool { return c.StoreKey == first.StoreKey }) {
		t.Errorf("after a reset: got %v, and %q is still among them", err, first.StoreKey)
	}
	if part, err := explain.Top(t.Context(), lim, 1, &explain.ListOptions{MaxKeys: 500}); err != nil || part.Complete || part.Listed == 0 || len(part.Callers) != 1 {
		t.Errorf("of 500 keys: got %+v, %v", part, err)
	}
	if got, err := explain.Top(t.Context(), lim, 0, nil); err == nil || got != nil {
		t.Errorf("the top 0: got %v, %v", got, err)
	}
}

// Callers are ranked by the limits that they have, and not by those of the limiter that
// is listed.
func TestTopWithOtherLimits(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	lim := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "user", Algorithm: weirtest.Window(100, time.Hour)}))
	few := weirtest.With(t, lim, weir.Rule{Name: "user", Algorithm: weirtest.Window(4, time.Hour)})
	for key, n := range map[string]int64{"ann": 3, "bob": 50, "eve": 60} {
		weirtest.Allow(t, lim, weir.Request{Key: weir.KeyOf(key), Cost: n})
	}
	opts := &explain.ListOptions{Limiter: func(c *explain.Caller) *weir.Limiter {
		if c.Segments[0].Value == "ann" {
			return few
		}
		return nil
	}}
	top, err := explain.Top(t.Context(), lim, 2, opts)
	if err != nil || len(top.Callers) != 2 || top.Callers[0].Segments[0].Value != "ann" || top.Callers[0].Limit != 4 || top.Callers[1].Used != 60 {
		t.Errorf("got %+v, %v", top, err)
	}
	other := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "other", Algorithm: weirtest.Window(100, time.Hour)}))
	opts.Limiter = func(*explain.Caller) *weir.Limiter { return other }
	if _, err := explain.Top(t.Context(), lim, 2, opts); !errors.Is(err, weir.ErrInvalidRule) || !strings.Contains(err.Error(), "ListOptions.Limiter") {
		t.Errorf("a limiter without the rule: got %v", err)
	}
}

// A store that is no Lister, for example one that wraps another.
type notLister struct{ store.Store }

func TestListErrors(t *testing.T) {
	t.Parallel()
	lim := users(t)
	other := weirtest.New(t, notLister{memory.New(nil)}, weirtest.PerSecond)
	for _, c := range []struct {
		lim  *weir.Limiter
		opts *explain.ListOptions
		want error
		text string
	}{
		{nil, nil, nil, "nil"},
		{other, nil, weir.ErrUnsupported, "explain_test.notLister"},
		{lim, &explain.ListOptions{Rule: "other"}, weir.ErrInvalidRule, `"other"`},
		{lim, &explain.ListOptions{Segments: []string{"a", "b", "c"}}, weir.ErrInvalidKey, "3 segments"},
		{lim, &explain.ListOptions{Segments: []string{""}}, weir.ErrInvalidKey, "segment 0 is empty"},
		{lim, &explain.ListOptions{MaxKeys: 10}, explain.ErrMore, "MaxKeys"},
	} {
		var last error
		for _, err := range explain.List(t.Context(), c.lim, c.opts) {
			last = err
		}
		if last == nil || c.want != nil && !errors.Is(last, c.want) || !strings.Contains(last.Error(), c.text) {
			t.Errorf("%+v: got %v, want %v with %q", c.opts, last, c.want, c.text)
		}
	}
}
