package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/conformance/integration/internal/servers"
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
			st, closeClient, err := a.bounded(server.Endpoint, shortTimeout)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(closeClient)
			lim, err := weir.New("cancel", st, algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lim.Allow(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			server.Nodes[0].Pause(t)
			quickest := time.Hour // of three calls, because the machine can be slow
			for range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(asked, cancel)
				start := time.Now()
				_, err := lim.Allow(ctx, "a")
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
