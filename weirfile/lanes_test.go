package weirfile

import (
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store/memory"
)

// A plan with a lower limit keeps tokens free for requests without a plan, even if other
// processes make them.
func TestPlanIsLane(t *testing.T) {
	const text = `policies:
  api:
    segments: [tenant, user]
    rules:
      tenant: {by: [tenant], algorithm: token bucket, capacity: 10, refill: 1 per day}
      user: {algorithm: fixed window, limit: 100, window: 1h}
    plans:
      background:
        tenant: {capacity: 6}
`
	st := memory.New(nil)
	one, other := limitsOver(t, parse(t, text, nil), st), limitsOver(t, parse(t, text, nil), st)
	for _, tt := range []struct {
		limits *Limits
		plan   string
		want   int
	}{{one, "background", 6}, {other, "background", 0}, {other, "", 4}, {one, "", 0}} {
		lim, got := limiter(t, tt.limits, "api", tt.plan, "acme", "ann"), 0
		for weirtest.Decide(t, lim, weir.Request{Key: weir.KeyOf("acme", "ann")}).Allowed {
			got++
		}
		if got != tt.want {
			t.Errorf("the plan %q allowed %d requests, want %d", tt.plan, got, tt.want)
		}
	}
}
