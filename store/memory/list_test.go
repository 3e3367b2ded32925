package memory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A key that stays is listed even if the tables grow and shrink between the calls.
func TestListWhileTablesChange(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 10_000} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		st := memory.New(&memory.Options{Now: func() time.Time { return now }, MaxKeys: 1 << 16})
		put := func(name string, from, to int, ttl time.Duration) {
			t.Helper()
			script := store.NewScript("put", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
				tx.Put(0, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1}, ttl)
				return append(reply, store.IntegerValue(1)), nil
			})
			for i := from; i < to; i++ {
				if _, err := st.Eval(t.Context(), script, []string{fmt.Sprint(name, i)}, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		put("stay", 0, 3000, time.Hour)
		put("brief", 0, first, time.Second) // the tables shrink when these have expired
		var list []string
		calls := 0
		for cursor, more := "", true; more; more = cursor != "" {
			var err error
			if list, cursor, err = st.List(t.Context(), "stay", cursor, list); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
			if calls++; calls < 20 {
				put("new", calls*1000, calls*1000+500, 2*time.Second)
			}
		}
		slices.Sort(list)
		if list = slices.Compact(list); len(list) != 3000 || calls < 5 {
			t.Errorf("%d other keys at first: %d of 3000 keys were listed, in %d calls", first, len(list), calls)
		}
	}
}

// An expired key is not listed, and neither is a key with another prefix.
func TestListExpired(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	st := memory.New(&memory.Options{Now: func() time.Time { return now }})
	script := store.NewScript("put", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		tx.Put(0, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1}, time.Second)
		return reply, nil
	})
	for _, key := range []string{"a", "ab", "b", strings.Repeat("a", 300)} {
		if _, err := st.Eval(t.Context(), script, []string{key}, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		for cursor, more := "", true; more; more = cursor != "" {
			list, next, err := st.List(t.Context(), "a", cursor, nil)
			if err != nil {
				t.Fatal(err)
			}
			n, cursor = n+len(list), next
		}
		return n
	}
	if n := count(); n != 3 {
		t.Errorf("got %d keys, want 3", n)
	}
	now = now.Add(time.Second)
	if n := count(); n != 0 {
		t.Errorf("got %d keys after they expired, want none", n)
	}
}
