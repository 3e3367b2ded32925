package weir_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

// Reset deletes the rules that the whole path identifies, and ResetRule the one that
// it names.
func TestReset(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		rules []weir.Rule
		rule  string // for ResetRule; "": Reset
		path  []string
		want  error
		left  []string // keys, of those for x y z and x y
	}{
		{"one rule", by(nil), "", []string{"x", "y"}, nil, []string{"weir:{x:y:z}:a"}},
		{"two rules by all", by(nil, nil), "", []string{"x", "y", "z"}, nil, []string{"weir:{x:y}:a", "weir:{x:y}:b"}},
		{"one by all", by([]int{0}, []int{0, 1}, nil), "", []string{"x", "y", "z"}, nil,
			[]string{"weir:{x}:a", "weir:{x}:b:y", "weir:{x}:c:y"}},
		{"all that a shorter path gives", by([]int{0}, []int{0, 1}, nil), "", []string{"x", "y"}, nil,
			[]string{"weir:{x}:a", "weir:{x}:c:y:z"}},
		{"none by all", by([]int{0}, []int{0, 1}, []int{0, 2}), "", []string{"x", "y", "z"}, weir.ErrInvalidRule, nil},
		{"someone else", by(nil), "", []string{"x", "w"}, nil, []string{"weir:{x:y:z}:a", "weir:{x:y}:a"}},
		{"a bad path", by(nil), "", []string{"x", ""}, weir.ErrInvalidKey, nil},
		{"by name", by([]int{0}, []int{0, 1}, nil), "a", []string{"x", "any"}, nil,
			[]string{"weir:{x}:b:y", "weir:{x}:c:y", "weir:{x}:c:y:z"}},
		{"by name, the others too short", by([]int{0}, []int{0, 1}, nil), "c", []string{"x", "y"}, nil,
			[]string{"weir:{x}:a", "weir:{x}:b:y", "weir:{x}:c:y:z"}},
		{"by a name that is none", by(nil), "z", []string{"x"}, weir.ErrInvalidRule, nil},
		{"by no name", by(nil), "", []string{}, weir.ErrInvalidKey, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := newStore(newClock())
			l := mustNew(t, st, tt.rules, nil)
			for _, path := range [][]string{{"x", "y", "z"}, {"x", "y"}} {
				if _, err := l.Allow(t.Context(), path...); err != nil && !errors.Is(err, weir.ErrInvalidKey) {
					t.Fatal(err)
				}
			}
			want := dump(t, st)
			if tt.want == nil {
				want = slices.DeleteFunc(want, func(line string) bool {
					return !slices.ContainsFunc(tt.left, func(key string) bool { return strings.HasPrefix(line, key+" ") })
				})
				if len(want) != len(tt.left) {
					t.Fatalf("of the keys %q, the test expects others", dump(t, st))
				}
			}
			var err error
			if tt.rule == "" {
				err = l.Reset(t.Context(), tt.path...)
			} else {
				err = l.ResetRule(t.Context(), tt.rule, tt.path...)
			}
			if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if got := dump(t, st); !slices.Equal(got, want) {
				t.Errorf("left %q, want %q", got, want)
			}
			if tt.want == nil && tt.rule == "" {
				if res, err := l.Peek(t.Context(), tt.path...); err != nil || res.ResetAfter != 0 && len(tt.rules) == 1 {
					t.Errorf("after it: %+v, %v, want it as new", res, err)
				}
			}
		})
	}
}

// A key that holds someone else's value stays, and with it all others of the step.
func TestResetForeign(t *testing.T) {
	t.Parallel()
	st := newStore(newClock())
	l := mustNew(t, st, by(nil, nil), nil)
	if _, err := l.Allow(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	plant(t, st, "weir:{u}:b", store.Tag{'x', '1'}, 1)
	before := dump(t, st)
	for _, reset := range []func() error{
		func() error { return l.Reset(t.Context(), "u") },
		func() error { return l.ResetRule(t.Context(), "b", "u") },
	} {
		if err := reset(); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"weir:{u}:b"`) {
			t.Errorf("got %v, want ErrForeign naming the key", err)
		}
		if after := dump(t, st); !slices.Equal(before, after) {
			t.Errorf("made of %q: %q", before, after)
		}
	}
	if err := l.ResetRule(t.Context(), "a", "u"); err != nil {
		t.Errorf("the other rule: %v", err)
	}
}

// A foreign key stops the decision for all rules: none is charged.
func TestForeignKeyChargesNobody(t *testing.T) {
	t.Parallel()
	st := newStore(newClock())
	l := mustNew(t, st, by(nil, nil, nil), nil)
	plant(t, st, "weir:{u}:c", store.Tag{'g', '2'}, 1, 2, 3)
	before := dump(t, st)
	for _, peek := range []bool{false, true} {
		res, err := l.Do(t.Context(), weir.Request{Path: []string{"u"}, Cost: 1, Peek: peek})
		if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"weir:{u}:c"`) || res != (weir.Result{}) {
			t.Errorf("got %+v, %v, want ErrForeign naming the key", res, err)
		}
	}
	if after := dump(t, st); !slices.Equal(before, after) {
		t.Errorf("made of %q: %q", before, after)
	}
}
