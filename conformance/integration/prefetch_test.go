package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/prefetch"
)

// TestPrefetch lets several limiters that prefetch share two limits on one server. Together they
// never allow more. At the end, exactly the tokens of allowed requests are consumed.
func TestPrefetch(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		const limit = 600
		policy := weir.Policy{Name: "prefetch", Rules: []weir.Rule{
			{Name: "window", Algorithm: algorithm.FixedWindow{Limit: limit, Window: time.Hour}},
			{Name: "log", Algorithm: algorithm.SlidingLog{Limit: 2 * limit, Window: time.Hour}},
		}}
		all, err := weir.NewPolicy(p.st, policy, &weir.Options{Prefix: fmt.Sprintf("weirtest-prefetch-%x", rand.Uint64())})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = all.Reset(context.Background(), "u") })
		var calls atomic.Int64
		processes, pools := make([]*weir.Limiter, 3), make([]*prefetch.Pool, 3)
		for i := range processes {
			counter := observe.Observer(func(context.Context, observe.Decision) { calls.Add(1) })
			pools[i] = prefetch.New(&prefetch.Options{MaxTokens: 50, MaxAge: time.Minute})
			if processes[i], err = all.Wrap(pools[i].Wrap, counter.Wrap); err != nil {
				t.Fatal(err)
			}
		}
		var allowed atomic.Int64
		ask := func(requests int) { // of each of two goroutines of each process
			t.Helper()
			var wg sync.WaitGroup
			for g := range 2 * len(processes) {
				wg.Go(func() {
					for range requests {
						res, err := processes[g/2].Allow(t.Context(), "u")
						if err != nil {
							t.Error(err)
							return
						}
						if res.Allowed {
							allowed.Add(1)
						}
					}
				})
			}
			wg.Wait()
			for _, pool := range pools { // a return that takes a second, on a busy machine, is owed
				eventually(t, "tokens to be returned", pool.Return)
			}
			each := make([]weir.Result, len(policy.Rules))
			if _, err := all.Decide(t.Context(), weir.Request{Key: weir.KeyOf("u"), Op: weir.Peek}, each); err != nil {
				t.Error(err)
			}
			for i, max := range []int64{limit, 2 * limit} {
				if got, want := each[i].Remaining, max-allowed.Load(); got != want {
					t.Errorf("rule %s: %d requests were allowed, and %d tokens remain, want %d", each[i].Rule, allowed.Load(), got, want)
				}
			}
		}
		ask(50)
		if n := calls.Load(); n > 200 {
			t.Errorf("300 requests took %d calls, want fewer", n)
		}
		for range 20 {
			ask(20)
		}
		if n := allowed.Load(); n != limit {
			t.Errorf("%d requests were allowed, want %d", n, limit)
		}
	})
}
