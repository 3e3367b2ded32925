package memory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// With NoEviction, a full store keeps every key until it expires, and rejects new keys
// until then.
func TestNoEviction(t *testing.T) {
	t.Parallel()
	for _, max := range []int{1, 10, 1 << 14} {
		c := newClock()
		st := memory.New(&memory.Options{MaxKeys: max, Now: c.now, NoEviction: true})
		add := func(name string, i int, ttl time.Duration) error {
			args := []store.Arg{store.IntArg(ttl.Milliseconds()), store.IntArg(1)}
			_, err := st.Eval(t.Context(), put(1), []string{fmt.Sprint(name, i)}, args, nil)
			return err
		}
		held := map[int]bool{}
		for i := range 2 * max {
			switch err := add("old", i, time.Hour); {
			case err == nil:
				held[i] = true
			case !errors.Is(err, store.ErrUnavailable):
				t.Fatal(err)
			}
		}
		if len(held) > max || len(held) < max*9/10 {
			t.Errorf("the store accepted %d keys, want %d", len(held), max)
		}
		c.advance(time.Hour - time.Second)
		for i := range 4 * max {
			_ = add("new", i, 2*time.Hour) // it expires later, so it would evict an old key
		}
		for i := range 2 * max {
			values, err := st.MGet(t.Context(), []string{fmt.Sprint("old", i)}, nil)
			if err != nil || (values[0].Kind() != store.Nil) != held[i] {
				t.Fatalf("key %d of %d: held %v, %v, want %v", i, max, values, err, held[i])
			}
		}
		c.advance(3 * time.Second)
		accepted := 0
		for i := range 40 * max {
			if add("late", i, time.Hour) == nil {
				accepted++
			}
		}
		if accepted < len(held)*9/10 {
			t.Errorf("after the keys expired the store accepted %d keys, want %d", accepted, len(held))
		}
	}
}
