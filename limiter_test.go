package weir_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// epoch is where virtual time starts.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A clock is moved by hand.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.micros.Store(epoch.UnixMicro())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMicro(c.micros.Load()) }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// newStore returns a memory store that runs on c.
func newStore(c *clock) *memory.Store { return memory.New(&memory.Options{Now: c.now}) }

// A recorder is a store that notes what it is asked for.
type recorder struct {
	store.Store
	keys   []string
	evals  int
	mgets  int
	times  int
	writes int // scripts that may write
}

func (r *recorder) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	r.evals++
	if !s.ReadOnly() {
		r.writes++
	}
	r.keys = slices.Clone(keys)
	return r.Store.Eval(ctx, s, keys, args, reply)
}

func (r *recorder) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	r.mgets++
	r.keys = slices.Clone(keys)
	return r.Store.MGet(ctx, keys, values)
}

func (r *recorder) Time(ctx context.Context) (time.Time, error) {
	r.times++
	return r.Store.Time(ctx)
}

// dump is every key of st and what it holds, in order.
func dump(t testing.TB, st *memory.Store) []string {
	t.Helper()
	var lines []string
	for key := range st.All() {
		values, err := st.MGet(t.Context(), []string{key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, key+" = "+values[0].Str())
	}
	slices.Sort(lines)
	return lines
}

// plant makes key hold the integers n behind tag.
func plant(t testing.TB, st store.Store, key string, tag store.Tag, n ...int64) {
	t.Helper()
	script := store.NewScript("plant", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		nums := store.Nums{Tag: tag, Len: uint8(len(n))}
		copy(nums.N[:], n)
		tx.Put(0, nums, time.Hour)
		return reply, nil
	})
	if _, err := st.Eval(t.Context(), script, []string{key}, nil, nil); err != nil {
		t.Fatal(err)
	}
}

func mustNew(t testing.TB, st store.Store, rules []weir.Rule, opts *weir.Options) *weir.Limiter {
	t.Helper()
	l, err := weir.NewRules(st, rules, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var perSecond = algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 5}

// broken is an algorithm that gives what the test says.
type broken struct {
	limit algorithm.Limit
	err   error
}

func (b broken) NewLimit() (algorithm.Limit, error) { return b.limit, b.err }

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	many := make([]weir.Rule, weir.MaxRules+1)
	for i := range many {
		many[i] = weir.Rule{Name: string(rune('a' + i)), Algorithm: perSecond}
	}
	for _, tt := range []struct {
		name  string
		store store.Store
		rules []weir.Rule
		want  error // nil: any
		says  string
	}{
		{"no store", nil, many[:1], nil, "store is nil"},
		{"a store that cannot work", memory.New(&memory.Options{MaxKeys: -1}), many[:1], nil, "MaxKeys is -1"},
		{"no rules", st, nil, weir.ErrInvalidRule, "1 to 16"},
		{"17 rules", st, many, weir.ErrInvalidRule, "17 rules"},
		{"no algorithm", st, []weir.Rule{{Name: "x"}}, weir.ErrInvalidRule, `"x"`},
		{"an invalid limit", st, []weir.Rule{many[0], {Name: "x", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1)}}}, weir.ErrInvalidLimit, `rule "x": invalid limit: GCRA.Burst`},
		{"an error of the algorithm", st, []weir.Rule{{Algorithm: broken{err: algorithm.ErrInvalidLimit}}}, weir.ErrInvalidLimit, "rule 0"},
		{"no names", st, []weir.Rule{{Algorithm: perSecond}, {Algorithm: perSecond}}, weir.ErrInvalidRule, "rule 0 has no Name"},
		{"one name missing", st, []weir.Rule{many[0], {Algorithm: perSecond}}, weir.ErrInvalidRule, "rule 1 has no Name"},
		{"one name twice", st, []weir.Rule{many[0], many[1], many[0]}, weir.ErrInvalidRule, `"a"`},
		{"negative cost", st, []weir.Rule{{Name: "x", Algorithm: perSecond, Cost: -1}}, weir.ErrInvalidRule, "-1"},
		{"by nothing", st, []weir.Rule{{Name: "x", Algorithm: perSecond, By: []int{}}}, weir.ErrInvalidRule, "no segment"},
		{"by a negative segment", st, []weir.Rule{{Name: "x", Algorithm: perSecond, By: []int{0, -1}}}, weir.ErrInvalidRule, "-1"},
		{"by one segment twice", st, []weir.Rule{{Name: "x", Algorithm: perSecond, By: []int{1, 0, 1}}}, weir.ErrInvalidRule, "twice"},
		{"nothing in common", st, []weir.Rule{{Name: "x", Algorithm: perSecond, By: []int{0}}, {Name: "y", Algorithm: perSecond, By: []int{1}}}, weir.ErrInvalidRule, "in common"},
		{"a cost above the capacity", st, []weir.Rule{{Name: "x", Algorithm: algorithm.FixedWindow{Limit: 5, Window: time.Second}, Cost: 6}}, weir.ErrInvalidRule, "capacity"},
		{"a zero memory store", &memory.Store{}, []weir.Rule{{Name: "x", Algorithm: perSecond}}, nil, "make one with New"},
		{"a nil memory store", (*memory.Store)(nil), []weir.Rule{{Name: "x", Algorithm: perSecond}}, nil, "make one with New"},
		{"nothing in common among three", st, []weir.Rule{
			{Name: "x", Algorithm: perSecond, By: []int{0, 1}}, {Name: "y", Algorithm: perSecond, By: []int{1, 2}}, {Name: "z", Algorithm: perSecond, By: []int{0, 2}},
		}, weir.ErrInvalidRule, "in common"},
		{"by a segment that no path has", st, []weir.Rule{{Name: "x", Algorithm: perSecond, By: []int{0, 1<<63 - 1}}}, weir.ErrInvalidRule, "segment"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l, err := weir.NewRules(tt.store, tt.rules, nil)
			if err == nil || l != nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("NewRules = %v, %v, want %v", l, err, tt.want)
			}
			if !strings.HasPrefix(err.Error(), "weir: ") || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
		})
	}
}

