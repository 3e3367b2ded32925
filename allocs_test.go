package weir_test

import (
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
)

// The size of a Result is a multiple of 16 bytes. A Result is copied in parts of 16
// bytes. With another size, the last two parts overlap, and a processor waits if it soon
// copies the result of the copy. This took a twentieth of a decision in memory.
func TestResultSize(t *testing.T) {
	if size := unsafe.Sizeof(weir.Result{}); strconv.IntSize == 64 && size%16 != 0 {
		t.Errorf("a Result has %d bytes, want a multiple of 16: order the fields so that small ones are neighbours", size)
	}
}

// A decision on a key that the memory store holds allocates nothing: allowed or denied,
// and also through three wrappers.
func TestAllocations(t *testing.T) {
	if weirtest.Race {
		t.Skip("the race detector allocates")
	}
	fast := algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: 1 << 32}
	slow := algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 1}
	st := memory.New(nil)
	ctx := t.Context()
	one := weirtest.New(t, st, fast)
	denied, err := weir.New("denied", st, slow, nil)
	if err != nil {
		t.Fatal(err)
	}
	two := weirtest.NewPolicy(t, st, weir.Policy{
		Name: "two", Segments: []string{"ip", "account", "token"}, Secret: []string{"token"},
		Rules: []weir.Rule{
			{Name: "ip", By: []string{"ip"}, Algorithm: algorithm.FixedWindow{Limit: 1 << 40, Window: time.Hour}},
			{Name: "all", Algorithm: fast},
		},
	})
	units := weirtest.NewPolicy(t, st, weir.Policy{Units: []string{"input", "output", "microcents"}, Rules: []weir.Rule{
		{Name: "input", Unit: "input", Algorithm: fast}, {Name: "output", Unit: "output", Algorithm: fast}, {Name: "pause", Algorithm: algorithm.Pause{}},
	}})
	user, ip, token := "user:1000", "192.0.2.1", "a token that is longer than thirty-two bytes"
	long := strings.Repeat("{", 90)
	each := make([]weir.Result, 2)
	wrapped := weirtest.Wrap(t, two, weirtest.Pass, weirtest.Pass, weirtest.Pass)
	for _, tt := range []struct {
		name string
		call func() (weir.Result, error)
		want bool
	}{
		{"Allow", func() (weir.Result, error) { return one.Allow(ctx, "ann") }, true},
		{"Allow with a variable", func() (weir.Result, error) { return one.Allow(ctx, user) }, true},
		{"Allow with a key that is long when escaped", func() (weir.Result, error) { return one.Allow(ctx, long) }, true},
		{"AllowN", func() (weir.Result, error) { return one.AllowN(ctx, 7, user) }, true},
		{"Peek", func() (weir.Result, error) { return one.Peek(ctx, user) }, true},
		{"TakeUpTo", func() (weir.Result, error) { return one.TakeUpTo(ctx, 3, user) }, true},
		{"denied", func() (weir.Result, error) { return denied.Allow(ctx, user) }, false},
		{"MaxWait", func() (weir.Result, error) {
			return one.Decide(ctx, weir.Request{Key: weir.KeyOf(user), MaxWait: time.Second}, nil)
		}, true},
		{"two rules", func() (weir.Result, error) { return two.Allow(ctx, ip, user, token) }, true},
		{"Decide with each", func() (weir.Result, error) {
			return two.Decide(ctx, weir.Request{Key: weir.KeyOf(ip, user, token)}, each)
		}, true},
		{"Costs", func() (weir.Result, error) {
			costs := weir.CostsOf(map[string]int64{"input": 1, "output": 1, "microcents": 0})
			return units.Decide(ctx, weir.Request{Key: weir.KeyOf(user), Costs: costs}, nil)
		}, true},
		{"Allow through three wrappers", func() (weir.Result, error) { return wrapped.Allow(ctx, ip, user, token) }, true},
		{"Decide through three wrappers", func() (weir.Result, error) {
			return wrapped.Decide(ctx, weir.Request{Key: weir.KeyOf(ip, user, token), Cost: 2}, each)
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := tt.call(); err != nil {
				t.Fatal(err)
			}
			var res weir.Result
			var err error
			if got := testing.AllocsPerRun(1000, func() { res, err = tt.call() }); got != 0 {
				t.Errorf("%v allocations, want 0", got)
			}
			if err != nil || res.Allowed != tt.want {
				t.Errorf("got %+v, %v, want allowed: %v", res, err, tt.want)
			}
		})
	}
}

// KeyOf allocates nothing.
func TestKeyOfAllocations(t *testing.T) {
	ip, account := "192.0.2.1", "ann"
	var k weir.Key
	if got := testing.AllocsPerRun(1000, func() { k = weir.KeyOf(ip, account) }); got != 0 || k != weir.KeyOf(ip, account) {
		t.Errorf("%v allocations for %v, want 0", got, k)
	}
}
