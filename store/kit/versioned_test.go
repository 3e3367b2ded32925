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

// A versionedCheck tests a promise of a store over db. It runs in a bubble of package
// synctest.
type versionedCheck struct {
	name string
	run  func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store)
}

var versionedChecks = []versionedCheck{
	// The rows of a form that changes nothing, or fails, have existed together.
	{"Torn", func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store) {
		st, other := open(), open()
		torn := false
		db.get = func(key string) {
			if key == "{k}b" && !torn {
				torn = true
				_, _ = eval(ctx, other, countAll, "{k}a", "{k}b")
			}
		}
		if got, err := eval(ctx, st, look, "{k}a", "{k}b"); err != nil || got[0] != got[1] {
			errorf("a script that changes nothing read %v, %v from keys that always change together", got, err)
		}
		torn = false
		if _, err := eval(ctx, st, equal, "{k}a", "{k}b"); err != nil {
			errorf("a script failed because of values that never were together: %v", err)
		}
		torn = false
		if got, err := st.MGet(ctx, []string{"{k}a", "{k}b"}, nil); err != nil || got[0] != got[1] {
			errorf("MGet read %v, %v from keys that always change together", got, err)
		}
	}},
	// A key that a form only read must not change before its write either.
	{"Read", func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store) {
		st, other := open(), open()
		db.put = func(n int) error {
			if n == 1 {
				_, _ = eval(ctx, other, countAll, "{k}a") // Put 2
			}
			return nil
		}
		if got, err := eval(ctx, st, countSecond, "{k}a", "{k}b"); err != nil || got[0].Int() != 2 {
			errorf("got %v, %v from a key that was written before: want 2", got, err)
		}
	}},
	// After a lost reply, a call is not repeated.
	{"Lost", func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store) {
		db.put = func(int) error { return errors.New("the reply was lost") }
		_, err := eval(ctx, open(), countAll, "a")
		if !errors.Is(err, store.ErrUnavailable) || db.puts != 1 {
			errorf("after a lost reply there were %d writes and the error %v: want 1 and ErrUnavailable", db.puts, err)
		}
	}},
	// The clock of a form is read after its keys, in each attempt.
	{"Clock", func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store) {
		var read time.Time // when the last key was read
		db.delay = time.Millisecond
		db.get = func(string) { read = time.Now() }
		db.put = func(n int) error {
			if n < 3 {
				return ErrConflict
			}
			return nil
		}
		got, err := eval(ctx, open(), countAll, "{k}a", "{k}b")
		if err != nil || got[2].Int() < read.UnixMicro() {
			errorf("got %v, %v: want a time that is not before %d, when the last attempt had read the keys", got, err, read.UnixMicro())
		}
	}},
	// Attempts have an end, and are apart by times that differ.
	{"Bound", func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store) {
		db.put = func(int) error { return ErrConflict }
		_, err := eval(ctx, open(), countAll, "a")
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "contention") || db.puts != attempts {
			errorf("%d attempts had conflicts, and the error is %v: want %d and ErrUnavailable because of contention", db.puts, err, attempts)
		}
		waits := map[time.Duration]bool{}
		for i := range len(db.times) - 1 {
			wait := db.times[i+1].Sub(db.times[i])
			if waits[wait] = true; wait < leastWait/2 || wait > mostWait {
				errorf("the wait after attempt %d is %v: want %v to %v", i+1, wait, leastWait/2, mostWait)
			}
		}
		if len(waits) < attempts/2 {
			errorf("%d waits have only %d lengths: they must be random", attempts-1, len(waits))
		}
	}},
	// A context ends a call between two attempts, and while it waits for another call.
	{"Context", func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store) {
		db.put = func(n int) error {
			if n == 1 {
				time.Sleep(time.Second)
			}
			return ErrConflict
		}
		st := open()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = eval(ctx, st, countAll, "a") })
		synctest.Wait()
		for _, key := range []string{"a", "b"} {
			begin := time.Now()
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			_, err := eval(short, st, countAll, key)
			if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) || took != 50*time.Millisecond {
				errorf("with a deadline of 50 ms, a call of %s took %v and returned %v", key, took, err)
			}
			cancel()
		}
		wg.Wait()
	}},
	// The callers of a process enter in order, and never cause a conflict.
	{"Line", func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store) {
		st, begin := open(), time.Now()
		db.delay = time.Millisecond
		order := make([]int64, 16)
		var wg sync.WaitGroup
		for i := range order {
			wg.Go(func() {
				got, err := eval(ctx, st, countAll, "a")
				if err != nil {
					errorf("%v", err)
					return
				}
				order[i] = got[0].Int()
			})
			synctest.Wait() // it is in the line
		}
		wg.Wait()
		if !slices.IsSorted(order) || db.conflicts > 0 || time.Since(begin) != 32*time.Millisecond {
			errorf("16 callers of a key were served in the order %v, with %d conflicts, in %v: want 1 to 16, none, and 32 ms", order, db.conflicts, time.Since(begin))
		}
	}},
	// Several processes make progress, each with several callers of a key.
	{"Processes", func(ctx context.Context, errorf func(string, ...any), db *versions, open func() store.Store) {
		db.delay = time.Millisecond
		var wg sync.WaitGroup
		for range 4 {
			st := open()
			for range 4 {
				wg.Go(func() {
					for range 10 {
						if _, err := eval(ctx, st, countAll, "a"); err != nil {
							errorf("%v", err)
						}
					}
				})
			}
		}
		wg.Wait()
		if got, err := eval(ctx, open(), look, "a"); err != nil || got[0].Int() != 160 {
			errorf("after 160 calls, the key holds %v, %v", got, err)
		}
		if db.puts > 10*160 {
			errorf("160 calls took %d attempts", db.puts)
		}
	}},
}

