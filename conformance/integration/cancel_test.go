package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
	"github.com/weir-go/weir/store"
)

// TestCancel measures the time from a cancellation, of a context without a deadline,
// until a call to a silent server returns.
func TestCancel(t *testing.T) {
	servers.Need(t)
	const asked, atOnce = 50 * time.Millisecond, 300 * time.Millisecond
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			server, _ := a.single(t)
			var lim *weir.Limiter
			eventually(t, "a decision", func(ctx context.Context) error { // the machine can be slow
				st, closeClient, err := a.bounded(server.Endpoint, shortTimeout)
				if err != nil {
					return err
				}
				t.Cleanup(closeClient)
				lim, err = weir.New("cancel", st, algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
				if err == nil {
					_, err = lim.Allow(ctx, "a")
				}
				return err
			})
			server.Nodes[0].Pause(t)
			quickest := time.Hour // of three calls, because the machine can be slow
			for calls, late := 0, 0; calls < 3; {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(asked, cancel)
				start := time.Now()
				_, err := lim.Allow(ctx, "a")
				if errors.Is(err, store.ErrUnavailable) && late < 10 { // shortTimeout ended before asked was seen
					late++
					continue
				}
				calls++
				if !errors.Is(err, context.Canceled) {
					t.Fatalf("got %v, want %v", err, context.Canceled)
				}
				quickest = min(quickest, time.Since(start)-asked)
			}
			t.Logf("it returned %v after the cancellation", quickest.Round(time.Millisecond))
			if most := a.late + atOnce; quickest > most {
				t.Errorf("it returned %v after the cancellation: want at most %v", quickest, most)
			}
		})
	}
}
