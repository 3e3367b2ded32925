package weir_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// What makes no sense is an error that says so, and asks the store nothing.
func TestVerbsMisused(t *testing.T) {
	t.Parallel()
	r := &recorder{Store: newStore(newClock())}
	gcra := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}
	window := algorithm.FixedWindow{Limit: 5, Window: time.Minute}
	l := mustNew(t, r, []weir.Rule{{Name: "a", Algorithm: gcra}, {Name: "b", Algorithm: window}}, nil)
	one := mustNew(t, r, alone(gcra), nil)
	limit := func(a algorithm.Algorithm) algorithm.Limit {
		l, err := a.NewLimit()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	do := func(l *weir.Limiter, req weir.Request) func() error {
		if req.Path == nil {
			req.Path = []string{"k"}
		}
		return func() error { _, err := l.Do(t.Context(), req); return err }
	}
	for _, tt := range []struct {
		name string
		call func() error
		want error
		text string
	}{
		{"up to a negative number", func() error { _, err := l.TakeUpTo(t.Context(), -1, "k"); return err }, weir.ErrInvalidCost, "-1"},
		{"up to, on an empty segment", func() error { _, err := l.TakeUpTo(t.Context(), 1, ""); return err }, weir.ErrInvalidKey, "empty"},
		{"up to, ahead of time", do(one, weir.Request{Cost: 1, UpTo: true, MaxWait: time.Second}), weir.ErrUnsupported, "MaxWait"},
		{"a negative wait", do(one, weir.Request{Cost: 1, MaxWait: -1}), nil, "0 or more"},
		{"a wait for a window", do(l, weir.Request{Cost: 1, MaxWait: 1}), weir.ErrUnsupported, `"b" is a fixedwindow`},
		{"too few limits", do(l, weir.Request{Cost: 1, Limits: []algorithm.Limit{nil}}), nil, "each of the 2 rules"},
		{"no limits but not nil", do(one, weir.Request{Cost: 1, Limits: []algorithm.Limit{}}), nil, "each of the 1 rules"},
		{"a limit of another algorithm", do(l, weir.Request{Cost: 1, Limits: []algorithm.Limit{nil, limit(gcra)}}), weir.ErrInvalidLimit, `"b", a fixedwindow`},
		{"a refund without ID", func() error { _, err := l.Refund(t.Context(), "", "k"); return err }, weir.ErrInvalidKey, "ID"},
		{"a refund of no path", func() error { _, err := l.Refund(t.Context(), "x"); return err }, weir.ErrInvalidKey, "segments"},
		{"a lease without a rule for it", do(one, weir.Request{Cost: 1, Lease: "x"}), weir.ErrUnsupported, "algorithm.Concurrency"},
		{"a reservation of an empty segment", func() error {
			_, err := one.Reserve(t.Context(), weir.Request{Path: []string{""}, Cost: 1})
			return err
		}, weir.ErrInvalidKey, "empty"},
		{"a wait for less than nothing", func() error { _, err := one.WaitN(t.Context(), -1, "k"); return err }, weir.ErrInvalidCost, "-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.call()
			if err == nil || !errors.Is(err, tt.want) && tt.want != nil || !strings.Contains(err.Error(), tt.text) || !strings.HasPrefix(err.Error(), "weir: ") {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.text)
			}
		})
	}
	if r.evals+r.mgets+r.times > 0 {
		t.Errorf("the store was asked %d times", r.evals+r.mgets+r.times)
	}
}

