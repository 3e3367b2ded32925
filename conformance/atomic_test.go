package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/stores"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

// atomicCheck returns the check Store/Atomic.
func atomicCheck() suite.Check {
	return stores.Checks[slices.IndexFunc(stores.Checks, func(c suite.Check) bool { return c.Name == "Atomic" })]
}

// TestNotAtomic shows that Store/Atomic names the promise that a store breaks whose scripts are
// not atomic.
func TestNotAtomic(t *testing.T) {
	t.Parallel()
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
			got := suite.Run(t, tt.m.host(), atomicCheck())
			if !strings.Contains(strings.Join(got.Failures, "\n"), "a script is not atomic: ") {
				t.Errorf("got failures %q, want a script that is not atomic", got.Failures)
			}
		})
	}
}

// TestClockSteps shows that Store/Atomic passes if the clock steps back twice, as a
// server's does at times, and fails if it does so three times.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		ahead := []int64{50, 120, 200}[:n]
		wrong := mutation{tx: func(_ *fake, s *store.Script, _ []store.Arg, tx store.Tx) store.Tx {
			if s != scripts.CounterThree {
				return tx
			}
			var counted int64
			return txFunc{Tx: tx,
				get: func(i int, n store.Nums, ok bool, err error) (store.Nums, bool, error) {
					if i == 1 { // the second of three keys, in both orders
						counted = n.N[0]
					}
					return n, ok, err
				},
				now: func() int64 {
					if slices.Contains(ahead, counted) {
						return tx.Now() + time.Minute.Microseconds()
					}
					return tx.Now()
				},
			}
		}}
		c := suite.Run(t, wrong.host(), atomicCheck())
		if failed := len(c.Failures) > 0; failed != (n > 2) {
			t.Errorf("the clock stepped back %d times: Store/Atomic returned the failures %q", n, c.Failures)
		}
	}
}
