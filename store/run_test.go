package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// Run returns the documented errors of Store.Eval, with the reply that the caller passed.
func TestRunErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	returns := func(err error) store.GoForm {
		return func(_ store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			return append(reply, store.IntegerValue(1)), err
		}
	}
	changes := func(change func(tx store.Tx)) store.GoForm {
		return func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
			change(tx)
			return append(reply, store.IntegerValue(1)), nil
		}
	}
	readOnly := func(change func(tx store.Tx)) *store.Script {
		return store.NewReadOnlyScript("read", "", changes(change))
	}
	all := []error{store.ErrUnavailable, store.ErrScript, store.ErrForeign, store.ErrCrossSlot, store.ErrNoGoForm, context.Canceled, context.DeadlineExceeded}
	for _, tt := range []struct {
		name   string
		script *store.Script
		want   error  // the only sentinel error that the error is
		text   string // a part of the error's text
	}{
		{"no Go form", store.NewScript("x", "return 1", nil), store.ErrNoGoForm, ""},
		{"no Go form, read-only", store.NewReadOnlyScript("x", "return 1", nil), store.ErrNoGoForm, ""},
		{"any error", store.NewScript("x", "", returns(broken)), store.ErrScript, "broken"},
		{"any error, read-only", store.NewReadOnlyScript("x", "", returns(broken)), store.ErrScript, "broken"},
		{"ErrScript", store.NewScript("x", "", returns(fmt.Errorf("%w: why", store.ErrScript))), store.ErrScript, "script failed: why"},
		{"ErrUnavailable", store.NewScript("x", "", returns(store.ErrUnavailable)), store.ErrUnavailable, ""},
		{"canceled", store.NewScript("x", "", returns(context.Canceled)), context.Canceled, ""},
		{"deadline", store.NewScript("x", "", returns(context.DeadlineExceeded)), context.DeadlineExceeded, ""},
		{"Foreign", store.NewScript("x", "", returns(store.Foreign("{k}other"))), store.ErrForeign, `"{k}other"`},
		{"ForeignAt", store.NewScript("x", "", returns(store.ForeignAt(1))), store.ErrForeign, `"{k}b"`},
		{"ForeignAt, wrapped", store.NewScript("x", "", returns(fmt.Errorf("why: %w", store.ForeignAt(0)))), store.ErrForeign, `"{k}a"`},
		{"ForeignAt, read-only", store.NewReadOnlyScript("x", "", returns(store.ForeignAt(1))), store.ErrForeign, `"{k}b"`},
		{"ForeignAt, no such key", store.NewScript("x", "", returns(store.ForeignAt(2))), store.ErrScript, "ForeignAt(2): the script has 2 keys"},
		{"panic", store.NewScript("x", "", changes(func(store.Tx) { panic("lost the plot") })), store.ErrScript, "panicked at run_test.go:"},
		{"panic, read-only", readOnly(func(store.Tx) { panic("lost the plot") }), store.ErrScript, "lost the plot"},
		{"panic of the runtime", store.NewScript("x", "", changes(func(tx store.Tx) { _ = make([]int, -tx.Now()) })), store.ErrScript, "panicked at run_test.go:"},
		{"panic of the Tx", store.NewScript("x", "", changes(func(tx store.Tx) { _, _, _ = tx.Get(9) })), store.ErrScript, "out of range"},
		{"read-only Put", readOnly(func(tx store.Tx) { tx.Put(0, store.Nums{}, time.Second) }), store.ErrScript, "read-only"},
		{"read-only Keep", readOnly(func(tx store.Tx) { tx.Keep(0, store.Nums{}) }), store.ErrScript, "read-only"},
		{"read-only Del", readOnly(func(tx store.Tx) { tx.Del(0) }), store.ErrScript, "read-only"},
		{"read-only Add", readOnly(func(tx store.Tx) { tx.Add(0, store.Member{}, time.Second) }), store.ErrScript, "read-only"},
		{"read-only Remove", readOnly(func(tx store.Tx) { tx.Remove(0, "a") }), store.ErrScript, "read-only"},
		{"read-only Trim", readOnly(func(tx store.Tx) { tx.Trim(0, 1) }), store.ErrScript, "read-only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tx := store.NewLoaded(1, []store.Content{{Kind: store.Numbers}, {}})
			reply := append(make([]store.Value, 0, 4), store.IntegerValue(5))
			got, err := tt.script.Run(tx, []string{"{k}a", "{k}b"}, nil, reply)
			for _, sentinel := range all {
				if is := errors.Is(err, sentinel); is != (sentinel == tt.want) {
					t.Errorf("errors.Is(%v, %v) = %v", err, sentinel, is)
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got error %v, want %q in it", err, tt.text)
			}
			if !slices.Equal(got, []store.Value{store.IntegerValue(5)}) {
				t.Errorf("got reply %v, want what it held", got)
			}
			if tt.script.ReadOnly() && len(tx.Changes()) > 0 {
				t.Errorf("a read-only script changed %+v", tx.Changes())
			}
		})
	}
}

