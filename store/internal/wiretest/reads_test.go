package wiretest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// mget tests that MGet sends one MGET to one server, and one for each slot to a cluster.
func (sub subject) mget(t *testing.T) {
	srv := NewCluster(t, AnswerMGet)
	keys := []string{"1{b}", "1{a}", "2{b}", "no{c}", "2{a}", "1{b}"}
	want := []store.Value{store.IntegerValue(1)}
	for _, key := range keys {
		v := store.BulkValue(key)
		if strings.HasPrefix(key, "no") {
			v = store.Value{}
		}
		want = append(want, v)
	}
	bySlot := []string{"MGET 1{a} 2{a}", "MGET 1{b} 2{b} 1{b}", "MGET no{c}"}
	for name, wantSent := range map[kind][]string{single: {"MGET 1{b} 1{a} 2{b} no{c} 2{a} 1{b}"}, cluster: bySlot, unknown: bySlot} {
		if !sub.has(name) {
			continue
		}
		s := sub.store(t, srv.Addr, name)
		got, err := s.MGet(t.Context(), keys, []store.Value{store.IntegerValue(1)})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
		sent, _ := srv.Commands()
		if slices.Sort(sent); !slices.Equal(sent, wantSent) {
			t.Errorf("%s: the server received %q, want %q", name, sent, wantSent)
		}
		if _, err := s.MGet(t.Context(), []string{"1{a}", "2{a}"}, nil); err != nil {
			t.Errorf("%s, one slot: %v", name, err)
		}
		if sent, _ := srv.Commands(); !slices.Equal(sent, []string{"MGET 1{a} 2{a}"}) {
			t.Errorf("%s, one slot: the server received %q", name, sent)
		}
	}
}

// mgetReplies tests that MGet rejects replies that MGET does not give.
func (sub subject) mgetReplies(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		err        error
	}{
		{"too few", "*1\r\n$1\r\nx\r\n", store.ErrUnavailable},
		{"too many", "*3\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n", store.ErrUnavailable},
		{"integers", "*2\r\n:1\r\n:1\r\n", store.ErrUnavailable},
		{"nested", "*2\r\n*0\r\n*0\r\n", store.ErrUnavailable},
		{"string", "$2\r\nxx\r\n", store.ErrUnavailable},
		{"status", "+OK\r\n", store.ErrUnavailable},
		{"nil", "*-1\r\n", store.ErrUnavailable},
		{"refused", "-NOPERM no\r\n", store.ErrUnavailable},
		{"cross-slot", "-CROSSSLOT no\r\n", store.ErrCrossSlot},
		{"connection lost", "", store.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := NewCluster(t, func([]string) string { return c.wire })
			for _, call := range []struct {
				store Store
				keys  []string
			}{
				{sub.store(t, srv.Addr, single), []string{"a", "b"}},
				{sub.store(t, srv.Addr, cluster), []string{"1{a}", "1{b}", "2{a}", "2{b}"}},
			} {
				all := slices.Repeat([]store.Value{store.IntegerValue(1)}, 9)
				given, spare := all[:1], all[1+len(call.keys):]
				got, err := call.store.MGet(t.Context(), call.keys, given)
				if slices.ContainsFunc(spare, func(v store.Value) bool { return v != all[0] }) {
					t.Errorf("behind the values, the caller's slice holds %v", spare)
				}
				if !errors.Is(err, c.err) || !strings.HasPrefix(err.Error(), sub.name+": mget: ") || !slices.Equal(got, given) {
					t.Errorf("got %v, %v, want %v", got, err, c.err)
				}
			}
		})
	}
}

// time tests what Time makes of replies.
func (sub subject) time(t *testing.T) {
	for wire, want := range map[string]time.Time{
		"*2\r\n$10\r\n1767225600\r\n$3\r\n123\r\n":  time.UnixMicro(1767225600_000123),
		"*2\r\n$10\r\n1767225600\r\n$3\r\nabc\r\n":  {},
		"*2\r\n$1\r\nx\r\n$1\r\n1\r\n":              {},
		"*1\r\n$10\r\n1767225600\r\n":               {},
		":1767225600\r\n":                           {},
		"+OK\r\n":                                   {},
		"-NOPERM this user has no permissions\r\n":  {},
		"-LOADING Redis is loading the dataset\r\n": {},
	} {
		srv := NewCluster(t, func([]string) string { return wire })
		for _, name := range []kind{single, cluster} {
			got, err := sub.store(t, srv.Addr, name).Time(t.Context())
			if !got.Equal(want) || want.IsZero() != errors.Is(err, store.ErrUnavailable) || want.IsZero() != (err != nil) {
				t.Errorf("%s, %q: got %v, %v, want %v", name, wire, got, err, want)
			}
		}
	}
}
