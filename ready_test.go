package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// Ready runs the scripts of every algorithm, and leaves no key.
func TestReady(t *testing.T) {
	t.Parallel()
	for _, p := range []weir.Policy{
		weirtest.Rules(weir.Rule{Algorithm: weirtest.PerSecond}),
		weirtest.Rules(weir.Rule{Algorithm: algorithm.FixedWindow{Limit: 1, Window: time.Hour}}),
		weirtest.Rules(weir.Rule{Algorithm: algorithm.MetadataWindow{Limit: 1, Window: time.Hour}}),
		weirtest.Rules(weir.Rule{Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Hour}, Cost: 3}),
		weirtest.Rules(weir.Rule{Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Hour}}),
		weirtest.Rules(
			weir.Rule{Name: "a", Algorithm: algorithm.Concurrency{Limit: 1, Lease: time.Hour}},
			weir.Rule{Name: "b", Algorithm: algorithm.SlidingBuckets{Width: time.Second, Spans: []algorithm.Span{{Window: time.Minute, Limit: 9}}}},
			weir.Rule{Name: "next", Algorithm: weirtest.PerSecond, Shadow: true},
		),
		{Units: []string{"u", "v", "w"}, Rules: []weir.Rule{
			{Name: "w", Unit: "w", Algorithm: weirtest.PerSecond},
			{Name: "v", Unit: "v", Algorithm: algorithm.SlidingLog{Limit: 3, Window: time.Hour}, Shadow: true},
		}},
		{Segments: []string{"tenant", "user", "token"}, Secret: []string{"token"}, Rules: []weir.Rule{
			{Name: "a", By: []string{"tenant"}, Algorithm: weirtest.PerSecond},
			{Name: "b", By: []string{"tenant", "token"}, Algorithm: algorithm.LeakyBucket{Rate: algorithm.PerHour(1)}},
		}},
	} {
		st := memory.New(nil)
		asked := map[string]bool{}
		l := weirtest.NewPolicy(t, &keyed{st, func(key string) { asked[key] = true }}, p)
		broken := weirtest.Around(func(weir.Decider) denier { return denier{} })
		if err := weirtest.Wrap(t, l, broken).Ready(t.Context()); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
		if keys := keysIn(st); len(keys) > 0 {
			t.Errorf("%+v: left %q", p, keys)
		}
		for _, r := range p.Rules {
			found := false
			for key := range asked {
				found = found || strings.HasPrefix(key, "weir:t:{%ready:") && strings.Contains(key, "}:"+r.Name)
			}
			if !found {
				t.Errorf("rule %q was not tried: %v", r.Name, asked)
			}
		}
		for key := range asked {
			if !strings.HasPrefix(key, "weir:t:{%ready:") {
				t.Errorf("asked for %q", key)
			}
		}
	}
}

// A keyed tells which keys are asked for.
type keyed struct {
	*memory.Store
	tell func(key string)
}

func (k *keyed) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	for _, key := range keys {
		k.tell(strings.Clone(key))
	}
	return k.Store.Eval(ctx, s, keys, args, reply)
}

// Each error of Ready is either unavailable, or lasts.
func TestReadyErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		is          error
		unavailable bool
		want        error
	}{
		{store.ErrUnavailable, true, store.ErrUnavailable},
		{fmt.Errorf("%w: %w: set a password", store.ErrUnavailable, store.ErrMisconfigured), false, store.ErrMisconfigured},
		{store.ErrScript, false, store.ErrScript},
		{store.ErrNoGoForm, false, store.ErrNoGoForm},
		{context.DeadlineExceeded, true, context.DeadlineExceeded},
		{context.Canceled, true, context.Canceled},
	} {
		for fails := range 4 { // the call that fails
			backend := memory.New(nil)
			n := 0
			st := &weirtest.Hooked{Store: backend, Before: func(context.Context, *store.Script) error {
				if n++; n == fails+1 {
					return fmt.Errorf("x: %w", tt.is)
				}
				return nil
			}}
			err := weirtest.New(t, st, weirtest.PerSecond).Ready(t.Context())
			if !errors.Is(err, tt.want) || errors.Is(err, store.ErrUnavailable) != tt.unavailable || !strings.HasPrefix(err.Error(), "weir: Ready: ") {
				t.Errorf("call %d fails with %v: got %v", fails, tt.is, err)
			}
			if keys := keysIn(backend); len(keys) > 0 && fails < 3 {
				t.Errorf("call %d fails with %v: left %q", fails, tt.is, keys)
			}
		}
	}
	if err := (*weir.Limiter)(nil).Ready(t.Context()); err == nil {
		t.Error("a nil limiter is ready")
	}
}
