package wiretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-go/weir/store"
)

// eval tests that Eval sends EVALSHA, and then EVAL if the server does not know the
// script.
func (sub subject) eval(t *testing.T) {
	for _, name := range []kind{single, cluster} {
		known := atomic.Bool{}
		srv := NewCluster(t, func(args []string) string {
			if args[0] == "EVALSHA" && !known.Load() {
				return NoScript
			}
			return "*4\r\n:42\r\n$3\r\na\r\n\r\n$-1\r\n+OK\r\n"
		})
		s := sub.store(t, srv.Addr, name)
		call := func(args []store.Arg, want ...string) {
			t.Helper()
			reply, err := s.Eval(t.Context(), Script, Keys, args, []store.Value{store.IntegerValue(1)})
			wantReply := []store.Value{
				store.IntegerValue(1), store.IntegerValue(42), store.BulkValue("a\r\n"), {}, store.BulkValue("OK"),
			}
			if err != nil || !slices.Equal(reply, wantReply) {
				t.Errorf("%s: got %v, %v, want %v", name, reply, err, wantReply)
			}
			if sent, _ := srv.Commands(); !slices.Equal(sent, want) {
				t.Errorf("%s: the server received %q, want %q", name, sent, want)
			}
		}
		sha, lua := "EVALSHA "+Script.SHA()+" 2 a{k} b{k}", "EVAL return 1 2 a{k} b{k}"
		call(Args, sha+" 7 8 nine", lua+" 7 8 nine")
		known.Store(true)
		call(Args, sha+" 7 8 nine")
		call(nil, sha)
	}
}

