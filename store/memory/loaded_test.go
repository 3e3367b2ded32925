package memory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A form has the same effect on store.Loaded and on the memory store.
func TestLoadedAgrees(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 4))
			c := newClock()
			st := memory.New(&memory.Options{Now: c.now})
			keys := []string{"{k}a", "{k}b", "{k}c"}
			held, expires := make([]store.Content, len(keys)), make([]time.Time, len(keys))
			for step := range 1000 {
				choices := r.Uint64()
				script := store.NewScript("random", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
					return randomForm(rand.New(rand.NewPCG(choices, 5)), tx, len(keys), reply)
				})
				for i := range held {
					if !expires[i].After(c.now()) {
						held[i] = store.Content{}
					}
				}
				tx := store.NewLoaded(c.now().UnixMicro(), held)
				want, wantErr := script.Run(tx, keys, nil, nil)
				got, err := st.Eval(t.Context(), script, keys, nil, nil)
				if !slices.Equal(got, want) || (err != nil) != (wantErr != nil) {
					t.Fatalf("step %d:\nmemory %v, %v\nLoaded %v, %v", step, got, err, want, wantErr)
				}
				if wantErr == nil {
					for _, ch := range tx.Changes() {
						held[ch.Key] = ch.Content
						if ch.TTL > 0 {
							expires[ch.Key] = c.now().Add(ch.TTL)
						}
					}
				}
				live := map[string]time.Duration{}
				for key, ttl := range st.All() {
					live[key] = ttl
				}
				for i, key := range keys {
					ttl := expires[i].Sub(c.now())
					if held[i].Kind == store.Missing || ttl < 0 {
						ttl = 0
					}
					if live[key] != ttl {
						t.Fatalf("step %d: key %q has the TTL %v in memory, and %v in Loaded", step, key, live[key], ttl)
					}
				}
				if r.IntN(4) == 0 {
					c.advance(time.Duration(r.IntN(30)) * time.Millisecond)
				}
			}
		})
	}
}

// randomForm reads all keys, replies with their values, and changes some of them.
func randomForm(r *rand.Rand, tx store.Tx, keys int, reply []store.Value) ([]store.Value, error) {
	text := func() string { return fmt.Sprint(r.IntN(12)) }
	ttl := func() time.Duration { return time.Duration(1+r.IntN(100)) * time.Millisecond }
	for i := range keys {
		n, isNums, err := tx.Get(i)
		isSet := err != nil
		reply = append(reply, store.BulkValue(n.String()))
		if !isNums {
			above, all, err := tx.Count(i, r.Int64N(10))
			if err != nil {
				return nil, err
			}
			m, _, err := tx.At(i, r.Int64N(4))
			if err != nil {
				return nil, err
			}
			score, _, err := tx.Score(i, text())
			if err != nil {
				return nil, err
			}
			reply = append(reply, store.IntegerValue(above), store.IntegerValue(all),
				store.IntegerValue(m.Score), store.BulkValue(m.Text), store.IntegerValue(score))
		}
		removed := false
		for range r.IntN(4) {
			switch op := r.IntN(8); {
			case op == 0:
				tx.Del(i)
				isNums, isSet, removed = false, false, false
			case op < 3 && !isSet:
				tx.Put(i, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [store.MaxNums]int64{r.Int64N(100)}}, ttl())
				isNums = true
			case op == 3 && isNums:
				tx.Keep(i, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [store.MaxNums]int64{r.Int64N(100)}})
			case op == 4 && !isNums && !removed && r.IntN(2) == 0:
				tx.Add(i, store.Member{Score: r.Int64N(10), Text: text()}, 0)
			case op < 6 && !isNums:
				tx.Add(i, store.Member{Score: r.Int64N(10), Text: text()}, ttl())
				isSet = true
			case op == 6 && !isNums:
				tx.Remove(i, text())
				removed = true
			case op == 7 && !isNums:
				tx.Trim(i, r.Int64N(3))
				removed = true
			}
		}
	}
	if r.IntN(20) == 0 {
		return nil, store.ForeignAt(r.IntN(keys))
	}
	return reply, nil
}
