package xtimerate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/examples/migrate/internal/traffic"
	"github.com/weir-go/weir/examples/migrate/xtimerate"
	"github.com/weir-go/weir/store/memory"
)

func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after, err := xtimerate.After(memory.New(nil), traffic.OK)
		if err != nil {
			t.Fatal(err)
		}
		const ok, denied = "200 - - - -", "429 - - - -"
		traffic.Play(t, []traffic.Row{
			{At: 0, Key: "ann", Before: ok},
			{At: 0, Key: "ann", Before: ok},
			{At: 0, Key: "bob", Before: ok},
			{At: 0, Key: "ann", Before: ok},
			{At: 500 * time.Millisecond, Key: "ann", Before: denied, After: "429 - - - 20"},
			{At: 19 * time.Second, Key: "ann", Before: denied, After: "429 - - - 1"},
			{At: 21 * time.Second, Key: "ann", Before: ok},
			{At: 41 * time.Second, Key: "ann", Before: ok},
			{At: 41 * time.Second, Key: "ann", Before: denied, After: "429 - - - 19"},
			{At: 41 * time.Second, Key: "", Before: ok, After: "400 - - - -"},
		}, time.Sleep, traffic.Ask(xtimerate.Before(traffic.OK)), traffic.Ask(after))
	})
}

func TestNoBurst(t *testing.T) {
	_, err := weir.New("api", memory.New(nil), algorithm.TokenBucket{Refill: algorithm.PerSecond(1)}, nil)
	if rate.NewLimiter(1, 0).Allow() || !errors.Is(err, weir.ErrInvalidLimit) {
		t.Errorf("a burst of 0: got %v, want ErrInvalidLimit", err)
	}
}

// Wait and Reserve take the same time, and give up for the same requests.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		before := rate.NewLimiter(rate.Every(20*time.Second), 3)
		after, err := weir.New("api", memory.New(nil), algorithm.TokenBucket{Capacity: 3, Refill: algorithm.Every(20 * time.Second)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Both consume the burst. Each then waits 20 s for its turn.
		if err := before.WaitN(ctx, 3); err != nil {
			t.Fatal(err)
		}
		if _, err := after.WaitN(ctx, 3, "ann"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		start := time.Now()
		go func() { done <- before.Wait(ctx) }()
		go func() { _, err := after.Wait(ctx, "ann"); done <- err }()
		for range 2 {
			if err := <-done; err != nil || time.Since(start) != 20*time.Second {
				t.Errorf("got %v after %v, want 20 s", err, time.Since(start))
			}
		}
		// A turn after the deadline: both return at once.
		soon, cancel := context.WithTimeout(ctx, 19*time.Second)
		defer cancel()
		start = time.Now()
		old := before.Wait(soon)
		_, err = after.Wait(soon, "ann")
		if old == nil || !errors.Is(err, weir.ErrDenied) || time.Since(start) != 0 {
			t.Errorf("a turn after the deadline: got %v and %v after %v", old, err, time.Since(start))
		}
		// More than the burst.
		old = before.WaitN(ctx, 4)
		if _, err = after.WaitN(ctx, 4, "ann"); old == nil || !errors.Is(err, weir.ErrDenied) {
			t.Errorf("above the burst: got %v and %v", old, err)
		}
		// A reservation, and its end.
		r := before.Reserve()
		res, err := after.Reserve(ctx, weir.Request{Key: weir.KeyOf("ann"), MaxWait: weir.Never})
		if err != nil {
			t.Fatal(err)
		}
		if r.Delay().Round(time.Microsecond) != 20*time.Second || res.Result.Delay != 20*time.Second {
			t.Errorf("Reserve: got %v and %v, want 20 s", r.Delay(), res.Result.Delay)
		}
		r.Cancel()
		if refunded, err := res.Cancel(ctx); !refunded || err != nil {
			t.Errorf("Cancel: got %v, %v", refunded, err)
		}
		time.Sleep(20 * time.Second)
		if res, err := after.Allow(ctx, "ann"); !before.Allow() || err != nil || !res.Allowed {
			t.Errorf("after Cancel: got %+v, %v", res, err)
		}
		if !before.AllowN(time.Now(), 0) {
			t.Error("x/time/rate denies no tokens")
		}
		if _, err := after.AllowN(ctx, 0, "ann"); !errors.Is(err, weir.ErrInvalidCost) {
			t.Errorf("no tokens: got %v", err)
		}
	})
}
