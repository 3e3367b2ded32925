package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// write returns a script that puts 1 into key 0 and deletes key 1, and then ends
// as end says.
func write(readOnly bool, end func() error) *store.Script {
	form := func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		tx.Put(0, store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [4]int64{1}}, time.Hour)
		tx.Del(1)
		return append(reply, store.IntegerValue(1)), end()
	}
	if readOnly {
		return store.NewReadOnlyScript("write", "", form)
	}
	return store.NewScript("write", "", form)
}

// A step that fails in any way changes nothing, keeps no lock, and gives back what reply
// held.
func TestEvalFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
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
		{"the form fails", t.Context(), write(false, func() error { return broken }), []string{"{k}0", "{k}1"}, broken},
		{"the form meets a foreign key", t.Context(), write(false, func() error { return store.Foreign("{k}1") }), []string{"{k}0", "{k}1"}, store.ErrForeign},
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

// A form that panics takes no lock with it, and nothing of what it wrote stays.
func TestEvalPanics(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	for range 3 {
		func() {
			defer func() {
				if got := recover(); got != "broken" {
					t.Errorf("recovered %v, want the panic to pass", got)
				}
			}()
			_, _ = st.Eval(t.Context(), write(false, func() error { panic("broken") }), []string{"{k}0", "{k}1"}, nil, nil)
		}()
		if got := get(t, st, "{k}0")[0]; got != "" {
			t.Errorf("the store holds %q, want nothing", got)
		}
	}
	if err := set(st, time.Hour, 8, "{k}0", "{k}1"); err != nil {
		t.Error(err)
	}
}

// What a form puts is what its later gets see.
func TestTx(t *testing.T) {
	t.Parallel()
	tag, other := store.Tag{'t', '1'}, store.Tag{'u', '1'}
	one := store.Nums{Tag: tag, Len: 1, N: [4]int64{1}}
	c := newClock()
	st := memory.New(&memory.Options{Now: c.now})
	if err := set(st, time.Hour, 9, "{k}held"); err != nil {
		t.Fatal(err)
	}
	if err := set(st, time.Millisecond, 9, "{k}dead"); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	script := store.NewScript("tx", "", func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		check := func(what string, i int, tag store.Tag, want string, foreign bool) {
			t.Helper()
			n, ok, err := tx.Get(i, tag)
			got := ""
			if ok {
				got = n.String()
			}
			if err := tx.Foreign(i); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"{k}`) {
				t.Errorf("Foreign(%d) = %v, want ErrForeign that names the key", i, err)
			}
			if !ok && n != (store.Nums{}) {
				t.Errorf("%s: got %v beside false", what, n)
			}
			if got != want || errors.Is(err, store.ErrForeign) != foreign || (err != nil) != foreign {
				t.Errorf("%s: got %q, %v, want %q, foreign %v", what, got, err, want, foreign)
			}
		}
		if got, want := tx.Now(), c.now().UnixMicro(); got != want {
			t.Errorf("Now() = %d, want %d", got, want)
		}
		check("missing", 0, tag, "", false)
		check("held", 1, tag, "t1 9", false)
		check("held, another tag", 1, other, "", true)
		check("dead", 2, tag, "", false)
		check("dead, another tag", 2, other, "", false)
		tx.Put(0, one, time.Second)
		check("put", 0, tag, "t1 1", false)
		tx.Del(1)
		check("deleted", 1, other, "", false)
		tx.Put(2, one, time.Second)
		tx.Del(2)
		check("put and deleted", 2, tag, "", false)
		tx.Put(1, one, time.Second)
		check("deleted and put", 1, tag, "t1 1", false)
		return reply, nil
	})
	if _, err := st.Eval(t.Context(), script, []string{"{k}new", "{k}held", "{k}dead"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%q", get(t, st, "{k}new", "{k}held", "{k}dead")), `["t1 1" "t1 1" ""]`; got != want {
		t.Errorf("the store holds %s, want %s", got, want)
	}
}

// The store keeps nothing of the keys that it is lent.
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
		_, _, err := tx.Get(0, store.Tag{'u', '1'})
		return nil, err
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
