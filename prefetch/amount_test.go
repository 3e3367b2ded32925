package prefetch_test

import (
	"math"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/prefetch"
)

// A prefetch asks for at most a quarter of what remains. If few tokens remain, requests
// consume them one by one.
func TestQuarter(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour)), c, prefetch.Options{})
	last := int64(1000)
	for range 1000 {
		res := weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		for _, r := range log.take() {
			if r.Op == weir.TakeUpTo && r.Cost > last/4 || r.Op == weir.Settle {
				t.Errorf("%v of %d tokens, when %d remained", r.Op, r.Cost, last)
			}
			if r.Op == weir.Consume && last >= 8 && last < 990 {
				t.Errorf("a single token was consumed when %d remained", last)
			}
		}
		last = res.Remaining
	}
}

// A prefetch keeps at most half of what it finds, if another process meanwhile used
// almost all. A denial is that of the store, with the same RetryAfter. A cost above half
// of MaxTokens is not prefetched, however high it is.
func TestHalf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		left, cost int64
		keeps      int64
		ops        string
	}{
		"much":               {500, 1, 200, "[TakeUpTo]"},
		"half":               {300, 1, 150, "[TakeUpTo Settle]"},
		"few":                {20, 1, 10, "[TakeUpTo Settle]"},
		"one":                {1, 1, 1, "[TakeUpTo]"},
		"none":               {0, 1, 0, "[TakeUpTo]"},
		"none for a cost":    {0, 5, 0, "[TakeUpTo Consume]"},
		"the cost":           {6, 5, 5, "[TakeUpTo Settle]"},
		"less than a cost":   {4, 5, 0, "[TakeUpTo Settle Consume]"},
		"half of MaxTokens":  {500, 100, 200, "[TakeUpTo]"},
		"a large cost":       {500, 101, 101, "[Consume]"},
		"a huge cost":        {500, 1 << 62, 0, "[Consume]"},
		"a huger cost":       {500, 1<<62 + 1, 0, "[Consume]"},
		"the largest number": {500, math.MaxInt64, 0, "[Consume]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(2000, time.Hour))
			l, log := prefetching(t, other, c, prefetch.Options{MaxTokens: 200})
			use := func(n int64) {
				for range n {
					weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
				}
			}
			for held := int64(0); held != 199; {
				held = warm(t, l, log, 99)
				if held == 199 {
					use(held)
				}
			}
			if used := weirtest.Left(t, other, "u").Remaining - tt.left; used > 0 {
				weirtest.Allow(t, other, weir.Request{Key: weir.KeyOf("u"), Cost: used})
			}
			log.take()
			want := weirtest.Decide(t, other, weir.Request{Key: weir.KeyOf("u"), Op: weir.Peek, Cost: tt.cost})
			res, err := l.AllowN(t.Context(), tt.cost, "u")
			if err != nil || res.Allowed != want.Allowed || res.RetryAfter != want.RetryAfter {
				t.Fatalf("got %+v, %v, want %+v", res, err, want)
			}
			if ops := log.ops(); ops != tt.ops {
				t.Errorf("%s reached the store, want %s", ops, tt.ops)
			}
			if kept := tt.left - weirtest.Left(t, other, "u").Remaining; kept != tt.keeps {
				t.Errorf("%d tokens were kept of %d, want %d", kept, tt.left, tt.keeps)
			}
			if res.Allowed && res.Remaining != tt.left-tt.cost {
				t.Errorf("%d remain, want %d", res.Remaining, tt.left-tt.cost)
			}
			if use(tt.keeps - tt.cost); log.ops() != "[]" {
				t.Error("a request reached the store, want that the tokens are held")
			}
		})
	}
}

// A process asks for its part only, if others use tokens of the key too.
func TestPart(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(30_000, time.Hour))
	l, log := prefetching(t, other, c, prefetch.Options{})
	spend := func(n int64) {
		for range n {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		}
	}
	for held := int64(0); held != 999; {
		held = warm(t, l, log, 900)
	}
	spend(999)
	weirtest.Allow(t, other, weir.Request{Key: weir.KeyOf("u"), Cost: 9000})
	spend(1000) // one prefetch, which finds 9,000 tokens fewer
	want := weirtest.Left(t, other, "u").Remaining / 4 / 10
	log.take()
	spend(1)
	if calls := log.take(); len(calls) != 1 || calls[0].Cost != want || want < 100 {
		t.Errorf("%v reached the store, want a prefetch of %d tokens", calls, want)
	}
}

// A number of tokens follows what a key uses: about two prefetches in each MaxAge, and
// none for a key that uses few tokens.
func TestAdapts(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1_000_000, time.Hour)), c, prefetch.Options{MaxTokens: 500})
	for _, tt := range []struct {
		perSecond   int
		least, most int // calls in 10 s, once it is used to the rate
	}{{2, 20, 20}, {10, 18, 25}, {100, 18, 25}, {1000, 18, 25}, {2000, 38, 45}, {100, 18, 26}, {3, 25, 35}} {
		for i := range 12 * tt.perSecond {
			if i == 2*tt.perSecond {
				log.take()
			}
			c.Advance(time.Second / time.Duration(tt.perSecond))
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		}
		if n := len(log.take()); n < tt.least || n > tt.most {
			t.Errorf("%d requests per second took %d calls in 10 s, want from %d to %d", tt.perSecond, n, tt.least, tt.most)
		}
	}
}
