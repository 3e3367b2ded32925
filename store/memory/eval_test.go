package memory_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// write returns a script that sets key 0 to 1, deletes key 1, and returns the error of
// end.
func write(readOnly bool, end func() error) *store.Script {
	form := func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		tx.Put(0, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [store.MaxNums]int64{1}}, time.Hour)
		tx.Del(1)
		return append(reply, store.IntegerValue(1)), end()
	}
	if readOnly {
		return store.NewReadOnlyScript("write", "", form)
	}
	return store.NewScript("write", "", form)
}

// A failed script changes nothing, releases its locks, and returns the unchanged reply.
// Its error is as the documentation of store.Script.Run says.
func TestEvalFails(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	nothing := func() error { return nil }
	for _, tt := range []struct {
		name   string
		ctx    context.Context
		script *store.Script
		keys   []string
		want   error
	}{
		{"the form fails", t.Context(), write(false, func() error { return errors.New("broken") }), []string{"{k}0", "{k}1"}, store.ErrScript},
		{"the form fails with ErrScript", t.Context(), write(false, func() error { return store.ErrScript }), []string{"{k}0", "{k}1"}, store.ErrScript},
		{"the form fails with ErrUnavailable", t.Context(), write(false, func() error { return store.ErrUnavailable }), []string{"{k}0", "{k}1"}, store.ErrUnavailable},
		{"the form meets a foreign key", t.Context(), write(false, func() error { return store.ForeignAt(1) }), []string{"{k}0", "{k}1"}, store.ErrForeign},
		{"a read-only script writes", t.Context(), write(true, nothing), []string{"{k}0", "{k}1"}, store.ErrScript},
		{"no Go form", t.Context(), store.NewScript("lua", "return 1", nil), []string{"{k}0", "{k}1"}, store.ErrNoGoForm},
		{"keys of two slots", t.Context(), write(false, nothing), []string{"{k}0", "{l}1"}, store.ErrCrossSlot},
		{"canceled", canceled, write(false, nothing), []string{"{k}0", "{k}1"}, context.Canceled},
		{"no keys", t.Context(), write(false, nothing), nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := memory.New(nil)
			if err := set(st, time.Hour, 7, "{k}1"); err != nil {
				t.Fatal(err)
			}
			before := []store.Value{store.BulkValue("before")}
			reply, err := st.Eval(tt.ctx, tt.script, tt.keys, nil, before)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if len(reply) != 1 || reply[0] != before[0] {
				t.Errorf("reply %v, want what it held", reply)
			}
			if got, want := fmt.Sprintf("%q", get(t, st, "{k}0", "{k}1")), `["" "t1 7"]`; got != want {
				t.Errorf("the store holds %s, want %s", got, want)
			}
			if err := set(st, time.Hour, 8, "{k}0", "{k}1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// If a form panics, the call fails, its locks are released and its changes are discarded.
func TestEvalPanics(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	for range 3 {
		_, err := st.Eval(t.Context(), write(false, func() error { panic("broken") }), []string{"{k}0", "{k}1"}, nil, nil)
		if !errors.Is(err, store.ErrScript) || !strings.Contains(err.Error(), "broken") {
			t.Errorf("got error %v, want an ErrScript with broken in it", err)
		}
		if got := get(t, st, "{k}0")[0]; got != "" {
			t.Errorf("the store holds %q, want nothing", got)
		}
	}
	if err := set(st, time.Hour, 8, "{k}0", "{k}1"); err != nil {
		t.Error(err)
	}
}

// Get returns the result of earlier changes of the form.
func TestTx(t *testing.T) {
	t.Parallel()
	tag := store.Tag{'t', '1'}
	nums := func(n int64) store.Nums { return store.Nums{Tag: tag, Len: 1, N: [store.MaxNums]int64{n}} }
	c := newClock()
	st := memory.New(&memory.Options{Now: c.now})
	for key, ttl := range map[string]time.Duration{"{k}held": time.Hour, "{k}kept": time.Hour, "{k}expired": time.Millisecond} {
		if err := set(st, ttl, 9, key); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(time.Second)
	script := store.NewScript("tx", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		check := func(what string, i int, want string) {
			t.Helper()
			n, ok, err := tx.Get(i)
			got := ""
			if ok {
				got = n.String()
			}
			if got != want || err != nil || !ok && n != (store.Nums{}) {
				t.Errorf("%s: got %v, %v, %v, want %q", what, n, ok, err, want)
			}
		}
		if got, want := tx.Now(), c.now().UnixMicro(); got != want {
			t.Errorf("Now() = %d, want %d", got, want)
		}
		check("missing", 0, "")
		check("held", 1, "t1 9")
		check("expired", 2, "")
		tx.Keep(0, nums(5))
		check("kept, missing", 0, "")
		tx.Put(0, nums(1), time.Second)
		check("put", 0, "t1 1")
		tx.Keep(0, nums(2))
		check("put and kept", 0, "t1 2")
		tx.Del(1)
		check("deleted", 1, "")
		tx.Put(2, nums(1), time.Second)
		tx.Del(2)
		check("put and deleted", 2, "")
		tx.Put(1, nums(1), time.Second)
		check("deleted and put", 1, "t1 1")
		tx.Keep(3, nums(4))
		check("kept", 3, "t1 4")
		return reply, nil
	})
	keys := []string{"{k}new", "{k}held", "{k}expired", "{k}kept"}
	if _, err := st.Eval(t.Context(), script, keys, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%q", get(t, st, keys...)), `["t1 2" "t1 1" "" "t1 4"]`; got != want {
		t.Errorf("the store holds %s, want %s", got, want)
	}
	ttls := map[string]time.Duration{}
	for key, ttl := range st.All() {
		ttls[key] = ttl
	}
	if want := map[string]time.Duration{"{k}new": time.Second, "{k}held": time.Second, "{k}kept": time.Hour - time.Second}; !maps.Equal(ttls, want) {
		t.Errorf("TTLs are %v, want %v", ttls, want)
	}
}

// A sorted set and Nums are foreign to each other, and the error names the key.
func TestForeign(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	if err := set(st, time.Hour, 1, "{k}nums"); err != nil {
		t.Fatal(err)
	}
	add := store.NewScript("add", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		tx.Add(0, store.Member{Text: "a"}, time.Hour)
		return reply, nil
	})
	if _, err := st.Eval(t.Context(), add, []string{"{k}set"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, key string
		read      func(tx store.Tx) error
	}{
		{"Get", "{k}set", func(tx store.Tx) error { _, _, err := tx.Get(1); return err }},
		{"At", "{k}nums", func(tx store.Tx) error { _, _, err := tx.At(1, 0); return err }},
		{"Count", "{k}nums", func(tx store.Tx) error { _, _, err := tx.Count(1, 0); return err }},
		{"Score", "{k}nums", func(tx store.Tx) error { _, _, err := tx.Score(1, "a"); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			form := func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
				return reply, tt.read(tx)
			}
			for _, script := range []*store.Script{store.NewScript("x", "", form), store.NewReadOnlyScript("x", "", form)} {
				_, err := st.Eval(t.Context(), script, []string{"{k}other", tt.key}, nil, nil)
				if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), fmt.Sprintf("%q", tt.key)) {
					t.Errorf("got %v, want an ErrForeign that names %q", err, tt.key)
				}
			}
		})
	}
}

// The store copies the keys that it keeps.
func TestBorrowedKeys(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	if !st.BorrowsStrings(st) {
		t.Fatal("BorrowsStrings() = false")
	}
	buf := make([]byte, 0, 64)
	borrow := func(i int) string {
		buf = fmt.Appendf(buf[:0], "{k}%d", i)
		return unsafe.String(&buf[0], len(buf))
	}
	const n = 1000
	for i := range n {
		if err := set(st, time.Hour, int64(i), borrow(i)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := st.Eval(t.Context(), store.NewScript("foreign", "", func(tx store.Tx, _ []store.Arg, _ []store.Value) ([]store.Value, error) {
		_, _, err := tx.Get(0)
		return nil, errors.Join(err, store.ForeignAt(0))
	}), []string{borrow(17)}, nil, nil)
	clear(buf[:cap(buf)])
	if err == nil || !strings.Contains(err.Error(), `"{k}17"`) {
		t.Errorf("error %v does not name the key", err)
	}
	for i := range n {
		if got, want := get(t, st, fmt.Sprintf("{k}%d", i))[0], fmt.Sprintf("t1 %d", i); got != want {
			t.Fatalf("key %d holds %q, want %q", i, got, want)
		}
	}
	for key := range st.All() {
		if !strings.HasPrefix(key, "{k}") {
			t.Fatalf("the store has a key %q", key)
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