// failures returns the errors of c over a store of open.
func (c versionedCheck) failures(t *testing.T, open func(db *versions) store.Store) (list []string) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		errorf := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, fmt.Sprintf(format, args...))
		}
		db := &versions{}
		c.run(t.Context(), errorf, db, func() store.Store { return open(db) })
	})
	return list
}

// TestVersionedChecks runs the checks on the kit.
func TestVersionedChecks(t *testing.T) {
	for _, c := range versionedChecks {
		t.Run(c.name, func(t *testing.T) {
			for _, text := range c.failures(t, func(db *versions) store.Store { return NewVersioned("versions", db, nil) }) {
				t.Error(text)
			}
		})
	}
}

// A mutantDB makes a mistake that a loop could make, by what it shows to the kit.
type mutantDB struct {
	*versions
	get func(keys []string)
	put func(ctx context.Context, db *versions, writes []Write) error
}

func (m *mutantDB) Get(ctx context.Context, keys []string) ([]Entry, error) {
	if m.get != nil {
		m.get(keys)
	}
	return m.versions.Get(ctx, keys)
}

func (m *mutantDB) Put(ctx context.Context, writes []Write) error {
	if m.put != nil {
		return m.put(ctx, m.versions, writes)
	}
	return m.versions.Put(ctx, writes)
}

// TestVersionedMutants shows that each mistake fails its check and no other.
func TestVersionedMutants(t *testing.T) {
	same := func(w Write) bool { return w.Same }
	for _, m := range []struct {
		name string
		open func(db *versions) store.Store
		want string // the checks that fail
	}{
		{"a form that changed nothing or failed is not validated", func(db *versions) store.Store {
			return NewVersioned("m", &mutantDB{versions: db, put: func(ctx context.Context, db *versions, writes []Write) error {
				if !slices.ContainsFunc(writes, func(w Write) bool { return !w.Same }) {
					return nil
				}
				return db.Put(ctx, writes)
			}}, nil)
		}, "Torn"},
		{"only changed keys are validated", func(db *versions) store.Store {
			return NewVersioned("m", &mutantDB{versions: db, put: func(ctx context.Context, db *versions, writes []Write) error {
				if some := slices.DeleteFunc(slices.Clone(writes), same); len(some) > 0 {
					writes = some
				}
				return db.Put(ctx, writes)
			}}, nil)
		}, "Read"},
		{"a call whose reply was lost is repeated", func(db *versions) store.Store {
			return NewVersioned("m", &mutantDB{versions: db, put: func(ctx context.Context, db *versions, writes []Write) error {
				if err := db.Put(ctx, writes); err != nil && ctx.Err() == nil {
					return ErrConflict
				}
				return ctx.Err()
			}}, nil)
		}, "Lost"},
		{"the clock is read before the keys", func(db *versions) store.Store {
			var now time.Time
			return NewVersioned("m", &mutantDB{versions: db, get: func([]string) { now = time.Now() }}, &VersionedOptions{Now: func() time.Time { return now }})
		}, "Clock"},
		{"the clock is read once for all attempts", func(db *versions) store.Store {
			var now time.Time
			return NewVersioned("m", db, &VersionedOptions{Now: func() time.Time {
				if now.IsZero() {
					now = time.Now()
				}
				return now
			}})
		}, "Clock"},
		{"attempts follow each other at once, without an end", func(db *versions) store.Store {
			return &eager{VersionedStore: NewVersioned("m", db, nil), calls: 20}
		}, "Bound Context"},
		{"the context is ignored", func(db *versions) store.Store {
			return &eager{VersionedStore: NewVersioned("m", db, nil), calls: 1}
		}, "Context"},
		{"the callers of a process compete", func(db *versions) store.Store {
			return &crowd{func() store.Store { return NewVersioned("m", db, nil) }}
		}, "Line"},
	} {
		t.Run(m.name, func(t *testing.T) {
			var failed []string
			for _, c := range versionedChecks {
				if len(c.failures(t, m.open)) > 0 {
					failed = append(failed, c.name)
				}
			}
			if got := strings.Join(failed, " "); got != m.want {
				t.Errorf("the checks %q failed, want %q", got, m.want)
			}
		})
	}
}

