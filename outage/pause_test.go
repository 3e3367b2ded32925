package outage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
	"github.com/weir-go/weir/store"
)

// During an outage, Pause and Resume fail, and no fallback shows the rule that pauses.
// The share of Local knows no pauses.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, opts := range []outage.Options{{Fallback: outage.Closed}, {Fallback: outage.Open}, {Fallback: outage.Local, Processes: 1}} {
		st := weirtest.NewFaulty()
		bare := weirtest.NewPolicy(t, st, weirtest.Rules(weir.Rule{Name: "pause", Algorithm: algorithm.Pause{}}, weir.Rule{Name: "rate", Algorithm: weirtest.PerSecond}))
		opts.Budget = time.Minute
		l := weirtest.Wrap(t, bare, outage.New(&opts).Wrap)
		id, err := l.Pause(t.Context(), time.Hour, "u")
		if err != nil {
			t.Fatal(err)
		}
		if res := weirtest.Decide(t, l, weir.Request{Key: weir.KeyOf("u")}); res.Allowed || res.Rule != "pause" {
			t.Errorf("%v: got %+v, want it paused", opts.Fallback, res)
		}
		st.Set(weirtest.Down)
		if _, err := l.Pause(t.Context(), time.Hour, "v"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%v: Pause: %v", opts.Fallback, err)
		}
		if _, err := l.Resume(t.Context(), id, "u"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%v: Resume: %v", opts.Fallback, err)
		}
		if _, err := l.Pause(t.Context(), 0, "u"); err == nil || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%v: Pause for 0: %v, want misuse", opts.Fallback, err)
		}
		each := make([]weir.Result, 2)
		for _, r := range []weir.Request{{Cost: 2}, {Op: weir.Peek}, {Op: weir.TakeUpTo, Cost: 2}} {
			r.Key = weir.KeyOf("u")
			res := weirtest.Decide(t, l, r, each...)
			want := int64(2)
			if r.Op == weir.Peek || opts.Fallback == outage.Closed {
				want = 0
			}
			if res.Degraded == nil || res.Allowed != (opts.Fallback != outage.Closed) || res.Rule != "rate" || res.Granted != want || each[0].Rule != "pause" {
				t.Errorf("%v, %v: got %+v of %+v", opts.Fallback, r.Op, res, each)
			}
		}
	}
}
