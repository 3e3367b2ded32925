package switchover_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/migrate/switchover"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

const burst = 5

// limiters returns two limiters of 1 request per second and a burst of 5.
func limiters(t *testing.T, st store.Store) (old, next switchover.Allow) {
	t.Helper()
	peer := rate.NewLimiter(1, burst)
	lim, err := weir.New("api", st, algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: burst}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func(context.Context, string) (bool, error) { return peer.Allow(), nil },
		func(ctx context.Context, key string) (bool, error) {
			res, err := lim.Allow(ctx, key)
			return res.Allowed, err
		}
}

// allowed returns how many of ten requests per second are allowed in a time.
func allowed(t *testing.T, allow switchover.Allow, d time.Duration) int {
	t.Helper()
	n := 0
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		ok, err := allow(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			n++
		}
	}
	return n
}

// Around the switch, a caller that is always over the limit gets a burst more if the
// limiter is simply replaced, and nothing more if both decided before, for as long as the
// burst takes to refill.
func TestSwitch(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(old, next switchover.Allow) switchover.Allow
		more   int
	}{
		{"replaced", func(old, _ switchover.Allow) switchover.Allow { return old }, burst},
		{"shadow", func(old, next switchover.Allow) switchover.Allow {
			return switchover.Shadow(old, next, func(string, bool, error) {})
		}, 0},
		{"both", switchover.Both, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old, next := limiters(t, memory.New(nil))
				n := allowed(t, tt.before(old, next), 10*time.Second+50*time.Millisecond)
				n += allowed(t, next, 10*time.Second)
				if want := burst + 19 + tt.more; n < want || n > want+1 {
					t.Errorf("%d requests were allowed in 20 s, want %d", n, want)
				}
			})
		})
	}
}

// While some processes have the old limiter and some the new one, a caller gets both
// limits.
func TestRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := limiters(t, memory.New(nil))
		turn := 0
		n := allowed(t, func(ctx context.Context, key string) (bool, error) {
			if turn++; turn%2 == 0 {
				return old(ctx, key)
			}
			return next(ctx, key)
		}, 20*time.Second)
		if want := 2 * (burst + 19); n < want || n > want+2 {
			t.Errorf("%d requests were allowed in 20 s, want %d", n, want)
		}
	})
}

// Shadow answers as the old limiter does, and reports each difference, even an error.
func TestShadow(t *testing.T) {
	outage := errors.New("no answer")
	decide := func(allowed bool, err error) switchover.Allow {
		return func(context.Context, string) (bool, error) { return allowed, err }
	}
	for _, tt := range []struct {
		name      string
		old, next switchover.Allow
		allowed   bool
		err       error
		reports   int
	}{
		{"both allow", decide(true, nil), decide(true, nil), true, nil, 0},
		{"the new one denies", decide(true, nil), decide(false, nil), true, nil, 1},
		{"the old one denies", decide(false, nil), decide(true, nil), false, nil, 1},
		{"the new one fails", decide(false, nil), decide(false, outage), false, nil, 1},
		{"the old one fails", decide(false, outage), decide(true, nil), false, outage, 0},
	} {
		reports := 0
		got, err := switchover.Shadow(tt.old, tt.next, func(string, bool, error) { reports++ })(t.Context(), "ann")
		if got != tt.allowed || !errors.Is(err, tt.err) || reports != tt.reports {
			t.Errorf("%s: got %v, %v and %d reports", tt.name, got, err, reports)
		}
	}
}
