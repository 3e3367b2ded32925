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

// A key that stays is listed even if the table grows or shrinks between two calls.
func TestListWhileTableChanges(t *testing.T) {
	t.Parallel()
	for _, sizes := range [][2]int{{4096, 2048}, {8192, 2048}, {2048, 4096}, {2048, 8192}} {
		st := memory.New(&memory.Options{MaxKeys: 2047}) // one shard
		script := store.NewScript("put", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			tx.Put(0, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1}, time.Hour)
			return reply, nil
		})
		for i := range 1000 {
			if _, err := st.Eval(t.Context(), script, []string{fmt.Sprint("key", i)}, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		var list []string
		calls := 0
		for cursor, more := "", true; more; more = cursor != "" {
			st.Resize(sizes[min(calls, 1)])
			var err error
			if list, cursor, err = st.List(t.Context(), "key", cursor, list); err != nil {
				t.Fatal(err)
			}
			calls++
		}
		slices.Sort(list)
		if list = slices.Compact(list); len(list) != 1000 || calls < 2 {
			t.Errorf("sizes %v: %d of 1000 keys were listed, in %d calls", sizes, len(list), calls)
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
