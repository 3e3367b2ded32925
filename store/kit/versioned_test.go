package kit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weir-go/weir/conformance"
	"github.com/weir-go/weir/store"
)

// versions is a Versioned in memory.
type versions struct {
	delay time.Duration     // how long each read of a key and each Put takes
	get   func(key string)  // if not nil, called before each read of a key
	put   func(n int) error // if not nil, called before Put n, from 1: an error is the result

	mu        sync.Mutex
	last      uint64
	entries   map[string]Entry
	ends      map[string]time.Time // when the database can remove the entry
	gets      int
	puts      int
	conflicts int
	times     []time.Time // of Puts
}

func (v *versions) Get(ctx context.Context, keys []string) ([]Entry, error) {
	list := make([]Entry, len(keys))
	for i, key := range keys {
		time.Sleep(v.delay)
		if v.get != nil {
			v.get(key)
		}
		v.mu.Lock()
		list[i] = v.entries[key]
		v.gets++
		v.mu.Unlock()
	}
	return list, ctx.Err()
}

func (v *versions) Put(ctx context.Context, writes []Write) error {
	time.Sleep(v.delay)
	v.mu.Lock()
	v.puts++
	v.times = append(v.times, time.Now())
	n := v.puts
	v.mu.Unlock()
	if v.put != nil {
		if err := v.put(n); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, w := range writes {
		if v.entries[w.Key].Version != w.Version {
			v.conflicts++
			return ErrConflict
		}
	}
	for _, w := range writes {
		if !w.Same {
			if v.entries == nil {
				v.entries, v.ends = map[string]Entry{}, map[string]time.Time{}
			}
			if delete(v.ends, w.Key); w.Value != nil {
				v.ends[w.Key] = time.Now().Add(w.TTL)
			}
			v.last++
			v.entries[w.Key] = Entry{Value: slices.Clone(w.Value), Version: v.last}
		}
	}
	return nil
}

// TestVersioned shows that a store over a database without locks keeps the contract.
func TestVersioned(t *testing.T) {
	t.Parallel()
	db := &versions{}
	open := func() store.Store { return NewVersioned("versions", db, &VersionedOptions{MaxKey: 200}) }
	conformance.Run(t, conformance.Backend{
		New:  func(*testing.T) store.Store { return open() },
		Peer: func(*testing.T, store.Store) store.Store { return open() },
		Keys: func(_ *testing.T, _ store.Store, part string) map[string]time.Duration {
			db.mu.Lock()
			defer db.mu.Unlock()
			keys := map[string]time.Duration{}
			for key, ends := range db.ends {
				if left := time.Until(ends) - Spare; left > 0 && strings.Contains(key, part) {
					keys[key] = left
				}
			}
			return keys
		},
		Parallel: 8, Brief: true,
	})
}

// Scripts of the checks. A counter is a Nums with one integer.
var (
	// countAll adds 1 to each key, and replies with the new integers and the time.
	countAll = counter("count", func(i int) bool { return true })

	// countSecond adds 1 to the first integer, and writes the sum only to the second key.
	countSecond = store.NewScript("second", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		n, _, err := tx.Get(0)
		tx.Put(1, number(n.N[0]+1), time.Hour)
		return append(reply, store.IntegerValue(n.N[0]+1)), err
	})

	// look replies with the integers and the time, and changes nothing.
	look = counter("look", func(int) bool { return false })

	// equal fails if the integers of two keys differ.
	equal = store.NewScript("equal", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		a, _, _ := tx.Get(0)
		if b, _, _ := tx.Get(1); a != b {
			return reply, fmt.Errorf("%v is not %v", a, b)
		}
		return reply, nil
	})
)

func number(n int64) store.Nums {
	return store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [store.MaxNums]int64{n}}
}

func counter(name string, writes func(i int) bool) *store.Script {
	return store.NewScript(name, "", func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		for i := range int(args[0].Int()) {
			n, _, err := tx.Get(i)
			if err != nil {
				return reply, err
			}
			if writes(i) {
				n.N[0]++
				tx.Put(i, number(n.N[0]), time.Hour)
			}
			reply = append(reply, store.IntegerValue(n.N[0]))
		}
		return append(reply, store.IntegerValue(tx.Now())), nil
	})
}

func eval(ctx context.Context, st store.Store, s *store.Script, keys ...string) ([]store.Value, error) {
	return st.Eval(ctx, s, keys, []store.Arg{store.IntArg(int64(len(keys)))}, nil)
}

