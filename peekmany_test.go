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
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// PeekMany answers what Peek would, for every path, with one MGet and one Time.
func TestPeekMany(t *testing.T) {
	t.Parallel()
	c := newClock()
	mem := newStore(c)
	st := &recorder{Store: mem}
	rules := []weir.Rule{
		{Name: "a", By: []int{0}, Algorithm: window(40, time.Minute)},
		{Name: "b", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 4}},
		{Name: "c", Algorithm: perSecond, Cost: 3},
	}
	l := mustNew(t, st, rules, nil)
	ctx := t.Context()
	var paths [][]string
	for i := range 30 {
		path := []string{fmt.Sprint("x", i%3), fmt.Sprint("y", i%10)}
		if i%5 == 0 {
			path = append(path, "z")
		}
		paths = append(paths, path)
		for range i % 4 {
			if _, err := l.Allow(ctx, path...); err != nil {
				t.Fatal(err)
			}
			c.advance(50 * time.Millisecond)
		}
	}
	paths = append(paths, []string{"nobody", "knows"}, paths[7])

	before := dump(t, mem)
	*st = recorder{Store: mem}
	got, err := l.PeekMany(ctx, paths)
	if err != nil || len(got) != len(paths) {
		t.Fatalf("PeekMany gave %d results, %v, want %d", len(got), err, len(paths))
	}
	if st.mgets != 1 || st.times != 1 || st.evals != 0 || len(st.keys) != len(paths)*len(rules) {
		t.Errorf("%d MGets of %d keys, %d Times, %d Evals, want one MGet of %d and one Time", st.mgets, len(st.keys), st.times, st.evals, len(paths)*len(rules))
	}
	if after := dump(t, mem); !slices.Equal(before, after) {
		t.Errorf("made of %q: %q", before, after)
	}
	denied := 0
	for i, path := range paths {
		want, err := l.Peek(ctx, path...)
		if err != nil || got[i] != want {
			t.Errorf("path %q: got %+v, and Peek says %+v, %v", path, got[i], want, err)
		}
		if !want.Allowed {
			denied++
		}
	}
	if denied == 0 || denied == len(paths) {
		t.Errorf("%d of %d denied: the test sees one kind only", denied, len(paths))
	}
}

func TestPeekManyNone(t *testing.T) {
	t.Parallel()
	st := &recorder{Store: newStore(newClock())}
	l := mustNew(t, st, by(nil), nil)
	for _, paths := range [][][]string{nil, {}} {
		if got, err := l.PeekMany(t.Context(), paths); got != nil || err != nil {
			t.Errorf("PeekMany(%v) = %v, %v, want nothing", paths, got, err)
		}
	}
	for _, tt := range []struct {
		paths [][]string
		says  string
	}{
		{[][]string{{"u"}, {}}, "path 1"},
		{[][]string{{"u"}, {"v"}, {"w", ""}}, "path 2"},
	} {
		got, err := l.PeekMany(t.Context(), tt.paths)
		if got != nil || !errors.Is(err, weir.ErrInvalidKey) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("PeekMany(%q) = %v, %v, want ErrInvalidKey of %s", tt.paths, got, err, tt.says)
		}
	}
	if st.mgets+st.times+st.evals > 0 {
		t.Error("the store was asked")
	}
}

// A key that holds someone else's text spoils its own path alone, and is named.
func TestPeekManyForeign(t *testing.T) {
	t.Parallel()
	st := newStore(newClock())
	l := mustNew(t, st, by(nil, nil), nil)
	ctx := t.Context()
	if _, err := l.Allow(ctx, "v"); err != nil {
		t.Fatal(err)
	}
	plant(t, st, "weir:{u}:b", store.Tag{'x', '1'}, 1)
	plant(t, st, "weir:{w}:a", store.Tag{'g', '1'}, 1, 2)
	got, err := l.PeekMany(ctx, [][]string{{"u"}, {"v"}, {"w"}, {"new"}})
	if !errors.Is(err, store.ErrForeign) || len(got) != 4 {
		t.Fatalf("PeekMany = %+v, %v, want ErrForeign", got, err)
	}
	for _, s := range []string{`"weir:{u}:b"`, `"weir:{w}:a"`} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not name %s", err, s)
		}
	}
	for i, path := range []string{"u", "v", "w", "new"} {
		want, err := l.Peek(ctx, path)
		if got[i] != want || (err != nil) != (want == weir.Result{}) {
			t.Errorf("path %q: got %+v, and Peek says %+v, %v", path, got[i], want, err)
		}
	}
}

// A ring of many keys beside a sorted set: the paths are peeked at one by one, each
// with all its keys.
func TestPeekManyRingAndSet(t *testing.T) {
	t.Parallel()
	lim := mustNew(t, memory.New(nil), []weir.Rule{
		{Name: "ring", Algorithm: algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 24 * time.Hour, Limit: 9}}}},
		{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 5, Window: time.Hour}},
	}, &weir.Options{Clock: func() time.Time { return epoch }})
	paths := [][]string{{"a"}, {"b"}, {"c"}}
	for i, path := range paths {
		for range i {
			if _, err := lim.Allow(t.Context(), path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := lim.PeekMany(t.Context(), paths)
	if err != nil || len(got) != len(paths) {
		t.Fatalf("PeekMany = %v, %v", got, err)
	}
	for i, path := range paths {
		want, err := lim.Peek(t.Context(), path...)
		if err != nil || got[i] != want || want.Remaining != int64(5-i) {
			t.Errorf("path %v: got %+v, Peek %+v, %v", path, got[i], want, err)
		}
	}
}
