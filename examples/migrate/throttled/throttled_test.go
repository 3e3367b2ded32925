package throttled_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	peer "github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/migrate/internal/traffic"
	"github.com/weir-go/weir/examples/migrate/throttled"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := memstore.NewCtx(0)
		if err != nil {
			t.Fatal(err)
		}
		before, err := throttled.Before(st, traffic.OK)
		if err != nil {
			t.Fatal(err)
		}
		after, err := throttled.After(memory.New(nil), traffic.OK)
		if err != nil {
			t.Fatal(err)
		}
		traffic.Play(t, []traffic.Row{
			{At: 0, Key: "ann", Before: "200 3 2 10 -"},
			{At: 0, Key: "ann", Before: "200 3 1 20 -"},
			{At: 0, Key: "bob", Before: "200 3 2 10 -"},
			{At: 0, Key: "ann", Before: "200 3 0 30 -"},
			{At: 0, Key: "ann", Before: "429 3 0 30 10"},
			{At: 8500 * time.Millisecond, Key: "ann", Before: "429 3 0 22 2"},
			{At: 10 * time.Second, Key: "ann", Before: "200 3 0 30 -"},
			{At: 30 * time.Second, Key: "ann", Before: "200 3 1 20 -"},
			{At: time.Hour, Key: "ann", Before: "200 3 2 10 -"},
			{At: time.Hour, Key: "", Before: "200 3 2 10 -", After: "400 - - - -"},
			{At: time.Hour, Key: "", Before: "200 3 1 20 -", After: "400 - - - -"}, // one limit for all without the field
		}, time.Sleep, traffic.Ask(before), traffic.Ask(after))
	})
}

// An error of the store is a 500 before, and a 503 after.
func TestOutage(t *testing.T) {
	before, err := throttled.Before(brokenPeer{}, traffic.OK)
	if err != nil {
		t.Fatal(err)
	}
	after, err := throttled.After(broken{memory.New(nil)}, traffic.OK)
	if err != nil {
		t.Fatal(err)
	}
	traffic.Play(t, []traffic.Row{{Key: "ann", Before: "500 - - - -", After: "503 - - - -"}},
		func(time.Duration) {}, traffic.Ask(before), traffic.Ask(after))
}

type brokenPeer struct{ peer.GCRAStoreCtx }

func (brokenPeer) GetWithTime(context.Context, string) (int64, time.Time, error) {
	return 0, time.Time{}, errors.New("no answer")
}

type broken struct{ store.Store }

func (broken) Eval(context.Context, *store.Script, []string, []store.Arg, []store.Value) ([]store.Value, error) {
	return nil, store.ErrUnavailable
}

// What a caller sees, besides what the traffic shows.
func TestDifferences(t *testing.T) {
	st, err := memstore.NewCtx(0)
	if err != nil {
		t.Fatal(err)
	}
	before, err := peer.NewGCRARateLimiterCtx(st, peer.RateQuota{MaxRate: peer.PerMin(6), MaxBurst: 2})
	if err != nil {
		t.Fatal(err)
	}
	after, err := weir.New("api", memory.New(nil), algorithm.GCRA{Rate: algorithm.PerMinute(6), Burst: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	limited, old, err := before.RateLimitCtx(t.Context(), "ann", 4)
	res, err2 := after.AllowN(t.Context(), 4, "ann")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if !limited || old.RetryAfter != -1 || res.Allowed || res.RetryAfter != weir.Never {
		t.Errorf("above the burst: got %v with %+v, and %+v", limited, old, res)
	}
	limited, old, err = before.RateLimitCtx(t.Context(), "ann", 3)
	res, err2 = after.AllowN(t.Context(), 3, "ann")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if limited || old.RetryAfter != -1 || !res.Allowed || res.RetryAfter != 0 {
		t.Errorf("allowed: got %v with %+v, and %+v", limited, old, res)
	}
	// A quantity of 0 is never limited. Peek says whether a token is left.
	limited, old, err = before.RateLimitCtx(t.Context(), "ann", 0)
	res, err2 = after.Peek(t.Context(), "ann")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if limited || old.Remaining != 0 || res.Allowed || res.Remaining != 0 {
		t.Errorf("Peek: got %v with %+v, and %+v", limited, old, res)
	}
	if _, err := after.AllowN(t.Context(), 0, "ann"); !errors.Is(err, weir.ErrInvalidCost) {
		t.Errorf("AllowN of 0: got %v", err)
	}
}
