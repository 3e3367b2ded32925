package rueidistest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/respserver"
)

// unknown is a NOSCRIPT with the text that a proxy may send.
const unknown = "-ERR proxy: NOSCRIPT No matching script. Please use EVAL.\r\n"

func (sub Subject) evalOnTheWire(t *testing.T) {
	t.Parallel()
	known := atomic.Bool{}
	srv := respserver.New(t, func(args []string) string {
		if args[0] == "EVALSHA" && !known.Load() {
			return unknown
		}
		return "*4\r\n:42\r\n$3\r\na\r\n\r\n$-1\r\n+OK\r\n"
	})
	s := sub.single(t, srv.Addr).Store
	call := func(want ...string) {
		t.Helper()
		reply, err := s.Eval(t.Context(), script, keys, args, []store.Value{store.IntegerValue(1)})
		wantReply := []store.Value{
			store.IntegerValue(1), store.IntegerValue(42), store.BulkValue("a\r\n"), {}, store.BulkValue("OK"),
		}
		if err != nil || !slices.Equal(reply, wantReply) {
			t.Errorf("got %v, %v, want %v", reply, err, wantReply)
		}
		if sent, _ := srv.Commands(); !slices.Equal(sent, want) {
			t.Errorf("the server received %q, want %q", sent, want)
		}
	}
	sha, lua := "EVALSHA "+script.SHA()+" 2 a{k} b{k} 7 8 nine", "EVAL return 1 2 a{k} b{k} 7 8 nine"
	call(sha, lua)
	known.Store(true)
	call(sha)

	if _, err := s.Eval(t.Context(), script, keys[:1], nil, nil); err != nil {
		t.Error(err)
	}
	if sent, _ := srv.Commands(); !slices.Equal(sent, []string{"EVALSHA " + script.SHA() + " 1 a{k}"}) {
		t.Errorf("without arguments, the server received %q", sent)
	}
}

// The store uses each command of the client only once, because the client recycles it. So
// concurrent calls, whose EVALSHA fails, each get their own reply.
func (sub Subject) commandsAreNotReused(t *testing.T) {
	t.Parallel()
	srv := respserver.New(t, func(args []string) string {
		if args[0] == "EVALSHA" {
			return unknown
		}
		return "$" + fmt.Sprint(len(args[4])) + "\r\n" + args[4] + "\r\n"
	})
	s := sub.single(t, srv.Addr).Store
	done := make(chan error)
	const callers, each = 8, 200
	for i := range callers {
		go func() {
			text := strings.Repeat(fmt.Sprint(i), 1+i*100)
			for range each {
				reply, err := s.Eval(t.Context(), script, keys[:1], []store.Arg{store.StringArg(text)}, nil)
				if err != nil || len(reply) != 1 || reply[0].Str() != text {
					done <- fmt.Errorf("%v, %w: not its own reply", reply, err)
					return
				}
			}
			done <- nil
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (sub Subject) replies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, wire string
		want       []store.Value
		err        error
	}{
		{"integer", ":7\r\n", []store.Value{store.IntegerValue(7)}, nil},
		{"string", "$1\r\nx\r\n", []store.Value{store.BulkValue("x")}, nil},
		{"empty string", "$0\r\n\r\n", []store.Value{store.BulkValue("")}, nil},
		{"nil", "$-1\r\n", []store.Value{{}}, nil},
		{"nil array", "*-1\r\n", []store.Value{{}}, nil},
		{"nil of RESP3", "*2\r\n_\r\n:1\r\n", []store.Value{{}, store.IntegerValue(1)}, nil},
		{"empty", "*0\r\n", []store.Value{}, nil},
		{"nested", "*2\r\n:1\r\n*1\r\n:2\r\n", nil, store.ErrScript},
		{"error inside", "*2\r\n:1\r\n-ERR no\r\n", nil, store.ErrScript},
		{"double", ",1.5\r\n", nil, store.ErrScript},
		{"boolean", "*1\r\n#t\r\n", nil, store.ErrScript},
		{"map", "%1\r\n:1\r\n:2\r\n", nil, store.ErrScript},
		{"error", "-MYERR no\r\n", nil, store.ErrScript},
		{"plain error", "-ERR no\r\n", nil, store.ErrScript},
		{"foreign", "-WEIRFOREIGN 2\r\n", nil, store.ErrForeign},
		{"still unknown", unknown, nil, store.ErrScript},
		{"out of memory", "-OOM command not allowed\r\n", nil, store.ErrUnavailable},
		{"too many clients", "-ERR max number of clients reached\r\n", nil, store.ErrUnavailable},
		{"cross-slot", "-CROSSSLOT Keys in request don't hash to the same slot\r\n", nil, store.ErrCrossSlot},
		{"connection lost", "", nil, store.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := sub.single(t, respserver.New(t, func([]string) string { return c.wire }).Addr).Store
			given := []store.Value{store.IntegerValue(1)}
			check := func(got []store.Value, err error) {
				t.Helper()
				if !errors.Is(err, c.err) || !slices.Equal(got, append(given, c.want...)) {
					t.Errorf("got %v, %v, want %v, %v", got, err, append(given, c.want...), c.err)
				}
				if err != nil && !strings.HasPrefix(err.Error(), sub.Name+": eval probe: ") {
					t.Errorf("%q does not name the call", err)
				}
				if errors.Is(err, store.ErrForeign) && !strings.Contains(err.Error(), `"b{k}"`) {
					t.Errorf("%q does not name the key", err)
				}
			}
			check(s.Eval(t.Context(), script, keys, nil, given))
			calls := []store.Eval{{Script: script, Keys: keys, Reply: given, Err: errors.New("stale")}}
			s.EvalBatch(t.Context(), calls)
			check(calls[0].Reply, calls[0].Err)
		})
	}
}

