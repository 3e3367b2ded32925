package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/conformance/internal/stores"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// TestNotAtomic shows that Store/Atomic names the promise that a store breaks whose scripts are
// not atomic.
func TestNotAtomic(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(stores.Checks, func(c suite.Check) bool { return c.Name == "Atomic" })
	for _, tt := range []struct {
		name string
		m    mutation
	}{
		{"the write of a step is lost", mutation{eval: func(f *fake, ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
			f.mu.Lock()
			n, _ := f.memo.(int)
			f.memo = n + 1
			f.mu.Unlock()
			if n%10 != 5 {
				return f.right(ctx, s, keys, args, reply)
			}
			read := store.NewScript("read", "", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
				return s.GoForm()(writeLater{tx, new([]func(store.Tx))}, args, reply)
			})
			return f.Store.Eval(ctx, read, keys, args, reply)
		}}},
		{"a step reads one key before the step of another call, and one key after it", changed(func(_ *store.Script, _ []string, reply []store.Value) {
			if n := reply[0].Int(); n%10 == 5 {
				reply[0] = store.IntegerValue(n - 1)
			}
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := suite.Run(t, tt.m.host(), stores.Checks[i])
			if len(got.Failures) == 0 || !strings.Contains(got.Failures[0], "a script is not atomic: ") {
				t.Errorf("got failures %q, want a script that is not atomic", got.Failures)
			}
		})
	}
}
