package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
)

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

func texts(list ...string) []store.Value {
	var values []store.Value
	for _, text := range list {
		values = append(values, store.BulkValue(text))
	}
	return values
}

// A reply that no script makes is an error. The request is not allowed.
func TestNonsenseReply(t *testing.T) {
	t.Parallel()
	now := weirtest.Epoch.UnixMicro()
	const least, most = -1 << 63, 1<<63 - 1
	head := fmt.Sprintf("%d %d", now/1e6, now%1e6)
	for _, tt := range []struct {
		name  string
		reply []store.Value // for one FixedWindow: allowed, now, edge, count
	}{
		{"nothing", nil},
		{"too short", integers(1, now, 0)},
		{"too long", integers(1, now, 0, 0, 0)},
		{"a nil", append(integers(1, now, 0), store.Value{})},
		{"strings", texts("1", "1", "0", "0")},
		{"yes, with a state that denies", integers(1, now, now+1, 5)},
		{"no, with a state that allows", integers(0, now, 0, 0)},
		{"no, with a state that just allows", integers(0, now, now+1, 4)},
		{"neither yes nor no", integers(2, now, now+1, 5)},
		{"neither yes nor no, with a state that allows", integers(-1, now, 0, 0)},
		{"more than was asked for", integers(2, now, 0, 0)},
		{"no time", integers(1, 0, 0, 0)},
		{"a time before 1970", integers(1, -1, 0, 0)},
		{"the least time", integers(1, least, least, least)},
		{"the least time, a far edge", integers(0, least, 1<<62, 0)},
		{"the greatest numbers", integers(1, most, most, most)},
		{"a negative count", integers(1, now, now, -1)},
		{"all the least", integers(least, least, least, least)},
		{"an empty text", texts("")},
		{"a text without rules", texts("1;" + head)},
		{"a text without time", texts("1;;f2 1 1")},
		{"a text with another tag", texts("1;" + head + ";g2 1 1")},
		{"a text with a cut value", texts("1;" + head + ";f2 ")},
		{"a text with a state that denies", texts(fmt.Sprintf("1;%s;f2 %d 5", head, now+1))},
		{"a text with a state that allows", texts("0;" + head + ";")},
		{"two texts", texts("1;"+head+";", "1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := weirtest.New(t, liar{reply: tt.reply}, weirtest.Window(5, time.Hour))
			for _, op := range []weir.Op{weir.Consume, weir.Peek, weir.TakeUpTo} {
				func() {
					defer func() {
						if p := recover(); p != nil {
							t.Errorf("panic: %v", p)
						}
					}()
					res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: op}, nil)
					if !errors.Is(err, store.ErrScript) || res != (weir.Result{}) {
						t.Errorf("%v: got %+v, %v, want ErrScript", op, res, err)
					}
				}()
			}
		})
	}
}

// A server replies with one string, which holds all integers.
func TestReplyOfServer(t *testing.T) {
	t.Parallel()
	now := weirtest.Epoch.UnixMicro()
	reply := texts(fmt.Sprintf("1;%d %d;f2 %d 3", now/1e6, now%1e6, now+1e6))
	l := weirtest.New(t, liar{reply: reply}, weirtest.Window(5, time.Hour))
	want := weir.Result{Allowed: true, Granted: 1, Rule: "fixedwindow", Limit: 5, Window: time.Hour, Remaining: 1, ResetAfter: time.Second}
	if res, err := l.Allow(t.Context(), "u"); err != nil || res != want {
		t.Errorf("got %+v, %v, want %+v", res, err, want)
	}
}

// No reply makes a decision panic. If a number in the reply denies the request, the
// request is not allowed.
func FuzzReply(f *testing.F) {
	now := weirtest.Epoch.UnixMicro()
	f.Add(int64(1), now, now, int64(0), int64(1), now, int64(3), int64(1))
	f.Add(int64(0), int64(-1<<63), int64(1<<62), int64(1), int64(1), int64(1<<62), int64(-5), int64(7))
	f.Add(int64(1), now, now, int64(0), int64(1), now-73, int64(3), int64(1)) // an expired window
	f.Add(int64(0), now, now, int64(0), int64(1), now-73, int64(6), int64(1))
	f.Fuzz(func(t *testing.T, ok, at, tat, rem, den, edge, count, cost int64) {
		l := weirtest.NewPolicy(t, liar{reply: integers(ok, at, tat, rem, den, edge, count)}, weirtest.Rules(
			weir.Rule{Name: "a", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(3), Burst: 5}}, weir.Rule{Name: "b", Algorithm: weirtest.Window(5, time.Hour)},
		))
		each := make([]weir.Result, 2)
		res, err := l.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Cost: cost & (1<<63 - 1)}, each)
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

