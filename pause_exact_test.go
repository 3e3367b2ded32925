package weir_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
)

// RetryAfter is exact with pauses beside other rules: 1 µs earlier, the request is
// denied, and then it is allowed, whatever its op, its cost and its MaxWait are.
func TestPauseExact(t *testing.T) {
	t.Parallel()
	denied := map[string]int{}
	for seed := range uint64(50) {
		rnd, c := rand.New(rand.NewPCG(seed, 1)), weirtest.NewClock()
		rules := []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.Pause{}},
			{Name: "user", Algorithm: algorithm.Pause{}},
			{Name: "rate", Algorithm: algorithm.GCRA{Rate: algorithm.PerSecond(1), Burst: 4}},
			{Name: "queue", By: []string{"tenant"}, Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerSecond(2), Queue: 5}},
		}
		rnd.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
		l := weirtest.NewPolicy(t, weirtest.NewStore(c), weir.Policy{Name: "t", Segments: []string{"tenant", "user"}, Rules: rules})
		pauses := [2]*weir.Limiter{weirtest.Only(t, l, "tenant"), weirtest.Only(t, l, "user")}
		for range 100 {
			r := weir.Request{Key: weir.KeyOf("a", weirtest.Number(rnd.IntN(2))), Op: weir.Op(rnd.IntN(4)), Cost: 1 + rnd.Int64N(3)}
			if r.Op <= weir.Peek && rnd.IntN(2) == 0 {
				r.MaxWait = time.Duration(1+rnd.IntN(2_000_000)) * time.Microsecond
			}
			if rnd.IntN(4) == 0 {
				pause(t, pauses[rnd.IntN(2)], time.Duration(1+rnd.IntN(2_000_000))*time.Microsecond, r.Key.Segments()...)
			}
			res := weirtest.Decide(t, l, r)
			if res.Allowed {
				if res.Delay > r.MaxWait {
					t.Fatalf("seed %d: %+v: got the Delay %v", seed, r, res.Delay)
				}
				c.Advance(time.Duration(rnd.IntN(500_000)) * time.Microsecond)
				continue
			}
			denied[res.Rule]++
			if r.Op == weir.TakeUpTo {
				r.Cost = 1
			}
			r.Op = weir.Peek
			c.Advance(res.RetryAfter - time.Microsecond)
			if early := weirtest.Decide(t, l, r); early.Allowed {
				t.Fatalf("seed %d: %+v was denied for %v, and is allowed 1 µs earlier", seed, r, res.RetryAfter)
			}
			c.Advance(time.Microsecond)
			if late := weirtest.Decide(t, l, r); !late.Allowed {
				t.Fatalf("seed %d: %+v was denied for %v, and then for %v by %q", seed, r, res.RetryAfter, late.RetryAfter, late.Rule)
			}
		}
	}
	if len(denied) != 4 {
		t.Errorf("the denials were %v, want some of each rule", denied)
	}
}

// If a pause lasts longer than a decision is known, a repeated request is decided again.
func TestPauseOutlastsDecision(t *testing.T) {
	t.Parallel()
	c := weirtest.NewClock()
	l := weirtest.NewPolicy(t, weirtest.NewStore(c), weirtest.Rules(pauseRule, rateRule))
	r := weir.Request{Key: weir.KeyOf("u"), ID: "1", Cost: 5} // refilled in 5 s
	weirtest.Allow(t, l, r)
	pause(t, l, 6*time.Second, "u")
	if res := weirtest.Decide(t, l, r); res.Allowed || !res.Replayed || res.RetryAfter != 6*time.Second {
		t.Errorf("during the pause: got %+v", res)
	}
	c.Advance(6 * time.Second)
	if res := weirtest.Allow(t, l, r); res.Replayed || res.Remaining != 0 {
		t.Errorf("after the pause: got %+v, want a new decision", res)
	}
}