// An eager store calls again at once after contention, whatever its context.
type eager struct {
	*VersionedStore
	calls int
}

func (e *eager) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) (out []store.Value, err error) {
	for range e.calls {
		out, err = e.VersionedStore.Eval(context.WithoutCancel(ctx), script, keys, args, reply)
		if err == nil || !strings.Contains(err.Error(), "contention") {
			break
		}
	}
	return out, err
}

// A crowd has a store for each call, so no call waits for another.
type crowd struct{ open func() store.Store }

func (c *crowd) Eval(ctx context.Context, script *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	return c.open().Eval(ctx, script, keys, args, reply)
}

func (c *crowd) MGet(ctx context.Context, keys []string, values []store.Value) ([]store.Value, error) {
	return c.open().MGet(ctx, keys, values)
}

func (c *crowd) Time(ctx context.Context) (time.Time, error) { return c.open().Time(ctx) }

// The calls of a batch with the same keys take one read and one write.
func TestVersionedBatch(t *testing.T) {
	t.Parallel()
	db := &versions{}
	calls := make([]store.Eval, 100)
	for i := range calls {
		calls[i] = store.Eval{Script: countAll, Keys: []string{fmt.Sprint(i % 2)}, Args: []store.Arg{store.IntArg(1)}}
	}
	NewVersioned("versions", db, nil).EvalBatch(t.Context(), calls)
	for i, c := range calls {
		if c.Err != nil || c.Reply[0].Int() != int64(i/2+1) {
			t.Errorf("call %d: got %v, %v, want %d", i, c.Reply, c.Err, i/2+1)
		}
	}
	if db.gets != 2 || db.puts != 2 {
		t.Errorf("100 calls over 2 keys took %d reads and %d writes, want 2 each", db.gets, db.puts)
	}
}

// MGet reads a snapshot beside another process that writes all the time.
func TestVersionedSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &versions{delay: time.Millisecond}
		keys := []string{"{a}1", "{a}2"}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for other := NewVersioned("versions", db, nil); ctx.Err() == nil; {
				if _, err := eval(t.Context(), other, countAll, keys...); err != nil {
					t.Error(err)
				}
			}
		})
		for range 20 {
			time.Sleep(time.Millisecond)
			if got, err := NewVersioned("versions", db, nil).MGet(t.Context(), keys, nil); err != nil || got[0] != got[1] {
				t.Errorf("got %v, %v, want equal values", got, err)
			}
		}
		stop()
		wg.Wait()
	})
}

// A caller can reuse the memory of its keys, even while other callers wait for the same
// key.
func TestVersionedBorrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &versions{delay: time.Millisecond}
		st := NewVersioned("versions", db, nil)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				buffer := []byte("abc")
				key := borrowed(buffer)
				if _, err := eval(t.Context(), st, countAll, key); err != nil {
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
	})
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

func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
