package memory_test

import (
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A script on keys that the store holds allocates nothing.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	nums := store.Nums{Tag: store.Tag{'t', '1'}, Len: 1}
	read := func(tx store.Tx, reply []store.Value) ([]store.Value, error) {
		for i := range 2 {
			n, ok, err := tx.Get(i)
			if !ok || err != nil {
				return nil, store.ForeignAt(i)
			}
			reply = append(reply, store.IntegerValue(n.N[0]))
		}
		return reply, nil
	}
	for _, tt := range []struct {
		name   string
		script *store.Script
	}{
		{"Put", store.NewScript("put", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			tx.Put(0, nums, time.Hour)
			tx.Put(1, nums, time.Hour)
			return read(tx, reply)
		})},
		{"Keep", store.NewScript("keep", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			tx.Keep(0, nums)
			tx.Keep(1, nums)
			return read(tx, reply)
		})},
		{"denied", store.NewScript("deny", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			return read(tx, reply)
		})},
		{"read-only", store.NewReadOnlyScript("peek", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			return read(tx, reply)
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := memory.New(nil)
			keys := []string{"weir:{user}:a", "weir:{user}:b"}
			if err := set(st, time.Hour, 1, keys...); err != nil {
				t.Fatal(err)
			}
			ctx, reply := t.Context(), make([]store.Value, 0, 2)
			var err error
			if got := testing.AllocsPerRun(1000, func() { reply, err = st.Eval(ctx, tt.script, keys, nil, reply[:0]) }); got != 0 {
				t.Errorf("%v allocations, want 0", got)
			}
			if err != nil || len(reply) != 2 {
				t.Errorf("got %v, %v, want two integers", reply, err)
			}
		})
	}
}
