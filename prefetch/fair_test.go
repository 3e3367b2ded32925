package prefetch_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/prefetch"
)

// A prefetch asks for at most a quarter of what remains, and keeps at most half of what
// it finds. If few tokens remain, requests consume them one by one.
func TestPrefetchFair(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1000, time.Hour))
	l, log := prefetching(t, other, c, prefetch.Options{})
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

	// Meanwhile, another process used almost all.
	for name, tt := range map[string]struct {
		left, cost int64
		keeps      int64
		ops        string
	}{
		"much":             {500, 1, 200, "[TakeUpTo]"},
		"half":             {300, 1, 150, "[TakeUpTo Settle]"},
		"few":              {20, 1, 10, "[TakeUpTo Settle]"},
		"one":              {1, 1, 1, "[TakeUpTo]"},
		"none":             {0, 1, 0, "[TakeUpTo]"},
		"none for a cost":  {0, 5, 0, "[TakeUpTo Consume]"},
		"the cost":         {6, 5, 5, "[TakeUpTo Settle]"},
		"less than a cost": {4, 5, 0, "[TakeUpTo Settle Consume]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := weirtest.NewClock()
			other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(2000, time.Hour))
			l, log := prefetching(t, other, c, prefetch.Options{MaxTokens: 200})
			for {
				if held := warm(t, l, log, 99); held == 199 {
					for range held {
						weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
					}
					break
				}
			}
			used := weirtest.Left(t, other, "u").Remaining - tt.left
			if used > 0 {
				weirtest.Allow(t, other, weir.Request{Key: weir.KeyOf("u"), Cost: used})
			}
			log.take()
			res, err := l.AllowN(t.Context(), tt.cost, "u")
			if err != nil || res.Allowed != (tt.left >= tt.cost) {
				t.Fatalf("got %+v, %v", res, err)
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
			for range tt.keeps - tt.cost {
				weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
			}
			if ops := log.ops(); ops != "[]" {
				t.Errorf("%s reached the store, want that the tokens are held", ops)
			}
		})
	}
}

// A process asks for its part only, if others use tokens of the key too.
func TestPrefetchPart(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(30_000, time.Hour))
	l, log := prefetching(t, other, c, prefetch.Options{})
	spend := func(n int64) {
		for range n {
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		}
	}
	for {
		if held := warm(t, l, log, 900); held == 999 {
			spend(held)
			break
		}
	}
	weirtest.Allow(t, other, weir.Request{Key: weir.KeyOf("u"), Cost: 9000})
	spend(1000) // one prefetch, which finds 9,000 tokens fewer
	want := weirtest.Left(t, other, "u").Remaining / 4 / 10
	log.take()
	spend(1)
	if calls := log.take(); len(calls) != 1 || calls[0].Cost != want || want < 100 {
		t.Errorf("%v reached the store, want a prefetch of %d tokens", calls, want)
	}
}

// When the last token is consumed, many processes together hold few tokens: of random
// programs, half of them at most a fiftieth of the limit. They had no more than a third
// of the limit before.
func TestPrefetchLastTokens(t *testing.T) {
	t.Parallel()
	const limit = 20_000
	var last []int64
	for range 9 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		c := weirtest.NewClock()
		other := weirtest.New(t, weirtest.NewStore(c), weirtest.Window(limit, time.Hour))
		processes, pools := make([]*weir.Limiter, 30), make([]*prefetch.Pool, 30)
		for i := range processes {
			l, log := prefetching(t, other, c, prefetch.Options{})
			processes[i], pools[i] = l, log.pool
		}
		held, denied, most := int64(0), false, int64(0)
		for i := 0; !denied; i++ {
			c.Advance(100 * time.Microsecond)
			res, err := processes[rng.IntN(1+rng.IntN(len(processes)))].Allow(t.Context(), "u")
			if err != nil {
				t.Fatal(err)
			}
			if denied = !res.Allowed; denied || i%1000 == 0 {
				held = 0
				for i, l := range processes {
					held += pools[i].Held(l, "u")
				}
				most = max(most, held)
			}
		}
		if held > limit/20 || most < limit/20 || most > limit/3 {
			t.Errorf("seed %d: %d of %d tokens were held at the first denial, and at most %d", seed, held, limit, most)
		}
		last = append(last, held)
	}
	if slices.Sort(last); last[len(last)/2] > limit/50 {
		t.Errorf("%d of %d tokens were held at the first denials", last, limit)
	}
}

// A number of tokens follows what a key uses: about two prefetches in each MaxAge, and
// none for a key that uses few tokens.
func TestPrefetchAdapts(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l, log := prefetching(t, weirtest.New(t, weirtest.NewStore(c), weirtest.Window(1_000_000, time.Hour)), c, prefetch.Options{MaxTokens: 500})
	for _, tt := range []struct {
		perSecond   int
		least, most int // calls in 10 s, once it is used to the rate
	}{{2, 20, 20}, {10, 18, 25}, {100, 18, 25}, {1000, 18, 25}, {2000, 38, 45}, {100, 18, 26}, {3, 25, 35}} {
		for range 2 * tt.perSecond {
			c.Advance(time.Second / time.Duration(tt.perSecond))
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		}
		log.take()
		for range 10 * tt.perSecond {
			c.Advance(time.Second / time.Duration(tt.perSecond))
			weirtest.Allow(t, l, weir.Request{Key: weir.KeyOf("u")})
		}
		if n := len(log.take()); n < tt.least || n > tt.most {
			t.Errorf("%d requests per second took %d calls in 10 s, want from %d to %d", tt.perSecond, n, tt.least, tt.most)
		}
	}
}
