package goredis

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/respserver"
)

// unknown is a NOSCRIPT with the text that a proxy may send.
const unknown = "-ERR proxy: NOSCRIPT No matching script. Please use EVAL.\r\n"

func TestEvalOnTheWire(t *testing.T) {
	t.Parallel()
	known := atomic.Bool{}
	srv := respserver.New(t, func(args []string) string {
		if args[0] == "evalsha" && !known.Load() {
			return unknown
		}
		return "*4\r\n:42\r\n$3\r\na\r\n\r\n$-1\r\n+OK\r\n"
	})
	s := New(client(t, srv.Addr))
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
	sha, lua := "evalsha "+script.SHA()+" 2 a{k} b{k} 7 8 nine", "eval return 1 2 a{k} b{k} 7 8 nine"
	call(sha, lua)
	known.Store(true)
	call(sha)
}

func TestReply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, wire string
		want       []store.Value
		err        error
	}{
		{"integer", ":7\r\n", []store.Value{store.IntegerValue(7)}, nil},
		{"string", "$1\r\nx\r\n", []store.Value{store.BulkValue("x")}, nil},
		{"nil", "$-1\r\n", []store.Value{{}}, nil},
		{"nil array", "*-1\r\n", []store.Value{{}}, nil},
		{"empty", "*0\r\n", []store.Value{}, nil},
		{"nested", "*2\r\n:1\r\n*1\r\n:2\r\n", nil, store.ErrScript},
		{"error inside", "*2\r\n:1\r\n-ERR no\r\n", nil, store.ErrScript},
		{"double", ",1.5\r\n", nil, store.ErrScript},
		{"boolean", "*1\r\n#t\r\n", nil, store.ErrScript},
		{"error", "-MYERR no\r\n", nil, store.ErrScript},
		{"foreign", "-WEIRFOREIGN 2\r\n", nil, store.ErrForeign},
		{"still unknown", unknown, nil, store.ErrScript},
		{"out of memory", "-OOM command not allowed\r\n", nil, store.ErrUnavailable},
		{"cross-slot", "-CROSSSLOT Keys in request don't hash to the same slot\r\n", nil, store.ErrCrossSlot},
		{"connection lost", "", nil, store.ErrUnavailable},
		{"not the protocol", "HTTP/1.1 400 Bad Request\r\n", nil, store.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := New(client(t, respserver.New(t, func([]string) string { return c.wire }).Addr))
			given := []store.Value{store.IntegerValue(1)}
			check := func(got []store.Value, err error) {
				t.Helper()
				if !errors.Is(err, c.err) || !slices.Equal(got, append(given, c.want...)) {
					t.Errorf("got %v, %v, want %v, %v", got, err, append(given, c.want...), c.err)
				}
				if err != nil && !strings.HasPrefix(err.Error(), "goredis: eval probe: ") {
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

func TestBatchOnTheWire(t *testing.T) {
	t.Parallel()
	var srv *respserver.Server
	srv = respserver.New(t, func(args []string) string {
		if args[0] == "cluster" {
			return respserver.Slots(srv.Addr)
		}
		switch key := args[3]; {
		case key == "bad":
			return "-MYERR no\r\n"
		case key == "new" && args[0] == "evalsha":
			return unknown
		default:
			return "$" + fmt.Sprint(len(key)) + "\r\n" + key + "\r\n"
		}
	})
	for name, c := range map[string]redis.UniversalClient{"Client": client(t, srv.Addr), "ClusterClient": cluster(t, srv.Addr)} {
		calls := []store.Eval{
			{Script: script, Keys: []string{"x"}},
			{Script: script, Keys: []string{"bad"}},
			{Script: script, Keys: []string{"x", "y"}},
			{Script: script, Keys: []string{"new"}, Reply: []store.Value{store.IntegerValue(1)}},
			{Script: script},
			{Script: script, Keys: []string{"y"}},
		}
		New(c).EvalBatch(t.Context(), calls)
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
		sha := "evalsha " + script.SHA() + " 1 "
		want := []string{sha + "x", sha + "bad", sha + "new", sha + "y", "eval return 1 1 new"}
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

// If a connection breaks in the middle of a batch, earlier replies are kept, of every kind.
func TestBatchBroken(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"*1\r\n:1\r\n", "$1\r\n1\r\n", ":1\r\n"} {
		srv := respserver.New(t, func(args []string) string {
			return map[string]string{"a": answer, "b": "$9\r\nha", "c": ""}[args[3]]
		})
		calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"b"}}, {Script: script, Keys: []string{"c"}}}
		New(client(t, srv.Addr)).EvalBatch(t.Context(), calls)
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

// An error reply to one call of a batch does not make the client send the other calls again,
// which have run.
func TestBatchRunsOnce(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN Hash slot not served", "LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica."} {
		for refused := range 3 {
			var ran atomic.Int64
			var srv *respserver.Server
			srv = respserver.New(t, func(args []string) string {
				switch {
				case args[0] == "cluster":
					return respserver.Slots(srv.Addr)
				case args[0] == "command":
					return "*0\r\n"
				case args[3] == fmt.Sprint("k", refused):
					return "-" + refusal + "\r\n"
				}
				ran.Add(1)
				return "$1\r\n1\r\n"
			})
			cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{srv.Addr}})
			t.Cleanup(func() { _ = cluster.Close() })
			for name, c := range map[string]redis.UniversalClient{"Client": client(t, srv.Addr), "ClusterClient": cluster} {
				ran.Store(0)
				calls := make([]store.Eval, 3)
				for i := range calls {
					calls[i] = store.Eval{Script: script, Keys: []string{fmt.Sprint("k", i)}}
				}
				New(c).EvalBatch(t.Context(), calls)
				for i, c := range calls {
					if i == refused != errors.Is(c.Err, store.ErrUnavailable) || i != refused && (c.Err != nil || len(c.Reply) != 1) {
						t.Errorf("%s, %s for call %d: call %d: got %v, %v", name, refusal, refused, i, c.Reply, c.Err)
					}
				}
				if n := ran.Load(); n != 2 {
					t.Errorf("%s, %s for call %d: the other 2 calls ran %d times", name, refusal, refused, n)
				}
			}
		}
	}
}

func TestMGetOnTheWire(t *testing.T) {
	t.Parallel()
	var srv *respserver.Server
	srv = respserver.New(t, func(args []string) string {
		if args[0] == "cluster" {
			return respserver.Slots(srv.Addr)
		}
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
	for name, c := range map[string]struct {
		client redis.UniversalClient
		sent   []string
	}{
		"Client":        {client(t, srv.Addr), []string{"mget 1{b} 1{a} 2{b} no{c} 2{a} 1{b}"}},
		"ClusterClient": {cluster(t, srv.Addr), []string{"mget 1{a} 2{a}", "mget 1{b} 2{b} 1{b}", "mget no{c}"}},
		"wrapped":       {struct{ redis.UniversalClient }{client(t, srv.Addr)}, []string{"mget 1{a} 2{a}", "mget 1{b} 2{b} 1{b}", "mget no{c}"}},
	} {
		got, err := New(c.client).MGet(t.Context(), keys, []store.Value{store.IntegerValue(1)})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
		sent, _ := srv.Commands()
		if slices.Sort(sent); !slices.Equal(sent, c.sent) {
			t.Errorf("%s: the server received %q, want %q", name, sent, c.sent)
		}
	}
	if _, err := New(cluster(t, srv.Addr)).MGet(t.Context(), []string{"1{a}", "2{a}"}, nil); err != nil {
		t.Error(err)
	}
	if sent, _ := srv.Commands(); !slices.Equal(sent, []string{"mget 1{a} 2{a}"}) {
		t.Errorf("one slot: the server received %q", sent)
	}
}

func TestMGetReply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, wire string
		err        error
	}{
		{"too few", "*1\r\n$1\r\nx\r\n", store.ErrUnavailable},
		{"too many", "*3\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n", store.ErrUnavailable},
		{"integers", "*2\r\n:1\r\n:1\r\n", store.ErrUnavailable},
		{"refused", "-NOPERM no\r\n", store.ErrUnavailable},
		{"cross-slot", "-CROSSSLOT no\r\n", store.ErrCrossSlot},
		{"connection lost", "", store.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var srv *respserver.Server
			srv = respserver.New(t, func(args []string) string {
				if args[0] == "cluster" {
					return respserver.Slots(srv.Addr)
				}
				return c.wire
			})
			for _, call := range []struct {
				client redis.UniversalClient
				keys   []string
			}{
				{client(t, srv.Addr), []string{"a", "b"}},
				{cluster(t, srv.Addr), []string{"1{a}", "1{b}", "2{a}", "2{b}"}},
			} {
				given := []store.Value{store.IntegerValue(1)}
				got, err := New(call.client).MGet(t.Context(), call.keys, given)
				if !errors.Is(err, c.err) || !strings.HasPrefix(err.Error(), "goredis: mget: ") || !slices.Equal(got, given) {
					t.Errorf("got %v, %v, want %v", got, err, c.err)
				}
			}
		})
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	srv := respserver.New(t, func([]string) string { return "*2\r\n$10\r\n1767225600\r\n$3\r\n123\r\n" })
	got, err := New(client(t, srv.Addr)).Time(t.Context())
	if want := time.UnixMicro(1767225600_000123); err != nil || !got.Equal(want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// Failing calls make the store read the topology again, but not once for each call.
func TestFollow(t *testing.T) {
	t.Parallel()
	const down = "-CLUSTERDOWN The cluster is down\r\n"
	for name, c := range map[string]struct {
		answer   string
		topology bool // the node can send it again
	}{
		"CLUSTERDOWN":     {down, true},
		"connection lost": {"", true},
		"no topology":     {down, false}, // then the client itself does not wait between reloads
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var srv *respserver.Server
			asked := atomic.Bool{}
			srv = respserver.New(t, func(args []string) string {
				switch {
				case args[0] != "cluster":
					return c.answer
				case asked.Swap(true) && !c.topology:
					return down
				}
				return respserver.Slots(srv.Addr)
			})
			s := New(cluster(t, srv.Addr))
			if _, err := s.Eval(t.Context(), script, keys, nil, nil); !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
			_, reloads := srv.Commands() // the client's first, and perhaps one by the store
			start := time.Now()
			for reloads < 4 { // in real time, because the client reloads in the background
				if _, err := s.Eval(t.Context(), script, keys, nil, nil); !errors.Is(err, store.ErrUnavailable) {
					t.Fatal(err)
				}
				_, n := srv.Commands()
				reloads += n
				if time.Since(start) > 30*time.Second {
					t.Fatalf("%d reloads after %v", reloads, time.Since(start))
				}
			}
			if took := time.Since(start); took < 250*time.Millisecond {
				t.Errorf("4 topology requests within %v", took)
			}
		})
	}
}
