package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A failed script changes nothing, releases its locks, and returns the unchanged reply.
func TestEvalFails(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	write := func(end func(tx store.Tx) error) *store.Script { // sets key 0 and deletes key 1
		return store.NewScript("write", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			tx.Put(0, store.Nums{Tag: store.Tag{'t', '1'}}, time.Hour)
			err := end(tx)
			tx.Del(1)
			return append(reply, store.IntegerValue(1)), err
		})
	}
	nothing := func(store.Tx) error { return nil }
	same, apart := []string{"{k}0", "{k}1"}, []string{"{k}0", "{l}1"}
	for _, tt := range []struct {
		name   string
		ctx    context.Context
		script *store.Script
		keys   []string
		want   error
	}{
		{"the form fails", t.Context(), write(func(store.Tx) error { return errors.New("broken") }), same, store.ErrScript},
		{"the form panics", t.Context(), write(func(store.Tx) error { panic("broken") }), same, store.ErrScript},
		{"a sorted set that holds numbers", t.Context(), write(func(tx store.Tx) error { _, _, err := tx.At(1, 0); return err }), same, store.ErrForeign},
		{"a count of numbers", t.Context(), write(func(tx store.Tx) error { _, _, err := tx.Count(1, 0); return err }), same, store.ErrForeign},
		{"a score of numbers", t.Context(), write(func(tx store.Tx) error { _, _, err := tx.Score(1, ""); return err }), same, store.ErrForeign},
		{"keys of two slots", t.Context(), write(nothing), apart, store.ErrCrossSlot},
		{"canceled", canceled, write(nothing), same, context.Canceled},
	} {
		st := memory.New(nil)
		if err := set(st, time.Hour, 7, "{k}1"); err != nil {
			t.Fatal(err)
		}
		before := []store.Value{store.BulkValue("before")}
		if reply, err := st.Eval(tt.ctx, tt.script, tt.keys, nil, before); !errors.Is(err, tt.want) || !slices.Equal(reply, before) {
			t.Errorf("%s: got %v, %v, want %v, %v", tt.name, reply, err, before, tt.want)
		}
		if got := get(t, st, same...); !slices.Equal(got, []string{"", "t1 7"}) {
			t.Errorf("%s: the store holds %q", tt.name, got)
		}
		if err := set(st, time.Hour, 8, same...); err != nil {
			t.Errorf("%s: then %v", tt.name, err)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		max  int
		good bool
	}{{0, true}, {1, true}, {1 << 30, true}, {-1, false}} {
		st := memory.New(&memory.Options{MaxKeys: tt.max})
		if err := st.Check(); (err == nil) != tt.good {
			t.Errorf("MaxKeys %d: Check() = %v, want it good: %v", tt.max, err, tt.good)
		}
		_, err := st.Time(t.Context())
		if err := errors.Join(err, set(st, time.Hour, 1, "k")); (err == nil) != tt.good {
			t.Errorf("MaxKeys %d: %v, want it to work: %v", tt.max, err, tt.good)
		}
	}
}

// A script on keys that the store holds allocates nothing.
func TestAllocations(t *testing.T) {
	if weirtest.Race {
		t.Skip("the race detector allocates")
	}
	nums := store.Nums{Tag: store.Tag{'t', '1'}, Len: 1}
	form := func(change func(tx store.Tx, i int)) store.GoForm {
		return func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			for i := range 2 {
				change(tx, i)
				n, ok, err := tx.Get(i)
				if !ok || err != nil {
					return nil, store.ForeignAt(i)
				}
				reply = append(reply, store.IntegerValue(n.N[0]))
			}
			return reply, nil
		}
	}
	read := form(func(store.Tx, int) {})
	for name, script := range map[string]*store.Script{
		"Put":       store.NewScript("put", "", form(func(tx store.Tx, i int) { tx.Put(i, nums, time.Hour) })),
		"Keep":      store.NewScript("keep", "", form(func(tx store.Tx, i int) { tx.Keep(i, nums) })),
		"denied":    store.NewScript("deny", "", read),
		"read-only": store.NewReadOnlyScript("peek", "", read),
	} {
		st, keys, reply := memory.New(nil), []string{"weir:{user}:a", "weir:{user}:b"}, make([]store.Value, 0, 2)
		err := set(st, time.Hour, 1, keys...)
		got := testing.AllocsPerRun(1000, func() { reply, err = st.Eval(t.Context(), script, keys, nil, reply[:0]) })
		if got != 0 || err != nil || len(reply) != 2 {
			t.Errorf("%s: %v allocations, reply %v, %v, want none, and two integers", name, got, reply, err)
		}
	}
}