// An error of the store is returned with a zero Result.
func TestStoreErrors(t *testing.T) {
	t.Parallel()
	for _, want := range []error{store.ErrUnavailable, store.ErrScript, store.ErrForeign, context.DeadlineExceeded, context.Canceled} {
		t.Run(want.Error(), func(t *testing.T) {
			t.Parallel()
			st := liar{reply: integers(1, weirtest.Epoch.UnixMicro(), 0, 0, 1), values: make([]store.Value, 1), err: fmt.Errorf("some store: %w", want)}
			l := weirtest.New(t, st, weirtest.PerSecond)
			kept := weirtest.New(t, st, algorithm.MetadataWindow{Limit: 5, Window: time.Minute})
			jobs := weirtest.New(t, st, algorithm.Concurrency{Limit: 5, Lease: time.Minute})
			ctx, u := t.Context(), weir.KeyOf("u")
			many := func(op weir.Op) (any, any, error) {
				a := l.DoMany(ctx, []weir.Request{{Key: u, Op: op}})
				return a[0].Result, weir.Result{}, a[0].Err
			}
			for name, call := range map[string]func() (any, any, error){
				"Allow":    func() (any, any, error) { r, err := l.Allow(ctx, "u"); return r, weir.Result{}, err },
				"AllowN":   func() (any, any, error) { r, err := l.AllowN(ctx, 2, "u"); return r, weir.Result{}, err },
				"Peek":     func() (any, any, error) { r, err := l.Peek(ctx, "u"); return r, weir.Result{}, err },
				"TakeUpTo": func() (any, any, error) { r, err := l.TakeUpTo(ctx, 2, "u"); return r, weir.Result{}, err },
				"Entries":  func() (any, any, error) { list, err := kept.Entries(ctx, "u"); return len(list), 0, err },
				"Refund": func() (any, any, error) {
					gave, err := l.Refund(ctx, weir.Request{Key: u, ID: "x"})
					return gave, weir.Settlement{}, err
				},
				"Reset":   func() (any, any, error) { return nil, nil, l.Reset(ctx, "u") },
				"peeks":   func() (any, any, error) { return many(weir.Peek) },
				"a batch": func() (any, any, error) { return many(weir.Consume) },
				"Wait":    func() (any, any, error) { r, err := l.Wait(ctx, "u"); return r, weir.Result{}, err },
				"TryAcquire": func() (any, any, error) {
					r, err := jobs.TryAcquire(ctx, weir.Request{Key: weir.KeyOf("u")})
					return r, (*weir.Lease)(nil), err
				},
				"Acquire": func() (any, any, error) {
					r, err := jobs.Acquire(ctx, weir.Request{Key: weir.KeyOf("u")})
					return r, (*weir.Lease)(nil), err
				},
				"with a lease": func() (any, any, error) {
					r, err := jobs.Decide(ctx, weir.Request{Key: u, ID: "x"}, nil)
					return r, weir.Result{}, err
				},
			} {
				got, zero, err := call()
				if !errors.Is(err, want) || got != zero {
					t.Errorf("%s: got %+v, %v, want %v alone", name, got, err, want)
				}
				if want != store.ErrUnavailable && errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: %v is no outage", name, err)
				}
			}
		})
	}
}

// If MGet returns another number of values than there are keys, the answer is an error.
func TestNonsenseMGet(t *testing.T) {
	t.Parallel()
	for _, values := range [][]store.Value{nil, make([]store.Value, 1), make([]store.Value, 3)} {
		l := weirtest.New(t, liar{values: values}, weirtest.PerSecond)
		for i, a := range l.DoMany(t.Context(), []weir.Request{{Key: weir.KeyOf("u"), Op: weir.Peek}, {Key: weir.KeyOf("v"), Op: weir.Peek}}) {
			if !errors.Is(a.Err, store.ErrScript) || a.Result != (weir.Result{}) {
				t.Errorf("%d values, answer %d: got %+v, want ErrScript", len(values), i, a)
			}
		}
	}
}

// A list of metadata that no script wrote is an error. If it can be the list of a key,
// the value is foreign.
func TestNonsenseEntries(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string][]store.Value{
		"an integer":        integers(1),
		"a nil":             make([]store.Value, 1),
		"another tag":       texts("l2 0000000000000001"),
		"no metadata":       texts("m2 1 1"),
		"no number":         texts("m2 1 x ann"),
		"a count of none":   texts("m2 1 0 ann"),
		"a count that sank": texts("m2 1 2 ann", "m2 1 2 bob"),
		"beyond 2^53":       texts("m2 1 9007199254740992 ann"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := store.ErrForeign
			if reply[0].Kind() != store.Bulk {
				want = store.ErrScript
			}
			l := weirtest.New(t, liar{reply: reply}, algorithm.MetadataWindow{Limit: 5, Window: time.Minute})
			if list, err := l.Entries(t.Context(), "u"); !errors.Is(err, want) || list != nil {
				t.Errorf("got %+v, %v, want %v", list, err, want)
			}
		})
	}
}
