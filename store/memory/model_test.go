package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A store behaves like a map, while keys expire and the table grows and shrinks.
func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			type entry struct {
				n       int64
				expires time.Time
			}
			r := rand.New(rand.NewPCG(seed, 3))
			c := newClock()
			st := memory.New(&memory.Options{Now: c.now, MaxKeys: 1000}) // one shard
			model := map[string]entry{}
			all := make([]string, 30+r.IntN(200))
			for i := range all {
				all[i] = fmt.Sprintf("{k}%d", i)
			}
			tag := store.Tag{'t', '1'}
			for step := range int64(700) {
				keys := make([]string, 1+r.IntN(6))
				for i, n := range r.Perm(len(all))[:len(keys)] {
					keys[i] = all[n]
				}
				script := store.NewScript("step", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
					for i, key := range keys {
						n, ok, err := tx.Get(i)
						if e, held := model[key]; err != nil || ok != (held && e.expires.After(c.now())) || ok && n.N[0] != e.n {
							return nil, fmt.Errorf("key %q: got %v, %v, %v, want %+v", key, n, ok, err, e)
						}
						switch ttl := time.Duration(1+r.IntN(100)) * time.Millisecond; r.IntN(7) {
						case 0:
						case 2:
							tx.Keep(i, store.Nums{Tag: tag, Len: 1, N: [store.MaxNums]int64{step}})
							if ok {
								model[key] = entry{step, model[key].expires}
							}
						case 1:
							tx.Del(i)
							delete(model, key)
						default:
							tx.Put(i, store.Nums{Tag: tag, Len: 1, N: [store.MaxNums]int64{step}}, ttl)
							model[key] = entry{step, c.now().Add(ttl)}
						}
					}
					return reply, nil
				})
				if _, err := st.Eval(t.Context(), script, keys, nil, nil); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				texts := get(t, st, all...)
				for i, key := range all {
					want := ""
					if e, ok := model[key]; ok && e.expires.After(c.now()) {
						want = fmt.Sprintf("t1 %d", e.n)
					}
					if texts[i] != want {
						t.Fatalf("step %d, keys %q: key %q holds %q, want %q", step, keys, key, texts[i], want)
					}
				}
				if r.IntN(3) == 0 {
					c.advance(time.Duration(r.IntN(40)) * time.Millisecond)
				}
			}
		})
	}
}