// A marker lies beside the keys of its rule, and no ID can choose another's.
func TestMarkerKeys(t *testing.T) {
	t.Parallel()
	r := &recorder{Store: newStore(newClock())}
	ring := algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 2 * time.Second, Limit: 5}}}
	l := mustNew(t, r, []weir.Rule{
		{Name: "all", By: []int{0}, Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Minute}},
		{Name: "ring", By: []int{0, 1}, Algorithm: ring},
	}, nil)
	for id, in := range map[string]string{
		"x":                         "x",
		"a:{b}%":                    "a%3A%7Bb%7D%25",
		"0":                         "0",
		strings.Repeat("long", 100): "%sha256=",
	} {
		if _, err := l.Do(t.Context(), weir.Request{Path: []string{"t", "u"}, Cost: 1, ID: id}); err != nil {
			t.Fatal(err)
		}
		want := []string{"weir:{t}:all", "weir:{t}:ring:u:0", "weir:{t}:ring:u:1", "weir:{t}:all:%id=" + in, "weir:{t}:ring:u:%id=" + in}
		same := slices.EqualFunc(r.keys, want, func(got, want string) bool {
			return got == want || strings.HasSuffix(want, "%sha256=") && strings.HasPrefix(got, want) && len(got) == len(want)+64
		})
		if !same {
			t.Errorf("ID %q: keys %q, want %q", id, r.keys, want)
		}
		decided := slices.Clone(r.keys)
		if gave, err := l.Refund(t.Context(), id, "t", "u"); !gave || err != nil {
			t.Errorf("ID %q: Refund: got %v, %v", id, gave, err)
		}
		if !slices.Equal(r.keys, decided) {
			t.Errorf("ID %q: the refund was over %q, want %q", id, r.keys, decided)
		}
	}
}

// What is not asked for costs nothing: a question with an ID, or of cost 0, leaves no
// marker, and one that is denied leaves none either.
func TestMarkerOnlyOfWhatWasTaken(t *testing.T) {
	t.Parallel()
	st := newStore(newClock())
	l := mustNew(t, st, alone(algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 1}), nil)
	for _, req := range []weir.Request{{Cost: 1, Peek: true}, {}, {Cost: 2}, {Cost: 2, UpTo: true, Peek: true}} {
		req.Path, req.ID = []string{"k"}, "x"
		if _, err := l.Do(t.Context(), req); err != nil {
			t.Errorf("%+v: %v", req, err)
		}
		for key := range st.All() {
			t.Errorf("%+v left the key %q", req, key)
		}
		if gave, err := l.Refund(t.Context(), "x", "k"); gave || err != nil {
			t.Errorf("%+v: Refund: got %v, %v", req, gave, err)
		}
	}
}

// Every decision is one call of the store, whatever it does besides.
func TestOneCall(t *testing.T) {
	t.Parallel()
	r := &recorder{Store: newStore(newClock())}
	rules := []weir.Rule{
		{Name: "a", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 50}},
		{Name: "b", Algorithm: algorithm.FixedWindow{Limit: 50, Window: time.Minute}},
		{Name: "c", Algorithm: algorithm.SlidingLog{Limit: 50, Window: time.Minute}},
		{Name: "d", Algorithm: algorithm.SlidingCounter{Limit: 50, Window: time.Minute}},
	}
	l := mustNew(t, r, rules, nil)
	thirds, err := algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 50}.NewLimit()
	if err != nil {
		t.Fatal(err)
	}
	for _, req := range []weir.Request{
		{Cost: 1}, {Cost: 1, Peek: true}, {Cost: 5, UpTo: true}, {Cost: 1, ID: "x"}, {Cost: 5, UpTo: true, ID: "y"},
		{Cost: 1, Limits: []algorithm.Limit{thirds, nil, nil, nil}},
	} {
		r.evals = 0
		req.Path = []string{"k"}
		if res, err := l.Do(t.Context(), req); err != nil || !res.Allowed {
			t.Errorf("%+v: got %+v, %v", req, res, err)
		}
		if r.evals != 1 || r.mgets+r.times != 0 {
			t.Errorf("%+v: %d calls of the store, want one", req, r.evals+r.mgets+r.times)
		}
	}
	r.evals = 0
	if gave, err := l.Refund(t.Context(), "x", "k"); !gave || err != nil || r.evals != 1 {
		t.Errorf("Refund: got %v, %v in %d calls, want true in one", gave, err, r.evals)
	}
}

// A fragment is one for all limits of a shape, so that limits per call compose no
// more programs than there are shapes.
func TestLimitsOfAShapeShareAProgram(t *testing.T) {
	t.Parallel()
	ring := func(limit int64) algorithm.Limit {
		l, err := algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: 4 * time.Second, Limit: limit}}}.NewLimit()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if ring(1).Fragment() != ring(2).Fragment() {
		t.Error("two rings of one shape have two fragments")
	}
}
