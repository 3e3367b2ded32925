package rueidisapi

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/adapter"
)

// A result is what a fake client returns.
type result struct {
	values []store.Value
	list   bool
	err    error
}

// A fake client returns these results to whatever it is asked.
type fake []result

func (f fake) Do(context.Context, string) result { return f[0] }

func (f fake) DoMulti(context.Context, ...string) []result { return f }

// open returns a store over f.
func open(f fake, single bool) *Store[string, result] {
	return &Store[string, result]{
		Client: f,
		Dialect: Dialect[string, result]{
			Run:  func(Way, *store.Script, []string, []store.Arg) string { return "" },
			MGet: func([]string) string { return "" },
			Time: func() string { return "" },
			Append: func(values []store.Value, r result) ([]store.Value, bool, error) {
				return append(values, r.values...), r.list, r.err
			},
		},
		Single: single,
		Errs:   adapter.Errors{Name: "fake", Replied: func(error) (string, bool) { return "", false }, Follow: func() {}},
	}
}

func list(texts ...string) result {
	r := result{list: true}
	for _, text := range texts {
		r.values = append(r.values, store.BulkValue(text))
	}
	return r
}

// A wrapper of a client can return fewer results than it was given commands.
func TestTooFewResults(t *testing.T) {
	t.Parallel()
	script := store.NewScript("probe", "return 1", nil)
	calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"b"}}}
	s := open(fake{list("x")}, false)
	s.EvalBatch(t.Context(), calls)
	if calls[0].Err != nil || len(calls[0].Reply) != 1 || !errors.Is(calls[1].Err, store.ErrUnavailable) || calls[1].Reply != nil {
		t.Errorf("batch: got %+v", calls)
	}
	if got, err := s.MGet(t.Context(), []string{"a", "b"}, nil); !errors.Is(err, store.ErrUnavailable) || len(got) != 0 {
		t.Errorf("mget: got %v, %v", got, err)
	}
}

// A value that is not in a list is no reply to MGET, even if one key is read.
func TestNotAList(t *testing.T) {
	t.Parallel()
	one := list("1")
	one.list = false
	for _, single := range []bool{true, false} {
		if got, err := open(fake{one}, single).MGet(t.Context(), []string{"a"}, nil); !errors.Is(err, store.ErrUnavailable) || len(got) != 0 {
			t.Errorf("mget: got %v, %v", got, err)
		}
	}
	two := list("1", "2")
	two.list = false
	if got, err := open(fake{two}, true).Time(t.Context()); !errors.Is(err, store.ErrUnavailable) || !got.IsZero() {
		t.Errorf("time: got %v, %v", got, err)
	}
}

// If a reply has too many values, the spare capacity of the caller's slice stays as it is.
func TestTooManyValues(t *testing.T) {
	t.Parallel()
	values := []store.Value{store.IntegerValue(1), store.IntegerValue(2), store.IntegerValue(3), store.IntegerValue(4)}
	got, err := open(fake{list("x", "y", "z")}, true).MGet(t.Context(), []string{"a"}, values[:1])
	if !errors.Is(err, store.ErrUnavailable) || !slices.Equal(got, values[:1]) {
		t.Errorf("got %v, %v", got, err)
	}
	if values[2] != store.IntegerValue(3) || values[3] != store.IntegerValue(4) {
		t.Errorf("the caller's slice is %v", values)
	}
}

// The values of several slots come back in the order of the keys, behind what was there.
func TestOrder(t *testing.T) {
	t.Parallel()
	keys := []string{"1{a}", "1{b}", "2{a}", "2{b}", "3{a}"} // {b} has the lower slot
	got, err := open(fake{list("1b", "2b"), list("1a", "2a", "3a")}, false).MGet(t.Context(), keys, []store.Value{{}})
	want := append([]store.Value{{}}, list("1a", "1b", "2a", "2b", "3a").values...)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
