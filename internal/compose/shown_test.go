package compose_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/internal/compose"
)

// A result describes the rule with the fewest tokens remaining, or the rule that denies
// for the longest time. Of equal rules, it is the first.
func TestShown(t *testing.T) {
	t.Parallel()
	const request, own = compose.CostRequest, compose.CostOwn
	type answer struct {
		remaining    int64
		retry, delay time.Duration
		by           compose.CostBy
		granted      int64
	}
	for _, tt := range []struct {
		name    string
		allowed bool
		answers []answer
		rule    int
		delay   time.Duration
		granted int64
	}{
		{"one rule", true, []answer{{9, 0, 1, request, 2}}, 0, 1, 2},
		{"the least remaining", true, []answer{{9, 0, 5, request, 2}, {3, 0, 1, own, 7}, {3, 0, 2, own, 8}}, 1, 5, 2},
		{"every rule has a Cost", true, []answer{{9, 0, 0, own, 6}, {3, 0, 0, own, 7}}, 1, 0, 7},
		{"the longest RetryAfter", false, []answer{{9, 0, 0, request, 0}, {3, 4, 0, request, 0}, {0, 7, 0, own, 0}, {0, 7, 0, own, 0}}, 2, 0, 0},
	} {
		s := compose.Shown{Allowed: tt.allowed}
		for i, a := range tt.answers {
			s.Add(i, a.remaining, a.retry, a.delay)
			s.Grant(a.by == request, a.granted)
		}
		got, ok := s.Granted()
		if !ok {
			got = tt.answers[s.Rule].granted
		}
		if s.Rule != tt.rule || s.Delay != tt.delay || got != tt.granted {
			t.Errorf("%s: got rule %d, delay %v, granted %d, want %d, %v, %d", tt.name, s.Rule, s.Delay, got, tt.rule, tt.delay, tt.granted)
		}
	}
}
