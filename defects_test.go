package weir_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// If a key was reset or deleted after a decision, a refund of the decision does not
// change the key. The new state of the key does not depend on earlier refunds.
func TestDefectRefundAfterReset(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"Reset", "deleted", "deleted with the markers"} {
		for _, tt := range []struct {
			a    algorithm.Algorithm
			left int64 // tokens left 10 s after 20 tokens were consumed from a fresh key
		}{
			{algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 100}, 90},
			{algorithm.GCRA{Rate: algorithm.Rate{Count: 3, Period: 3*time.Second + 1}, Burst: 100}, 90},
			{algorithm.TokenBucket{Refill: algorithm.PerSecond(1), Capacity: 100}, 90},
			{algorithm.FixedWindow{Limit: 100, Window: time.Hour}, 90},
			{algorithm.SlidingLog{Limit: 100, Window: time.Hour}, 90},
			{algorithm.SlidingCounter{Limit: 100, Window: time.Hour}, 90},
			{algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: time.Hour, Limit: 100}}}, 90},
		} {
			t.Run(fmt.Sprintf("%s/%T", way, tt.a), func(t *testing.T) {
				t.Parallel()
				c := weirtest.NewClock()
				st := weirtest.NewStore(c)
				l := weirtest.New(t, st, tt.a)
				request := func(cost int64, id string) weir.Request {
					return weir.Request{Key: weir.KeyOf("u"), Cost: cost, ID: id}
				}
				refund := func(id string) bool {
					gave, err := l.Refund(t.Context(), request(0, id))
					if err != nil {
						t.Error(err)
					}
					return gave.Found
				}
				weirtest.Allow(t, l, request(30, ""))
				weirtest.Allow(t, l, request(10, "old"))
				weirtest.Allow(t, l, request(20, "a"))
				if !refund("a") {
					t.Error("nothing was refunded")
				}
				switch way {
				case "Reset":
					if err := l.Reset(t.Context(), "u"); err != nil {
						t.Fatal(err)
					}
				default:
					for _, key := range keysIn(st) {
						if way != "deleted" || !strings.Contains(key, "%id=") {
							remove(t, st, key)
						}
					}
				}
				weirtest.Allow(t, l, request(10, "d"))
				weirtest.Allow(t, l, request(10, ""))
				if refund("old") {
					t.Error("tokens of the old key were refunded")
				}
				if res := weirtest.Left(t, l, "u"); res.Remaining != 80 {
					t.Errorf("after it: %d left, want 80", res.Remaining)
				}
				c.Advance(10 * time.Second)
				refund("d")
				if res := weirtest.Left(t, l, "u"); res.Remaining > tt.left {
					t.Errorf("in the end: %d left, want at most %d", res.Remaining, tt.left)
				}
			})
		}
	}
}

// Just after a refund, a rule has at most as many tokens as if the request had not been
// made. If the request started a window or a period, the window or period keeps its end.
// Tokens can then be refilled earlier, by at most the length of the window or period.
func TestDefectRefundOfFirstRequest(t *testing.T) {
	t.Parallel()
	for _, a := range []algorithm.Algorithm{
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerMinute(10), AtOnce: true},
		algorithm.FixedWindow{Limit: 10, Window: time.Minute},
		algorithm.GCRA{Rate: algorithm.PerMinute(10), Burst: 10},
		algorithm.TokenBucket{Capacity: 10, Refill: algorithm.PerMinute(10)},
	} {
		t.Run(fmt.Sprintf("%+v", a), func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			st := weirtest.NewStore(c)
			with := weirtest.New(t, st, a)
			without, err := weir.New("without", st, a, nil)
			if err != nil {
				t.Fatal(err)
			}
			u := weir.KeyOf("u")
			weirtest.Allow(t, with, weir.Request{Key: u, ID: "a"})
			c.Advance(50 * time.Second)
			for _, l := range []*weir.Limiter{with, without} {
				if res := weirtest.Allow(t, l, weir.Request{Key: u, Cost: 9}); res.Remaining > 1 {
					t.Fatalf("got %+v", res)
				}
			}
			if _, err := with.Refund(t.Context(), weir.Request{Key: u, ID: "a"}); err != nil {
				t.Fatal(err)
			}
			if got, most := weirtest.Left(t, with, "u").Remaining, weirtest.Left(t, without, "u").Remaining; got > most {
				t.Errorf("after the refund: %d left, and %d if the request had never been made", got, most)
			}
			var later []int64 // the tokens left in with, a minute ago
			for i := range 130 {
				got, most := weirtest.Left(t, with, "u").Remaining, weirtest.Left(t, without, "u").Remaining
				later = append(later, got)
				if i >= 60 && most < later[i-60] {
					t.Errorf("%d s after the refund: %d left if the request had never been made, and %d a minute before with it", i, most, later[i-60])
				}
				c.Advance(time.Second)
			}
		})
	}
}

// If an ID is used again after a Reset, refunds of decisions before the Reset still
// refund nothing.
func TestDefectReusedID(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	st := weirtest.NewStore(c)
	l, err := weir.New("api", st, weirtest.Window(20, time.Hour), &weir.Options{Clock: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	key := weir.KeyOf("u")
	weirtest.Allow(t, l, weir.Request{Key: key, Cost: 3, ID: "x"})
	weirtest.Allow(t, l, weir.Request{Key: key, Cost: 4, ID: "y"})
	if err := l.Reset(t.Context(), "u"); err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Microsecond)
	if gave, err := l.Refund(t.Context(), weir.Request{Key: key, ID: "x"}); gave.Found || err != nil { // it ends the ID
		t.Errorf("Refund of a decision before the Reset = %v, %v, want false", gave, err)
	}
	weirtest.Allow(t, l, weir.Request{Key: key, Cost: 10, ID: "x"})
	if gave, err := l.Refund(t.Context(), weir.Request{Key: key, ID: "y"}); gave.Found || err != nil {
		t.Errorf("Refund of a decision before the Reset = %v, %v, want false", gave, err)
	}
	if res := weirtest.Left(t, l, "u"); res.Remaining != 10 {
		t.Errorf("%d tokens remain, want 10", res.Remaining)
	}
}
