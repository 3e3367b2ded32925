package memory_test

import (
	"fmt"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A fifth of MaxKeys fits, whatever the keys have in common.
func TestKeysSpread(t *testing.T) {
	const maxKeys, keys = 20_000, 4_000
	for _, format := range []string{"k%d", "{all}:user%d", "{all}user%d", "{all}:user:%d", "user:%d:{all}", "{all}:g2:%d", "{%d}:g2"} {
		t.Run(format, func(t *testing.T) {
			st := memory.New(&memory.Options{MaxKeys: maxKeys, NoEviction: true})
			for i := range keys {
				if _, err := st.Eval(t.Context(), increment, []string{fmt.Sprintf(format, i)}, nil, nil); err != nil {
					t.Fatalf("key %d: %v", i, err)
				}
			}
		})
	}
	t.Run("one key of many limiters", func(t *testing.T) {
		st := memory.New(&memory.Options{MaxKeys: maxKeys, NoEviction: true})
		for i := range keys {
			l, err := weir.New(fmt.Sprint("route", i), st, algorithm.GCRA{Rate: algorithm.PerHour(1), Burst: 10}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.Allow(t.Context(), "all"); err != nil {
				t.Fatalf("limiter %d: %v", i, err)
			}
		}
	})
}

// increment stores a number.
var increment = store.NewScript("increment", "return 1",
	func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		tx.Put(0, store.Nums{Tag: store.Tag{'n', '1'}, Len: 1, N: [store.MaxNums]int64{1}}, 3_600_000_000_000)
		return append(reply, store.IntegerValue(1)), nil
	})