// Run gives the form tx, args and reply, even if the script is read-only.
func TestRun(t *testing.T) {
	t.Parallel()
	form := func(tx store.Tx, args []store.Arg, reply []store.Value) ([]store.Value, error) {
		n, ok, err := tx.Get(0)
		if !ok || err != nil {
			return nil, fmt.Errorf("got %v, %v", ok, err)
		}
		return append(reply, store.IntegerValue(tx.Now()), store.IntegerValue(n.N[0]), store.IntegerValue(args[0].Int())), nil
	}
	for _, script := range []*store.Script{store.NewScript("x", "", form), store.NewReadOnlyScript("x", "", form)} {
		tx := store.NewLoaded(7, []store.Content{{Kind: store.Numbers, Nums: store.Nums{Len: 1, N: [store.MaxNums]int64{8}}}})
		got, err := script.Run(tx, []string{"a"}, []store.Arg{store.IntArg(9)}, []store.Value{store.IntegerValue(6)})
		want := []store.Value{store.IntegerValue(6), store.IntegerValue(7), store.IntegerValue(8), store.IntegerValue(9)}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("read-only %v: got %v, %v, want %v", script.ReadOnly(), got, err, want)
		}
	}
}

// What every decision calls allocates nothing, and neither do the arguments that are made
// once.
func TestAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	form := func(tx store.Tx, _ []store.Arg, reply []store.Value) ([]store.Value, error) {
		return append(reply, store.IntegerValue(tx.Now())), nil
	}
	write, read := store.NewScript("x", "", form), store.NewReadOnlyScript("x", "", form)
	tx, keys, reply := store.Tx(store.NewLoaded(1, make([]store.Content, 1))), []string{"weir:{user}:a", "weir:{user}:b"}, make([]store.Value, 0, 1)
	constant, text, buf, sink := store.ConstArg(1767225600000000), store.StringArg("some text that is long enough"), make([]byte, 0, 64), any(nil)
	for name, f := range map[string]func(){
		"Run":              func() { _, _ = write.Run(tx, keys, nil, reply) },
		"Run of read-only": func() { _, _ = read.Run(tx, keys, nil, reply) },
		"CheckKeys":        func() { _ = store.CheckKeys(keys) },
		"Any of a const":   func() { sink = constant.Any() },
		"Any of a string":  func() { sink = text.Any() },
		"String":           func() { buf = append(buf[:0], constant.String()...) },
		"ParseNums": func() {
			n, _ := store.ParseNums("g1 1767225600000000 0 1")
			buf = n.AppendText(buf[:0])
		},
	} {
		if got := testing.AllocsPerRun(100, f); got != 0 {
			t.Errorf("%s allocates %v times, want 0", name, got)
		}
	}
	_ = sink
}
