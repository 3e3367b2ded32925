package weirfile

import (
	"context"
	"strings"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store/memory"
)

// The results about long keys are kept too, each under its own key, without the text of
// the key. A key is valid even where a request needs amounts or a lease.
func TestOverrideOfLongKeys(t *testing.T) {
	long, asks := strings.Repeat("x", 1<<20), 0
	opts := &Options{Override: func(_ context.Context, _ string, key weir.Key) (Override, bool, error) {
		asks++
		return Override{Plan: "pro"}, key.Segments()[0] == "acme", nil
	}}
	f, err := Parse("limits.yaml", []byte("policies: {api: {segments: [tenant, user], units: [input], rules: {user: {algorithm: fixed window, limit: 1, window: 1s, unit: input}, seats: {algorithm: concurrency, limit: 1, lease: 1s}}, plans: {pro: {user: {limit: 2}}}}}\n"), opts)
	if err != nil {
		t.Fatal(err)
	}
	limits, err := f.Limits(memory.New(nil))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for tenant, want := range map[string]bool{"acme": true, "acme" + long: false} {
			s, err := limits.Source(t.Context(), "api", "", weir.KeyOf(tenant, long))
			if err != nil || s.Override != want {
				t.Errorf("%.8s: got %+v, %v", tenant, s, err)
			}
		}
	}
	if asks != 2 {
		t.Errorf("%d calls of Override for 2 keys", asks)
	}
	a, b := weir.KeyOf("a"+long, "c"), weir.KeyOf("a", long+"c")
	if askedOf("api", &a) == askedOf("api", &b) {
		t.Error("two long keys are kept as one")
	}
	for k := range limits.asked.recent {
		if k.key.Size() > 0 {
			t.Errorf("a key of %d bytes is kept", k.key.Size())
		}
	}
}
