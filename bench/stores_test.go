package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
)

// A row is what a benchmark of a store asks for a key.
type row struct {
	name  string
	ask   func(ctx context.Context, key string) error
	alone bool // from one caller
}

// A load is how many callers ask, one after the other, for how many keys.
type load struct{ callers, keys int }

// benchRows asks for each row under each load. measure calls what asks.
func benchRows(b *testing.B, rows []row, loads []load, measure func(b *testing.B, ask func())) {
	for _, l := range loads {
		draws := drawKeys(l.keys)
		for _, r := range rows {
			if r.alone && l.callers > 1 {
				continue
			}
			b.Run(fmt.Sprintf("impl=%s/callers=%d/keys=%d", r.name, l.callers, l.keys), func(b *testing.B) {
				measure(b, func() {
					fromCallers(b, l.callers, func(i int) error { return r.ask(context.Background(), draws.at(i)) })
				})
			})
		}
	}
}

// plainly measures nothing else.
func plainly(_ *testing.B, ask func()) { ask() }

// decides returns what asks for a decision over rules with an algorithm, and wants an answer.
func decides(tb testing.TB, st store.Store, want bool, a algorithm.Algorithm, rules ...string) func(context.Context, string) error {
	tb.Helper()
	var list []weir.Rule
	for _, name := range rules {
		list = append(list, weir.Rule{Name: name, Algorithm: a})
	}
	lim := newLimiter(tb, st, policy(list...), nil)
	return func(ctx context.Context, key string) error {
		res, err := lim.Allow(ctx, key)
		if err == nil && res.Allowed != want {
			err = fmt.Errorf("the request for %q: allowed %v, want %v", key, res.Allowed, want)
		}
		return err
	}
}