// A form has the same effect on store.Loaded and on the memory store, while keys expire and
// the table grows and shrinks.
func TestLoadedAgrees(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 4))
			c := weirtest.NewClock()
			st := memory.New(&memory.Options{Now: c.Now, MaxKeys: 1000}) // one shard
			all := make([]string, 3+r.IntN(100))
			for i := range all {
				all[i] = fmt.Sprintf("{k}%d", i)
			}
			held, expires := map[string]store.Content{}, map[string]time.Time{}
			for step := range 1000 {
				keys, before := make([]string, 1+r.IntN(min(6, len(all)))), []store.Content(nil)
				for i, n := range r.Perm(len(all))[:len(keys)] {
					keys[i] = all[n]
					if !expires[keys[i]].After(c.Now()) {
						delete(held, keys[i])
					}
					before = append(before, held[keys[i]])
				}
				choices := r.Uint64()
				script := store.NewScript("random", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
					return randomForm(rand.New(rand.NewPCG(choices, 5)), tx, len(keys), reply)
				})
				tx := store.NewLoaded(c.Now().UnixMicro(), before)
				want, wantErr := script.Run(tx, keys, nil, nil)
				got, err := st.Eval(t.Context(), script, keys, nil, nil)
				if !slices.Equal(got, want) || (err != nil) != (wantErr != nil) {
					t.Fatalf("step %d:\nmemory %v, %v\nLoaded %v, %v", step, got, err, want, wantErr)
				}
				if wantErr == nil {
					for _, ch := range tx.Changes() {
						key := keys[ch.Key]
						if held[key] = ch.Content; ch.TTL > 0 {
							expires[key] = c.Now().Add(ch.TTL)
						}
					}
				}
				live := map[string]time.Duration{}
				for key, ttl := range st.All() {
					live[key] = ttl
				}
				texts := get(t, st, all...)
				for i, key := range all {
					ttl, text := expires[key].Sub(c.Now()), ""
					if held[key].Kind == store.Missing || ttl < 0 {
						ttl = 0
					}
					if held[key].Kind == store.Numbers && ttl > 0 {
						text = held[key].Nums.String()
					}
					if live[key] != ttl || texts[i] != text {
						t.Fatalf("step %d: key %q has the TTL %v and the text %q in memory, and %v and %q in Loaded", step, key, live[key], texts[i], ttl, text)
					}
				}
				if r.IntN(4) == 0 {
					c.Advance(time.Duration(r.IntN(30)) * time.Millisecond)
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

// List lists a key that stays even if the table grows or shrinks between two calls, and
// neither an expired key nor one with another prefix.
func TestListWhileTableChanges(t *testing.T) {
	t.Parallel()
	for _, sizes := range [][2]int{{4096, 2048}, {8192, 2048}, {2048, 4096}, {2048, 8192}} {
		c := weirtest.NewClock()
		st := memory.New(&memory.Options{MaxKeys: 2047, Now: c.Now}) // one shard
		for i := range 1000 {
			key := fmt.Sprint("key", i) + strings.Repeat("x", i%100)
			for _, err := range []error{set(st, time.Hour, 1, key), set(st, time.Second, 1, "key-gone"), set(st, time.Hour, 1, "ke")} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		c.Advance(time.Second)
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
		if list = slices.Compact(list); len(list) != 1000 || calls < 2 || slices.Contains(list, "key-gone") {
			t.Errorf("sizes %v: %d of 1000 keys were listed, in %d calls", sizes, len(list), calls)
		}
	}
}