// An algorithm from elsewhere that gives no limit or no fragment is an error too.
func TestNewSurvivesBrokenAlgorithms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		a    algorithm.Algorithm
	}{
		{"no limit", broken{}},
		{"no fragment", broken{limit: noFragment{}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			if l, err := weir.New(memory.New(nil), tt.a); err == nil {
				t.Errorf("New = %v, want an error", l)
			}
		})
	}
}

type noFragment struct{ algorithm.Limit }

func (noFragment) Fragment() *algorithm.Fragment { return nil }

// What makes no sense is refused before the store is asked.
func TestMisuse(t *testing.T) {
	t.Parallel()
	one := []weir.Rule{{Name: "a", Algorithm: perSecond}}
	two := []weir.Rule{{Name: "a", By: []int{0}, Algorithm: perSecond}, {Name: "b", By: []int{0, 2}, Algorithm: perSecond}}
	open := []weir.Rule{{Name: "a", By: []int{0, 1}, Algorithm: perSecond}, {Name: "b", Algorithm: perSecond}}
	for _, tt := range []struct {
		name  string
		rules []weir.Rule
		r     weir.Request
		want  error // nil: any
		says  string
	}{
		{"negative cost", one, weir.Request{Path: []string{"u"}, Cost: -1}, weir.ErrInvalidCost, "-1"},
		{"negative cost, to peek", one, weir.Request{Path: []string{"u"}, Cost: -1, Peek: true}, weir.ErrInvalidCost, "-1"},
		{"no path", one, weir.Request{Cost: 1}, weir.ErrInvalidKey, "0 segments"},
		{"empty segment", one, weir.Request{Path: []string{""}, Cost: 1}, weir.ErrInvalidKey, "segment 0"},
		{"empty segment behind others", one, weir.Request{Path: []string{"a", "b", ""}, Cost: 1}, weir.ErrInvalidKey, "segment 2"},
		{"too short", two, weir.Request{Path: []string{"a", "b"}, Cost: 1}, weir.ErrInvalidKey, "2 segments, the rules need 3"},
		{"too long", two, weir.Request{Path: []string{"a", "b", "c", "d"}, Cost: 1}, weir.ErrInvalidKey, "4 segments, the rules use 3"},
		{"too short, no end", open, weir.Request{Path: []string{"a"}, Cost: 1}, weir.ErrInvalidKey, "1 segments, the rules need 2"},
		{"an empty segment that no rule uses", two, weir.Request{Path: []string{"a", "", "c"}, Cost: 1}, weir.ErrInvalidKey, "segment 1"},
		{"Each too short", two, weir.Request{Path: []string{"a", "b", "c"}, Cost: 1, Each: make([]weir.Result, 1)}, nil, "1 elements"},
		{"Each too long", one, weir.Request{Path: []string{"a"}, Cost: 1, Each: make([]weir.Result, 2)}, nil, "2 elements"},
		{"Each empty", one, weir.Request{Path: []string{"a"}, Cost: 1, Each: []weir.Result{}}, nil, "0 elements"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := &recorder{Store: memory.New(nil)}
			res, err := mustNew(t, st, tt.rules, nil).Do(t.Context(), tt.r)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || res != (weir.Result{}) {
				t.Fatalf("Do = %+v, %v, want %v", res, err, tt.want)
			}
			if !strings.HasPrefix(err.Error(), "weir: ") || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
			if st.evals+st.mgets+st.times > 0 {
				t.Error("the store was asked")
			}
		})
	}
}

// The clock of the options decides, and one that is out of range is an error.
func TestOptionsClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		at   time.Time
		good bool
	}{
		{"first", time.UnixMicro(1), true},
		{"last", time.UnixMicro(1<<52 - 1), true},
		{"zero", time.Time{}, false},
		{"1970", time.UnixMicro(0), false},
		{"too late", time.UnixMicro(1 << 52), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := &recorder{Store: memory.New(nil)}
			l := mustNew(t, st, []weir.Rule{{Algorithm: perSecond}}, &weir.Options{Clock: func() time.Time { return tt.at }})
			res, err := l.AllowN(t.Context(), 5, "u")
			if (err == nil) != tt.good || res.Allowed != tt.good {
				t.Errorf("AllowN = %+v, %v, want it to work: %v", res, err, tt.good)
			}
			if tt.good && res.ResetAfter != 5*time.Second {
				t.Errorf("ResetAfter = %v, want 5s", res.ResetAfter)
			}
			_, err = l.PeekMany(t.Context(), [][]string{{"u"}})
			if err2 := l.Reset(t.Context(), "u"); (err == nil) != tt.good || (err2 == nil) != tt.good {
				t.Errorf("PeekMany and Reset: %v, %v, want them to work: %v", err, err2, tt.good)
			}
			if st.times > 0 || !tt.good && st.evals+st.mgets > 0 {
				t.Error("the store was asked")
			}
		})
	}
}
