package memory_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store/memory"
)

// A decision on a key that the store holds allocates nothing, through the limiter and
// whatever the answer is.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	st := memory.New(nil)
	hour := algorithm.FixedWindow{Limit: 1 << 40, Window: time.Hour}
	fast := algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 1 << 40}
	slow := algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}
	ring := algorithm.SlidingBuckets{Width: time.Minute, Spans: []algorithm.Span{{Window: 16 * time.Minute, Limit: 1 << 40}, {Window: time.Minute, Limit: 1 << 30}}}
	full := algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 128 * time.Hour, Limit: 1}}}
	ctx := t.Context()
	user, ip := "user:1000", "192.0.2.1"
	each := make([]weir.Result, 2)
	for _, tt := range []struct {
		name  string
		rules []weir.Rule
		call  func(*weir.Limiter) (weir.Result, error)
		want  bool
	}{
		{"GCRA", []weir.Rule{{Name: "g", Algorithm: fast}}, func(l *weir.Limiter) (weir.Result, error) { return l.Allow(ctx, user) }, true},
		{"GCRA, cost 7", []weir.Rule{{Name: "g7", Algorithm: fast}}, func(l *weir.Limiter) (weir.Result, error) { return l.AllowN(ctx, 7, user) }, true},
		{"GCRA, denied", []weir.Rule{{Name: "gd", Algorithm: slow}}, func(l *weir.Limiter) (weir.Result, error) { return l.Allow(ctx, user) }, false},
		{"GCRA, peek", []weir.Rule{{Name: "gp", Algorithm: fast}}, func(l *weir.Limiter) (weir.Result, error) { return l.Peek(ctx, user) }, true},
		{"FixedWindow", []weir.Rule{{Name: "w", Algorithm: hour}}, func(l *weir.Limiter) (weir.Result, error) { return l.Allow(ctx, user) }, true},
		{"SlidingBuckets", []weir.Rule{{Name: "s", Algorithm: ring}}, func(l *weir.Limiter) (weir.Result, error) { return l.Allow(ctx, user) }, true},
		{"SlidingBuckets, denied", []weir.Rule{{Name: "sd", Algorithm: full}}, func(l *weir.Limiter) (weir.Result, error) { return l.Allow(ctx, user) }, false},
		{"a ring and a rate", []weir.Rule{{Name: "e", By: []int{0}, Algorithm: ring}, {Name: "f", Algorithm: fast}},
			func(l *weir.Limiter) (weir.Result, error) { return l.AllowN(ctx, 3, user, ip) }, true},
		{"two rules", []weir.Rule{{Name: "a", By: []int{0}, Algorithm: hour}, {Name: "b", Algorithm: fast}},
			func(l *weir.Limiter) (weir.Result, error) { return l.Allow(ctx, user, ip) }, true},
		{"two rules, each", []weir.Rule{{Name: "c", By: []int{0}, Algorithm: hour}, {Name: "d", By: []int{0, 1}, Algorithm: slow}},
			func(l *weir.Limiter) (weir.Result, error) {
				return l.Do(ctx, weir.Request{Path: []string{user, ip}, Cost: 1, Each: each})
			}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, err := weir.NewRules(st, tt.rules, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tt.call(l); err != nil {
				t.Fatal(err)
			}
			var res weir.Result
			if got := testing.AllocsPerRun(1000, func() { res, err = tt.call(l) }); got != 0 {
				t.Errorf("%v allocations, want 0", got)
			}
			if err != nil || res.Allowed != tt.want {
				t.Errorf("got %+v, %v, want allowed: %v", res, err, tt.want)
			}
		})
	}
}
