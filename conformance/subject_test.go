package conformance

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// TestBuiltIn shows, briefly, that every built-in algorithm passes the checks of any
// algorithm.
func TestBuiltIn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		maker func(*rand.Rand) algorithm.Algorithm
		lacks []string // checks of verbs that it does not have
		huge  []algorithm.Algorithm
	}{
		{"GCRA", anyGCRA, nil, []algorithm.Algorithm{
			algorithm.GCRA{Rate: algorithm.PerSecond(1_000_000), Burst: algorithm.MaxSpan},
			largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
				return algorithm.GCRA{Rate: algorithm.Rate{Count: algorithm.MaxSpan / 1000, Period: time.Second}, Burst: n}
			}),
			largest(algorithm.MaxTokens, func(n int64) algorithm.Algorithm {
				return algorithm.GCRA{Rate: algorithm.PerSecond(3_000_001), Burst: n}
			}),
		}},
		{"TokenBucket", anyTokenBucket, nil, []algorithm.Algorithm{
			algorithm.TokenBucket{Capacity: 1 << 52, Refill: algorithm.PerSecond(1_000_000)},
		}},
		{"LeakyBucket", anyLeakyBucket, nil, []algorithm.Algorithm{
			algorithm.LeakyBucket{Rate: algorithm.PerSecond(1_000_000), Queue: 1<<52 - 1},
		}},
		{"FixedWindow", anyFixedWindow, []string{"Algorithm/MaxWait"}, []algorithm.Algorithm{
			algorithm.FixedWindow{Limit: algorithm.MaxTokens, Window: algorithm.MaxSpan * time.Microsecond},
		}},
		{"MetadataWindow", anyMetadataWindow, []string{"Algorithm/Refund", "Algorithm/MaxWait"}, []algorithm.Algorithm{
			algorithm.MetadataWindow{Limit: algorithm.MaxLog, Window: algorithm.MaxSpan * time.Microsecond},
		}},
		{"SlidingBuckets", anySlidingBuckets, []string{"Algorithm/MaxWait"}, []algorithm.Algorithm{
			algorithm.SlidingBuckets{Width: time.Hour, Spans: []algorithm.Span{{Window: 128 * time.Hour, Limit: algorithm.MaxTokens}}},
		}},
		{"SlidingCounter", anySlidingCounter, []string{"Algorithm/MaxWait"}, []algorithm.Algorithm{
			algorithm.SlidingCounter{Limit: algorithm.MaxCounter, Window: algorithm.MaxSpan / 4 * time.Microsecond},
		}},
		{"SlidingLog", anySlidingLog, []string{"Algorithm/MaxWait"}, []algorithm.Algorithm{
			algorithm.SlidingLog{Limit: algorithm.MaxLog, Window: algorithm.MaxSpan * time.Microsecond},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := mutation{}.backend()
			b.Seed, b.brief = 0, true
			b.Record = func(o Outcome) {
				if lacks := slices.Contains(tt.lacks, o.Rule); o.Passed == lacks || lacks != strings.HasPrefix(o.Skipped, "algorithm has no ") {
					t.Errorf("%s: passed %v, skipped %q", o.Rule, o.Passed, o.Skipped)
				}
			}
			RunAlgorithm(t, b, Subject{New: tt.maker, Unit: unitOf, Huge: tt.huge})
		})
	}
}
