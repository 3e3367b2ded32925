package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A liar is a store that replies what the test says.
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

func (l liar) Time(context.Context) (time.Time, error) { return epoch, l.err }

func integers(n ...int64) []store.Value {
	values := make([]store.Value, len(n))
	for i := range n {
		values[i] = store.IntegerValue(n[i])
	}
	return values
}

// What no script replies is an error, and never lets anyone pass.
func TestNonsenseReply(t *testing.T) {
	t.Parallel()
	now := epoch.UnixMicro()
	const least, most = -1 << 63, 1<<63 - 1
	for _, tt := range []struct {
		name  string
		reply []store.Value // of one GCRA, 1 per second, burst 5: ok, now, tat, rem
	}{
		{"nothing", nil},
		{"too short", integers(1, now, 0)},
		{"too long", integers(1, now, 0, 0, 0)},
		{"a nil", append(integers(1, now, 0), store.Value{})},
		{"strings", []store.Value{store.BulkValue("1"), store.BulkValue("1"), store.BulkValue("0"), store.BulkValue("0")}},
		{"yes, with a state that denies", integers(1, now, now+5e6, 0)},
		{"yes, with a state that denies by a part", integers(1, now, now+4e6, 5)},
		{"no, with a state that allows", integers(0, now, 0, 0)},
		{"no, with a state that just allows", integers(0, now, now+4e6, 0)},
		{"neither yes nor no", integers(2, now, now+5e6, 0)},
		{"neither yes nor no, with a state that allows", integers(-1, now, 0, 0)},
		{"a time before 1970", integers(1, -1, 0, 0)},
		{"the least time", integers(1, least, least, least)},
		{"the least time, a far TAT", integers(0, least, 1<<62, 0)},
		{"the greatest numbers", integers(1, most, most, most)},
		{"a negative remainder", integers(1, now, now, -1)},
		{"a negative TAT", integers(1, now, -1, 0)},
		{"a remainder that is too large", integers(1, now, now, most)},
		{"all the least", integers(least, least, least, least)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// Its interval of a second and a bit makes it reply with a remainder.
			fraction := algorithm.GCRA{Rate: algorithm.Rate{Count: 3, Period: 3*time.Second + 1}, Burst: 5}
			l := mustNew(t, liar{reply: tt.reply}, []weir.Rule{{Algorithm: fraction}}, nil)
			for _, r := range []weir.Request{{Path: []string{"u"}, Cost: 1}, {Path: []string{"u"}, Cost: 1, Peek: true}} {
				func() {
					defer func() {
						if p := recover(); p != nil {
							t.Errorf("panic: %v", p)
						}
					}()
					res, err := l.Do(t.Context(), r)
					if !errors.Is(err, store.ErrScript) || res != (weir.Result{}) {
						t.Errorf("Do = %+v, %v, want ErrScript", res, err)
					}
				}()
			}
		})
	}
}

// Whatever the numbers of a reply, nothing panics, and what is denied by any number is not
// allowed.
func FuzzReply(f *testing.F) {
	now := epoch.UnixMicro()
	f.Add(int64(1), now, now, int64(0), now, int64(3), int64(1))
	f.Add(int64(0), int64(-1<<63), int64(1<<62), int64(1), int64(1<<62), int64(-5), int64(7))
	f.Add(int64(1), now, now, int64(0), now-73, int64(3), int64(1)) // a window that ended
	f.Add(int64(0), now, now, int64(0), now-73, int64(6), int64(1))
	f.Fuzz(func(t *testing.T, ok, at, tat, rem, start, count, cost int64) {
		l := mustNew(t, liar{reply: integers(ok, at, tat, rem, start, count)},
			[]weir.Rule{{Name: "a", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}}, {Name: "b", Algorithm: window(5, time.Hour)}}, nil)
		each := make([]weir.Result, 2)
		res, err := l.Do(t.Context(), weir.Request{Path: []string{"u"}, Cost: cost & (1<<63 - 1), Each: each})
		if err != nil {
			if res != (weir.Result{}) {
				t.Fatalf("%+v with error %v", res, err)
			}
			return
		}
		for _, one := range append(each, res) {
			if one.Remaining < 0 || one.Remaining > one.Limit || one.RetryAfter < 0 || one.ResetAfter < 0 || res.Allowed && !one.Allowed {
				t.Fatalf("impossible %+v of %+v", one, each)
			}
		}
		if res.Allowed != (ok == 1) {
			t.Fatalf("the script said %d, and the result is %+v", ok, res)
		}
	})
}

// An error of the store passes as it is, with no result beside it.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for _, want := range []error{store.ErrUnavailable, store.ErrScript, store.ErrForeign, context.DeadlineExceeded, context.Canceled} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			st := liar{reply: integers(1, epoch.UnixMicro(), 0, 0), values: make([]store.Value, 1), err: fmt.Errorf("some store: %w", want)}
			l := mustNew(t, st, []weir.Rule{{Algorithm: perSecond}}, nil)
			throttler, err := weir.NewThrottler(st, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, call := range map[string]func() (any, any, error){
				"Allow":  func() (any, any, error) { r, err := l.Allow(t.Context(), "u"); return r, weir.Result{}, err },
				"AllowN": func() (any, any, error) { r, err := l.AllowN(t.Context(), 2, "u"); return r, weir.Result{}, err },
				"Peek":   func() (any, any, error) { r, err := l.Peek(t.Context(), "u"); return r, weir.Result{}, err },
				"Throttle": func() (any, any, error) {
					r, err := throttler.Throttle(t.Context(), "u", 1, 1, time.Second, 1)
					return r, weir.Throttled{}, err
				},
				"Entries": func() (any, any, error) {
					list, err := mustNew(t, st, []weir.Rule{kept("kept")}, nil).Entries(t.Context(), "", "u")
					return len(list), 0, err
				},
				"Reset": func() (any, any, error) { return nil, nil, l.Reset(t.Context(), "u") },
				"PeekMany": func() (any, any, error) {
					r, err := l.PeekMany(t.Context(), [][]string{{"u"}})
					return len(r), 0, err
				},
			} {
				got, zero, err := call()
				if !errors.Is(err, want) || got != zero {
					t.Errorf("%s = %+v, %v, want %v alone", name, got, err, want)
				}
				if want != store.ErrUnavailable && errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: %v is no outage", name, err)
				}
			}
		})
	}
}

// A store that gives other than one value for each key is not believed.
func TestNonsenseMGet(t *testing.T) {
	t.Parallel()
	for _, values := range [][]store.Value{nil, make([]store.Value, 1), make([]store.Value, 3)} {
		t.Run(fmt.Sprint(len(values)), func(t *testing.T) {
			t.Parallel()
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			l := mustNew(t, liar{values: values}, []weir.Rule{{Algorithm: perSecond}}, nil)
			if res, err := l.PeekMany(t.Context(), [][]string{{"u"}, {"v"}}); !errors.Is(err, store.ErrScript) || res != nil {
				t.Errorf("PeekMany = %+v, %v, want ErrScript", res, err)
			}
		})
	}
}