// TestVersionedSteps tests the promises of the steps of a call, each in a bubble of package
// synctest.
func TestVersionedSteps(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, db *versions, open func() store.Store){
		// The rows of a form that changes nothing, or fails, have existed together.
		"Torn": func(t *testing.T, db *versions, open func() store.Store) {
			st, other := open(), open()
			torn := false
			db.get = func(key string) {
				if key == "{k}b" && !torn {
					torn = true
					_, _ = eval(t.Context(), other, countAll, "{k}a", "{k}b")
				}
			}
			if got, err := eval(t.Context(), st, look, "{k}a", "{k}b"); err != nil || got[0] != got[1] {
				t.Errorf("a script that changes nothing read %v, %v from keys that always change together", got, err)
			}
			torn = false
			if _, err := eval(t.Context(), st, equal, "{k}a", "{k}b"); err != nil {
				t.Errorf("a script failed because of values that never were together: %v", err)
			}
			torn = false
			if got, err := st.MGet(t.Context(), []string{"{k}a", "{k}b"}, nil); err != nil || got[0] != got[1] {
				t.Errorf("MGet read %v, %v from keys that always change together", got, err)
			}
		},
		// A key that a form only read must not change before its write either.
		"Read": func(t *testing.T, db *versions, open func() store.Store) {
			st, other := open(), open()
			db.put = func(n int) error {
				if n == 1 {
					_, _ = eval(t.Context(), other, countAll, "{k}a") // Put 2
				}
				return nil
			}
			if got, err := eval(t.Context(), st, countSecond, "{k}a", "{k}b"); err != nil || got[0].Int() != 2 {
				t.Errorf("got %v, %v from a key that was written before: want 2", got, err)
			}
		},
		// After a lost reply, a call is not repeated.
		"Lost": func(t *testing.T, db *versions, open func() store.Store) {
			db.put = func(int) error { return errors.New("the reply was lost") }
			_, err := eval(t.Context(), open(), countAll, "a")
			if !errors.Is(err, store.ErrUnavailable) || db.puts != 1 {
				t.Errorf("after a lost reply there were %d writes and the error %v: want 1 and ErrUnavailable", db.puts, err)
			}
		},
		// The clock of a form is read after its keys, in each attempt.
		"Clock": func(t *testing.T, db *versions, open func() store.Store) {
			var read time.Time // when the last key was read
			db.delay = time.Millisecond
			db.get = func(string) { read = time.Now() }
			db.put = func(n int) error {
				if n < 3 {
					return ErrConflict
				}
				return nil
			}
			got, err := eval(t.Context(), open(), countAll, "{k}a", "{k}b")
			if err != nil || got[2].Int() < read.UnixMicro() {
				t.Errorf("got %v, %v: want a time that is not before %d, when the last attempt had read the keys", got, err, read.UnixMicro())
			}
		},
		// Attempts have an end, and are apart by times that differ.
		"Bound": func(t *testing.T, db *versions, open func() store.Store) {
			db.put = func(int) error { return ErrConflict }
			_, err := eval(t.Context(), open(), countAll, "a")
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "contention") || db.puts != attempts {
				t.Errorf("%d attempts had conflicts, and the error is %v: want %d and ErrUnavailable because of contention", db.puts, err, attempts)
			}
			waits := map[time.Duration]bool{}
			for i := range len(db.times) - 1 {
				wait := db.times[i+1].Sub(db.times[i])
				if waits[wait] = true; wait < leastWait/2 || wait > mostWait {
					t.Errorf("the wait after attempt %d is %v: want %v to %v", i+1, wait, leastWait/2, mostWait)
				}
			}
			if len(waits) < attempts/2 {
				t.Errorf("%d waits have only %d lengths: they must be random", attempts-1, len(waits))
			}
		},
		// A context ends a call between two attempts, and while it waits for another call.
		"Context": func(t *testing.T, db *versions, open func() store.Store) {
			db.put = func(n int) error {
				if n == 1 {
					time.Sleep(time.Second)
				}
				return ErrConflict
			}
			st := open()
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = eval(t.Context(), st, countAll, "a") })
			synctest.Wait()
			for _, key := range []string{"a", "b"} {
				begin := time.Now()
				short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, err := eval(short, st, countAll, key)
				if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) || took != 50*time.Millisecond {
					t.Errorf("with a deadline of 50 ms, a call of %s took %v and returned %v", key, took, err)
				}
				cancel()
			}
			wg.Wait()
		},
		// The callers of a process enter in order, and never cause a conflict.
		"Line": func(t *testing.T, db *versions, open func() store.Store) {
			st, begin := open(), time.Now()
			db.delay = time.Millisecond
			order := make([]int64, 16)
			var wg sync.WaitGroup
			for i := range order {
				wg.Go(func() {
					got, err := eval(t.Context(), st, countAll, "a")
					if err != nil {
						t.Errorf("%v", err)
						return
					}
					order[i] = got[0].Int()
				})
				synctest.Wait() // it is in the line
			}
			wg.Wait()
			if !slices.IsSorted(order) || db.conflicts > 0 || time.Since(begin) != 32*time.Millisecond {
				t.Errorf("16 callers of a key were served in the order %v, with %d conflicts, in %v: want 1 to 16, none, and 32 ms", order, db.conflicts, time.Since(begin))
			}
		},
		// Several processes make progress, each with several callers of a key.
		"Processes": func(t *testing.T, db *versions, open func() store.Store) {
			db.delay = time.Millisecond
			var wg sync.WaitGroup
			for range 4 {
				st := open()
				for range 4 {
					wg.Go(func() {
						for range 10 {
							if _, err := eval(t.Context(), st, countAll, "a"); err != nil {
								t.Errorf("%v", err)
							}
						}
					})
				}
			}
			wg.Wait()
			if got, err := eval(t.Context(), open(), look, "a"); err != nil || got[0].Int() != 160 {
				t.Errorf("after 160 calls, the key holds %v, %v", got, err)
			}
			if db.puts > 10*160 {
				t.Errorf("160 calls took %d attempts", db.puts)
			}
		},
		// The calls of a batch with the same keys take one read and one write.
		"Batch": func(t *testing.T, db *versions, open func() store.Store) {
			calls := make([]store.Eval, 100)
			for i := range calls {
				calls[i] = store.Eval{Script: countAll, Keys: []string{fmt.Sprint(i % 2)}, Args: []store.Arg{store.IntArg(1)}}
			}
			open().(store.Batcher).EvalBatch(t.Context(), calls)
			for i, c := range calls {
				if c.Err != nil || c.Reply[0].Int() != int64(i/2+1) {
					t.Errorf("call %d: got %v, %v, want %d", i, c.Reply, c.Err, i/2+1)
				}
			}
			if db.gets != 2 || db.puts != 2 {
				t.Errorf("100 calls over 2 keys took %d reads and %d writes, want 2 each", db.gets, db.puts)
			}
		},
		// MGet reads a snapshot beside another process that writes all the time.
		"Snapshot": func(t *testing.T, db *versions, open func() store.Store) {
			db.delay = time.Millisecond
			keys := []string{"{a}1", "{a}2"}
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				for other := open(); ctx.Err() == nil; {
					if _, err := eval(t.Context(), other, countAll, keys...); err != nil {
						t.Error(err)
					}
				}
			})
			for range 20 {
				time.Sleep(time.Millisecond)
				if got, err := open().MGet(t.Context(), keys, nil); err != nil || got[0] != got[1] {
					t.Errorf("got %v, %v, want equal values", got, err)
				}
			}
			stop()
			wg.Wait()
		},
		// A caller can reuse the memory of its keys, even while others wait for the same key.
		"Borrows": func(t *testing.T, db *versions, open func() store.Store) {
			db.delay = time.Millisecond
			st := open()
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					buffer := []byte("abc")
					if _, err := eval(t.Context(), st, countAll, unsafe.String(&buffer[0], len(buffer))); err != nil {
						t.Error(err)
					}
					copy(buffer, "xyz")
				})
				synctest.Wait()
			}
			wg.Wait()
			if got, err := eval(t.Context(), st, look, "abc"); err != nil || got[0].Int() != 4 || len(db.entries) != 1 {
				t.Errorf("got %v, %v over %v, want 4", got, err, db.entries)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &versions{}
				run(t, db, func() store.Store { return NewVersioned("versions", db, nil) })
			})
		})
	}
}

func TestVersionedMisuse(t *testing.T) {
	t.Parallel()
	none := NewVersioned("versions", nil, nil)
	for _, tt := range []struct {
		st   *VersionedStore
		want string
	}{
		{nil, "nil or a zero value"},
		{new(VersionedStore), "nil or a zero value"},
		{none, "the database is nil"},
		{NewVersioned("versions", &versions{}, &VersionedOptions{MaxKey: 63}), "MaxKey is 63"},
	} {
		if err := tt.st.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	if _, err := eval(t.Context(), none, look, "a"); err == nil {
		t.Error("a store without a database answered")
	}
	few := &mutantFew{}
	if _, err := eval(t.Context(), NewVersioned("versions", few, nil), look, "a"); err == nil || !strings.Contains(err.Error(), "0 entries for 1 keys") {
		t.Errorf("got %v", err)
	}
}

type mutantFew struct{ versions }

func (*mutantFew) Get(context.Context, []string) ([]Entry, error) { return nil, nil }