func (sub Subject) batchOnTheWire(t *testing.T) {
	t.Parallel()
	srv := clusterServer(t, func(args []string) string {
		switch key := args[3]; {
		case key == "bad":
			return "-MYERR no\r\n"
		case key == "new" && args[0] == "EVALSHA":
			return unknown
		default:
			return "$" + fmt.Sprint(len(key)) + "\r\n" + key + "\r\n"
		}
	})
	for name, c := range map[string]*Client{"one server": sub.single(t, srv.Addr), "cluster": sub.cluster(t, srv.Addr)} {
		calls := []store.Eval{
			{Script: script, Keys: []string{"x"}},
			{Script: script, Keys: []string{"bad"}},
			{Script: script, Keys: []string{"x", "y"}},
			{Script: script, Keys: []string{"new"}, Reply: []store.Value{store.IntegerValue(1)}},
			{Script: script},
			{Script: script, Keys: []string{"y"}},
		}
		c.Store.EvalBatch(t.Context(), calls)
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
		sha := "EVALSHA " + script.SHA() + " 1 "
		want := []string{sha + "x", sha + "bad", sha + "new", sha + "y", "EVAL return 1 1 new"}
		if sent, _ := srv.Commands(); !slices.Equal(sent, want) {
			t.Errorf("%s: the server received %q, want %q", name, sent, want)
		}
	}
}

// errAny stands for any error.
var errAny = errors.New("any error")

func is(err, want error) bool {
	return want == errAny && err != nil || errors.Is(err, want) //nolint:errorlint // a marker
}

// If a connection breaks in the middle of a batch, the client drops all replies if only one
// caller uses the connection. With pipelining, earlier replies are kept.
func (sub Subject) batchBroken(t *testing.T) {
	t.Parallel()
	for _, pipelining := range []bool{false, true} {
		srv := respserver.New(t, func(args []string) string {
			return map[string]string{"a": "*1\r\n:1\r\n", "b": "$9\r\nha", "c": ""}[args[3]]
		})
		o := options(srv.Addr)
		o.Pipelining = pipelining
		calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"b"}}, {Script: script, Keys: []string{"c"}}}
		sub.open(t, o).Store.EvalBatch(t.Context(), calls)
		if pipelining && (calls[0].Err != nil || len(calls[0].Reply) != 1) {
			t.Errorf("answered: got %v, %v", calls[0].Reply, calls[0].Err)
		}
		for _, c := range calls {
			if c.Err != nil && (!errors.Is(c.Err, store.ErrUnavailable) || c.Reply != nil) {
				t.Errorf("pipelining %t: got %v, %v", pipelining, c.Reply, c.Err)
			}
		}
		if calls[1].Err == nil || calls[2].Err == nil {
			t.Errorf("pipelining %t: unanswered: got %v and %v", pipelining, calls[1].Err, calls[2].Err)
		}
	}
}

