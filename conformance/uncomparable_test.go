package conformance

import (
	"context"
	"testing"

	"github.com/weir-go/weir/conformance/internal/limiters"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A tagged store is a struct that cannot be compared, because of its map, and is passed by
// value.
type tagged struct {
	store.Store
	tags map[string]string
}

// A taggedBatcher is a tagged store with batches.
type taggedBatcher struct{ tagged }

func (b taggedBatcher) EvalBatch(ctx context.Context, calls []store.Eval) {
	for i := range calls {
		c := &calls[i]
		c.Reply, c.Err = b.Eval(ctx, c.Script, c.Keys, c.Args, c.Reply)
	}
}

// TestUncomparable shows that the store under test can be a struct that cannot be compared,
// with batches and without.
func TestUncomparable(t *testing.T) {
	t.Parallel()
	for _, wrap := range []func(tagged) store.Store{
		func(st tagged) store.Store { return st },
		func(st tagged) store.Store { return taggedBatcher{st} },
	} {
		h := suite.Host{New: func(*testing.T) store.Store { return wrap(tagged{memory.New(nil), map[string]string{"region": "eu"}}) }, Brief: true}
		for _, c := range limiters.Checks {
			if c.Name != "Mix" && c.Name != "Reset" {
				continue
			}
			if r := suite.Run(t, h, c); len(r.Failures) > 0 {
				t.Errorf("%T, %s: %q", h.New(t), c.Name, r.Failures)
			}
		}
	}
}
