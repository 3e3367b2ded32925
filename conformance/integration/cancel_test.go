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

// TestCancel measures how long after its context was cancelled, which had no
// deadline, a call to a silent server returns.
func TestCancel(t *testing.T) {
	servers.Need(t)
	const asked, atOnce = 50 * time.Millisecond, 300 * time.Millisecond
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			server, _ := a.single(t)
			st, closeClient, err := a.bounded(server.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(closeClient)
			lim, err := weir.New(st, algorithm.GCRA{Rate: algorithm.PerSecond(10), Burst: 20})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lim.Allow(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			server.Nodes[0].Pause(t)
			quickest := time.Hour // of some, as the machine may be slow
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
				t.Errorf("it returned %v after the cancellation, want %v at most", quickest, most)
			}
		})
	}
}