func (sub Subject) mgetOnTheWire(t *testing.T) {
	t.Parallel()
	srv := clusterServer(t, func(args []string) string {
		reply := fmt.Sprintf("*%d\r\n", len(args)-1)
		for _, key := range args[1:] {
			if strings.HasPrefix(key, "no") {
				reply += "$-1\r\n"
			} else {
				reply += fmt.Sprintf("$%d\r\n%s\r\n", len(key), key)
			}
		}
		return reply
	})
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
	for name, c := range map[string]struct {
		store Store
		sent  []string
	}{
		"one server":   {sub.single(t, srv.Addr).Store, []string{"MGET 1{b} 1{a} 2{b} no{c} 2{a} 1{b}"}},
		"cluster":      {sub.cluster(t, srv.Addr).Store, bySlot},
		"unknown mode": {sub.cluster(t, srv.Addr).Modeless, bySlot},
	} {
		got, err := c.store.MGet(t.Context(), keys, []store.Value{store.IntegerValue(1)})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
		sent, _ := srv.Commands()
		if slices.Sort(sent); !slices.Equal(sent, c.sent) {
			t.Errorf("%s: the server received %q, want %q", name, sent, c.sent)
		}
	}
	if _, err := sub.cluster(t, srv.Addr).Store.MGet(t.Context(), []string{"1{a}", "2{a}"}, nil); err != nil {
		t.Error(err)
	}
	if sent, _ := srv.Commands(); !slices.Equal(sent, []string{"MGET 1{a} 2{a}"}) {
		t.Errorf("one slot: the server received %q", sent)
	}
}

func (sub Subject) mgetReply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, wire string
		err        error
	}{
		{"too few", "*1\r\n$1\r\nx\r\n", store.ErrUnavailable},
		{"too many", "*3\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n", store.ErrUnavailable},
		{"integers", "*2\r\n:1\r\n:1\r\n", store.ErrUnavailable},
		{"nested", "*2\r\n*0\r\n*0\r\n", store.ErrUnavailable},
		{"no list", "+OK\r\n", store.ErrUnavailable},
		{"nil", "*-1\r\n", store.ErrUnavailable},
		{"refused", "-NOPERM no\r\n", store.ErrUnavailable},
		{"cross-slot", "-CROSSSLOT no\r\n", store.ErrCrossSlot},
		{"connection lost", "", store.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := clusterServer(t, func([]string) string { return c.wire })
			for _, call := range []struct {
				store Store
				keys  []string
			}{
				{sub.single(t, srv.Addr).Store, []string{"a", "b"}},
				{sub.cluster(t, srv.Addr).Store, []string{"1{a}", "1{b}", "2{a}", "2{b}"}},
			} {
				given := []store.Value{store.IntegerValue(1)}
				got, err := call.store.MGet(t.Context(), call.keys, given)
				if !errors.Is(err, c.err) || !strings.HasPrefix(err.Error(), sub.Name+": mget: ") || !slices.Equal(got, given) {
					t.Errorf("got %v, %v, want %v", got, err, c.err)
				}
			}
		})
	}
}

func (sub Subject) serverTime(t *testing.T) {
	t.Parallel()
	for wire, want := range map[string]time.Time{
		"*2\r\n$10\r\n1767225600\r\n$3\r\n123\r\n":  time.UnixMicro(1767225600_000123),
		"*2\r\n$10\r\n1767225600\r\n$3\r\nabc\r\n":  {},
		"*1\r\n$10\r\n1767225600\r\n":               {},
		"+OK\r\n":                                   {},
		"-NOPERM this user has no permissions\r\n":  {},
		"-LOADING Redis is loading the dataset\r\n": {},
	} {
		srv := respserver.New(t, func([]string) string { return wire })
		got, err := sub.single(t, srv.Addr).Store.Time(t.Context())
		if !got.Equal(want) || want.IsZero() != errors.Is(err, store.ErrUnavailable) || want.IsZero() != (err != nil) {
			t.Errorf("%q: got %v, %v, want %v", wire, got, err, want)
		}
	}
}