// ownReply tests that concurrent calls, whose EVALSHA fails, each get their own reply: some
// clients recycle commands, so the store uses each only once.
func (sub subject) ownReply(t *testing.T) {
	srv := NewServer(t, func(args []string) string {
		if args[0] == "EVALSHA" {
			return NoScript
		}
		return fmt.Sprintf("$%d\r\n%s\r\n", len(args[4]), args[4])
	})
	s := sub.store(t, srv.Addr, single)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			text := strings.Repeat(fmt.Sprint(i), 1+i*100)
			for range 200 {
				if reply, err := s.Eval(t.Context(), Script, Keys[:1], []store.Arg{store.StringArg(text)}, nil); err != nil || len(reply) != 1 || reply[0].Str() != text {
					t.Errorf("caller %d: got %v, %v", i, reply, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// replies tests what Eval and EvalBatch make of replies.
func (sub subject) replies(t *testing.T) {
	type reply struct {
		name, wire string
		want       []store.Value
		err        error
		resp3      bool
	}
	list := []reply{
		{"integer", ":7\r\n", []store.Value{store.IntegerValue(7)}, nil, false},
		{"negative", ":-7\r\n", []store.Value{store.IntegerValue(-7)}, nil, false},
		{"string", "$1\r\nx\r\n", []store.Value{store.BulkValue("x")}, nil, false},
		{"empty string", "$0\r\n\r\n", []store.Value{store.BulkValue("")}, nil, false},
		{"nil", "$-1\r\n", []store.Value{{}}, nil, false},
		{"nil array", "*-1\r\n", []store.Value{{}}, nil, false},
		{"nil of RESP3", "*2\r\n_\r\n:1\r\n", []store.Value{{}, store.IntegerValue(1)}, nil, true},
		{"empty", "*0\r\n", []store.Value{}, nil, false},
		{"nested", "*2\r\n:1\r\n*1\r\n:2\r\n", nil, store.ErrScript, false},
		{"error inside", "*2\r\n:1\r\n-ERR no\r\n", nil, store.ErrScript, false},
		{"double", ",1.5\r\n", nil, store.ErrScript, true},
		{"boolean", "*1\r\n#t\r\n", nil, store.ErrScript, true},
		{"map", "%1\r\n:1\r\n:2\r\n", nil, store.ErrScript, true},
		{"error", "-MYERR no\r\n", nil, store.ErrScript, false},
		{"plain error", "-ERR no\r\n", nil, store.ErrScript, false},
		{"foreign", "-WEIRFOREIGN 2\r\n", nil, store.ErrForeign, false},
		{"still unknown", NoScript, nil, store.ErrScript, false},
		{"out of memory", "-OOM command not allowed\r\n", nil, store.ErrUnavailable, false},
		{"too many clients", "-ERR max number of clients reached\r\n", nil, store.ErrUnavailable, false},
		{"cross-slot", "-CROSSSLOT Keys in request don't hash to the same slot\r\n", nil, store.ErrCrossSlot, false},
		{"connection lost", "", nil, store.ErrUnavailable, false},
	}
	for _, wire := range sub.unavailable {
		list = append(list, reply{wire, wire, nil, store.ErrUnavailable, false})
	}
	for _, c := range list {
		if c.resp3 && !sub.resp3 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := sub.store(t, NewServer(t, func([]string) string { return c.wire }).Addr, single)
			given := []store.Value{store.IntegerValue(1)}
			check := func(got []store.Value, err error) {
				t.Helper()
				if !errors.Is(err, c.err) || !slices.Equal(got, append(given, c.want...)) {
					t.Errorf("got %v, %v, want %v, %v", got, err, append(given, c.want...), c.err)
				}
				if err != nil && !strings.HasPrefix(err.Error(), sub.name+": eval probe: ") {
					t.Errorf("%q does not name the call", err)
				}
				if errors.Is(err, store.ErrForeign) && !strings.Contains(err.Error(), `"b{k}"`) {
					t.Errorf("%q does not name the key", err)
				}
			}
			check(s.Eval(t.Context(), Script, Keys, nil, given))
			calls := []store.Eval{{Script: Script, Keys: Keys, Reply: given, Err: errors.New("stale")}}
			s.EvalBatch(t.Context(), calls)
			check(calls[0].Reply, calls[0].Err)
		})
	}
}

// batch tests that a batch is one pipeline, and a second one for the scripts that the
// server does not know.
func (sub subject) batch(t *testing.T) {
	srv := NewCluster(t, func(args []string) string {
		switch key := args[3]; {
		case key == "bad":
			return "-MYERR no\r\n"
		case key == "new" && args[0] == "EVALSHA":
			return NoScript
		default:
			return "$" + fmt.Sprint(len(key)) + "\r\n" + key + "\r\n"
		}
	})
	for _, name := range []kind{single, cluster} {
		s := sub.store(t, srv.Addr, name)
		calls := []store.Eval{
			{Script: Script, Keys: []string{"x"}},
			{Script: Script, Keys: []string{"bad"}},
			{Script: Script, Keys: []string{"x", "y"}},
			{Script: Script, Keys: []string{"new"}, Reply: []store.Value{store.IntegerValue(1)}},
			{Script: Script},
			{Script: Script, Keys: []string{"y"}},
		}
		s.EvalBatch(t.Context(), calls)
		for i, want := range []struct {
			err   error
			reply []store.Value
		}{
			{nil, []store.Value{store.BulkValue("x")}},
			{store.ErrScript, nil},
			{store.ErrCrossSlot, nil},
			{nil, []store.Value{store.IntegerValue(1), store.BulkValue("new")}},
			{errAny, nil},
			{nil, []store.Value{store.BulkValue("y")}},
		} {
			if got := calls[i]; !is(got.Err, want.err) || !slices.Equal(got.Reply, want.reply) {
				t.Errorf("%s: call %d: got %v, %v, want %v, %v", name, i, got.Reply, got.Err, want.reply, want.err)
			}
		}
		sha := "EVALSHA " + Script.SHA() + " 1 "
		want := []string{sha + "x", sha + "bad", sha + "new", sha + "y", "EVAL return 1 1 new"}
		if sent, _ := srv.Commands(); !slices.Equal(sent, want) {
			t.Errorf("%s: the server received %q, want %q", name, sent, want)
		}
	}
}

// cancelled tests that no EVAL is sent if the context has ended by the time of a
// NOSCRIPT.
func (sub subject) cancelled(t *testing.T) {
	for _, call := range []string{"eval", "batch"} {
		for _, name := range []kind{single, cluster} {
			ctx, cancel := context.WithCancel(t.Context())
			srv := NewCluster(t, func([]string) string {
				cancel()
				return NoScript
			})
			if err := OneCall(ctx, sub.store(t, srv.Addr, name), call); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %s: got %v", name, call, err)
			}
			if sent, _ := srv.Commands(); len(sent) != 1 || !strings.HasPrefix(sent[0], "EVALSHA") {
				t.Errorf("%s: %s: the server received %q", name, call, sent)
			}
		}
	}
}

// brokenBatch tests that earlier replies of every kind are kept if a connection breaks in
// the middle of a batch.
func (sub subject) brokenBatch(t *testing.T) {
	keeps := single
	if sub.has(pipelined) {
		keeps = pipelined
	}
	for _, answer := range []string{"*1\r\n:1\r\n", "$1\r\n1\r\n", ":1\r\n"} {
		srv := NewServer(t, func(args []string) string {
			return map[string]string{"a": answer, "b": "$9\r\nha", "c": ""}[args[3]]
		})
		calls := []store.Eval{{Script: Script, Keys: []string{"a"}}, {Script: Script, Keys: []string{"b"}}, {Script: Script, Keys: []string{"c"}}}
		sub.store(t, srv.Addr, keeps).EvalBatch(t.Context(), calls)
		if calls[0].Err != nil || len(calls[0].Reply) != 1 {
			t.Errorf("answered with %q: got %v, %v", answer, calls[0].Reply, calls[0].Err)
		}
		for _, c := range calls[1:] {
			if !errors.Is(c.Err, store.ErrUnavailable) || c.Reply != nil {
				t.Errorf("unanswered: got %v, %v", c.Reply, c.Err)
			}
		}
	}
}
