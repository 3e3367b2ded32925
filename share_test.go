package weir_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/algorithm/contract"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Share divides each limit over another store, with the same keys, and without wrappers
// and shadow rules. The answers of shares are compared with those of whole limits in
// package outage.
func TestShare(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st, other := weirtest.NewStore(c), weirtest.NewStore(c)
	l := weirtest.NewPolicy(t, st, weirtest.Rules(
		weir.Rule{Name: "a", Algorithm: weirtest.Window(10, time.Hour)},
		weir.Rule{Name: "b", Algorithm: algorithm.SlidingLog{Limit: 20, Window: time.Hour}, Cost: 5},
		weir.Rule{Name: "c", Algorithm: weirtest.PerSecond, Shadow: true},
	))
	weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
	broken := weirtest.Around(func(weir.Decider) denier { return denier{} })
	share, err := weirtest.Wrap(t, l, broken).Share(3, other)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		res := weirtest.Decide(t, share, weir.Request{Key: weir.KeyOf("u"), Cost: 2})
		if res.Allowed != (i == 0) || res.Shadow != nil {
			t.Errorf("request %d: got %+v", i, res)
		}
	}
	each := make([]weir.Result, 2)
	if _, err := share.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: weir.Peek}, each); err != nil || each[0].Limit != 3 || each[0].Remaining != 1 || each[1].Limit != 6 || each[1].Remaining != 1 {
		t.Errorf("got %+v, %v, want 1 of 3 and 1 of 6 left", each, err)
	}
	keys := slices.DeleteFunc(keysIn(st), func(key string) bool { return key == "weir:t:{u}:c.g2" })
	if got := keysIn(other); !slices.Equal(got, keys) || share.Store() != store.Store(other) {
		t.Errorf("the share has %q, want %q", got, keys)
	}
	for n, says := range map[int]string{
		0:  "Share: the number of processes is 0: it must be at least 1",
		5:  `rule "b": its limit is 20, and the share of each of 5 processes is less than its Cost`,
		11: `rule "a": its limit is 10, and the share of each of 11 processes is less than one token`,
	} {
		got, err := l.Share(n, other)
		if got != nil {
			t.Errorf("%d: got a limiter", n)
		}
		wantError(t, err, weir.ErrInvalidRule, says)
	}
	_, err = l.Share(2, nil)
	wantError(t, err, nil, "store is nil")
	_, err = l.Share(2, memory.New(&memory.Options{MaxKeys: -1}))
	wantError(t, err, nil, "MaxKeys is -1")
	_, err = weirtest.New(t, st, weirtest.Capped(algorithm.SlidingLog{Limit: 3000, Window: time.Minute}, 1000)).Share(2, other)
	wantError(t, err, weir.ErrUnsupported, "can consume at most 1000 at once")
}

// ShareFloor gives each of many processes one request of a small limit, and no more than
// Share of a large limit.
func TestShareFloor(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.NewPolicy(t, st, weirtest.Rules(
		weir.Rule{Name: "small", Algorithm: weirtest.Window(3, time.Hour)},
		weir.Rule{Name: "costly", Algorithm: weirtest.Window(19, time.Hour), Cost: 5},
		weir.Rule{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 2, Window: time.Hour}},
		weir.Rule{Name: "large", Algorithm: weirtest.Window(100, time.Hour)},
	))
	for n, want := range map[int][4]int64{1: {3, 19, 2, 100}, 3: {1, 6, 1, 33}, 20: {1, 6, 1, 5}, 1 << 30: {1, 6, 1, 1}} {
		share, err := l.ShareFloor(n, st)
		if err != nil {
			t.Fatal(err)
		}
		each := make([]weir.Result, 4)
		if _, err := share.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: weir.Peek}, each); err != nil {
			t.Fatal(err)
		}
		for i, limit := range want {
			if each[i].Limit != limit || !each[i].Allowed {
				t.Errorf("%d processes: got %+v, want a limit of %d", n, each[i], limit)
			}
		}
	}
	_, err := l.ShareFloor(0, st)
	wantError(t, err, weir.ErrInvalidRule, "Share: the number of processes is 0")
}

// A share cannot be divided again, and cannot get other limits: its tokens are parts of
// the whole limit.
func TestShareOfAShare(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	for _, n := range []int{1, 2} {
		share, err := weirtest.New(t, st, weirtest.PerSecond).Share(n, st)
		if err != nil {
			t.Fatal(err)
		}
		_, err = share.Share(2, st)
		wantError(t, err, weir.ErrUnsupported, "Share: the limiter is a share already")
		_, err = share.With(weir.Rule{Algorithm: weirtest.PerSecond})
		wantError(t, err, weir.ErrUnsupported, "With: the limiter is a share")
		only, err := share.Only("")
		if err != nil {
			t.Fatal(err)
		}
		_, err = only.Share(2, st)
		wantError(t, err, weir.ErrUnsupported, "Share: the limiter is a share already")
	}
}

// A hasty algorithm has the method Divide of the algorithm that it embeds, which does not
// know its lower limit.
type hasty struct{ algorithm.SlidingLog }

func (h hasty) NewLimit() (*contract.Limit, error) {
	h.Limit /= 2
	return h.SlidingLog.NewLimit()
}

func TestShareOfAnEmbeddedAlgorithm(t *testing.T) {
	t.Parallel()
	st := weirtest.NewStore(weirtest.NewClock())
	l := weirtest.New(t, st, hasty{algorithm.SlidingLog{Limit: 20, Window: time.Hour}})
	_, err := l.Share(2, st)
	wantError(t, err, weir.ErrUnsupported, "Divide of its weir_test.hasty returns a slidinglog with the limit 10: it must return a slidinglog with a limit of at most 5")
}
