package redigo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// Keys in the lower half and in the upper half of the slots.
const low, high = "{b}", "{a}"

// A duo is a cluster of two nodes. The client knows that the first serves the lower
// half of the slots, and the second the upper.
type duo struct {
	nodes  [2]*wiretest.Server
	owners atomic.Pointer[[2]int] // the owners of the halves, which the client gets when it asks again
	silent sync.Mutex             // while it is locked, such a request waits
	client *redisc.Cluster
	store  *Store
}

// newDuo starts two nodes. Answer returns what node n replies to a command.
func newDuo(t *testing.T, pooled bool, answer func(d *duo, n int, args []string) string) *duo {
	t.Helper()
	d := &duo{}
	d.owners.Store(&[2]int{0, 1})
	for n := range d.nodes {
		d.nodes[n] = wiretest.NewServer(t, func(args []string) string {
			if args[0] == "CLUSTER" {
				d.silent.Lock()
				defer d.silent.Unlock()
				owners := d.owners.Load()
				return wiretest.Shards(d.nodes[owners[0]].Addr, d.nodes[owners[1]].Addr)
			}
			return answer(d, n, args)
		})
	}
	d.client = cluster(t, d.nodes[0].Addr)
	if !pooled {
		d.client.CreatePool = nil
	}
	d.store = NewCluster(d.client)
	if err := d.client.Refresh(); err != nil {
		t.Fatal(err)
	}
	d.commands()
	return d
}

// commands returns what the nodes received since the last call, and the number of topology
// requests.
func (d *duo) commands() (all []string, topology int) {
	for _, node := range d.nodes {
		commands, n := node.Commands()
		all, topology = append(all, commands...), topology+n
	}
	return all, topology
}

// expect checks what the nodes received since the last call: the name and the last word of
// each command. It returns the number of topology requests.
func (d *duo) expect(t *testing.T, first, second []string) (topology int) {
	t.Helper()
	for n, want := range [][]string{first, second} {
		commands, requests := d.nodes[n].Commands()
		topology += requests
		if got := shorten(commands); !slices.Equal(got, want) {
			t.Errorf("node %d received %q, want %q", n, got, want)
		}
	}
	return topology
}

// shorten leaves the first and the last word of each command.
func shorten(commands []string) (list []string) {
	for _, c := range commands {
		words := strings.Fields(c)
		if len(words) > 1 {
			words = []string{words[0], words[len(words)-1]}
		}
		list = append(list, strings.Join(words, " "))
	}
	return list
}

// redirect returns a reply that redirects a call for key.
func redirect(how, key, addr string) string {
	return fmt.Sprintf("-%s %d %s\r\n", how, store.Slot(key), addr)
}

// eval runs script over key, alone or in a batch.
func (d *duo) eval(ctx context.Context, batch bool, key string) ([]store.Value, error) {
	if !batch {
		return d.store.Eval(ctx, script, []string{key}, nil, nil)
	}
	calls := []store.Eval{{Script: script, Keys: []string{key}}}
	d.store.EvalBatch(ctx, calls)
	return calls[0].Reply, calls[0].Err
}

// eachWay runs test for calls alone and in a batch, and for clusters with pools and
// without.
func eachWay(t *testing.T, test func(t *testing.T, batch, pooled bool)) {
	t.Helper()
	for _, batch := range []bool{false, true} {
		for _, pooled := range []bool{false, true} {
			t.Run(fmt.Sprintf("batch=%t/pooled=%t", batch, pooled), func(t *testing.T) {
				t.Parallel()
				test(t, batch, pooled)
			})
		}
	}
}

var one = []store.Value{store.IntegerValue(1)}

// A call follows redirections, and ends if they have no end. It does not wait for a slot
// whose keys are on two nodes.
func TestRedirections(t *testing.T) {
	t.Parallel()
	const dead = "127.0.0.1:1"
	sha := []string{"EVALSHA {b}"}
	for name, tt := range map[string]struct {
		answer        func(d *duo, n int, args []string) string
		says          string // in the error; "" if there is none
		first, second []string
	}{
		"a slot has moved": {func(d *duo, n int, args []string) string {
			if n == 0 {
				return redirect("MOVED", args[3], d.nodes[1].Addr)
			}
			return ":1\r\n"
		}, "", sha, sha},
		"two nodes redirect to each other": {func(d *duo, n int, args []string) string {
			if args[0] == "ASKING" {
				return "+OK\r\n"
			}
			return redirect("ASK", args[3], d.nodes[1-n].Addr)
		}, "ASK", []string{"EVALSHA {b}", "ASKING", "EVALSHA {b}"}, []string{"ASKING", "EVALSHA {b}", "ASKING", "EVALSHA {b}"}},
		// redisc asks another node, which redirects the call to the dead node again.
		"the new owner is dead": {func(_ *duo, _ int, args []string) string { return redirect("MOVED", args[3], dead) }, dead, nil, nil},
		"keys on two nodes": {func(*duo, int, []string) string {
			return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
		}, "TRYAGAIN", sha, nil},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, batch, pooled bool) {
				d := newDuo(t, pooled, tt.answer)
				if tt.says == "" {
					d.owners.Store(&[2]int{1, 1})
				}
				got, err := d.eval(t.Context(), batch, low)
				if tt.says == "" && (err != nil || !slices.Equal(got, one)) || tt.says != "" && (!errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), tt.says) || got != nil) {
					t.Errorf("got %v, %v, want %q in the error", got, err, tt.says)
				}
				if tt.says == dead {
					if sent, _ := d.commands(); len(sent) != 2 {
						t.Errorf("the call was sent %d times, want 2", len(sent))
					}
				}
				d.expect(t, tt.first, tt.second)
				if tt.says == "" { // the next call is sent to the new owner at once
					got, err := d.eval(t.Context(), batch, low)
					if d.expect(t, nil, sha); err != nil || !slices.Equal(got, one) {
						t.Errorf("once more: got %v, %v", got, err)
					}
				}
			})
		})
	}
}

// A node that serves no slot yet takes over a slot. It serves the slot only after an
// ASKING before each command, on the same connection.
func TestAsk(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, batch, pooled bool) {
		var asking atomic.Bool
		known := atomic.Bool{}
		taker := wiretest.NewServer(t, func(args []string) string {
			switch asked := asking.Swap(false); {
			case args[0] == "ASKING":
				asking.Store(true)
				return "+OK\r\n"
			case !asked:
				return redirect("MOVED", args[3], "127.0.0.1:1")
			case args[0] == "EVALSHA" && !known.Load():
				return wiretest.NoScript
			}
			return ":1\r\n"
		})
		d := newDuo(t, pooled, func(_ *duo, _ int, args []string) string {
			return redirect("ASK", args[3], taker.Addr)
		})
		var lent []*redis.Pool
		if pooled {
			d.client.CreatePool = func(addr string, options ...redis.DialOption) (*redis.Pool, error) {
				p, err := newPool(addr, options...)
				if addr == taker.Addr {
					lent = append(lent, p)
				}
				return p, err
			}
		}
		for _, want := range [][]string{
			{"ASKING", "EVALSHA {b}", "ASKING", "EVAL {b}"},
			{"ASKING", "EVALSHA {b}"},
		} {
			got, err := d.eval(t.Context(), batch, low)
			if err != nil || !slices.Equal(got, one) {
				t.Errorf("got %v, %v", got, err)
			}
			if commands, _ := taker.Commands(); !slices.Equal(shorten(commands), want) {
				t.Errorf("the taker received %q, want %q", commands, want)
			}
			known.Store(true)
		}
		for addr, stats := range d.client.Stats() {
			if stats.ActiveCount != stats.IdleCount {
				t.Errorf("%d of %d connections to %s are idle", stats.IdleCount, stats.ActiveCount, addr)
			}
		}
		if pooled && len(lent) == 0 {
			t.Error("no pool was made for the taker")
		}
		for _, p := range lent {
			if n := p.ActiveCount(); n != 0 {
				t.Errorf("%d connections to the taker are left", n)
			}
		}
		if _, n := d.commands(); n != 0 {
			t.Errorf("%d topology requests, want none: no slot has moved yet", n)
		}
	})
}

// If the node of a redirection does not answer, the call still ends with its context.
func TestAskSilentNode(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, and no process reads
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	eachWay(t, func(t *testing.T, batch, pooled bool) {
		d := newDuo(t, pooled, func(_ *duo, _ int, args []string) string {
			return redirect("ASK", args[3], l.Addr().String())
		})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		if _, err := d.eval(ctx, batch, low); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// Calls go to each node in one pipeline, in order. Redirected calls follow.
func TestBatchByNode(t *testing.T) {
	t.Parallel()
	var moved atomic.Bool
	d := newDuo(t, true, func(d *duo, n int, args []string) string {
		if n == 0 && moved.Load() && args[3] == "f" {
			return redirect("MOVED", "f", d.nodes[1].Addr)
		}
		return fmt.Sprintf("$1\r\n%s\r\n", args[3])
	})
	batch := func() {
		t.Helper()
		calls := make([]store.Eval, 0, 6)
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			calls = append(calls, store.Eval{Script: script, Keys: []string{key}})
		}
		d.store.EvalBatch(t.Context(), calls)
		for _, c := range calls {
			if c.Err != nil || !slices.Equal(c.Reply, []store.Value{store.BulkValue(c.Keys[0])}) {
				t.Errorf("%s: got %v, %v", c.Keys[0], c.Reply, c.Err)
			}
		}
	}
	upper := []string{"EVALSHA a", "EVALSHA d", "EVALSHA e"}
	lower := []string{"EVALSHA b", "EVALSHA c", "EVALSHA f"}

	batch()
	if n := d.expect(t, lower, upper); n != 1 {
		t.Errorf("first: %d topology requests, want 1", n)
	}
	batch()
	if n := d.expect(t, lower, upper); n != 0 {
		t.Errorf("second: %d topology requests, want none", n)
	}
	d.silent.Lock() // in the background, redisc asks for the owners, which it would take for newer
	moved.Store(true)
	batch()
	d.silent.Unlock()
	d.expect(t, lower, append([]string{"EVALSHA f"}, upper...))
	moved.Store(false)
	batch()
	if n := d.expect(t, lower, upper); n < 1 {
		t.Error("after a slot has moved, the store did not ask for the layout")
	}
	for addr, stats := range d.client.Stats() {
		if stats.ActiveCount > 2 { // one for calls, and one of redisc
			t.Errorf("%d connections to %s", stats.ActiveCount, addr)
		}
	}
}

// If a cluster does not send its layout, calls are grouped by slot.
func TestNoLayout(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n",
		":1\r\n",
	} {
		srv := wiretest.NewServer(t, func(args []string) string {
			switch args[0] {
			case "CLUSTER":
				return reply
			case "MGET":
				return wiretest.AnswerMGet(args)
			}
			return ":1\r\n"
		})
		s := NewCluster(cluster(t, srv.Addr))
		calls := []store.Eval{{Script: script, Keys: []string{"a"}}, {Script: script, Keys: []string{"b"}}}
		s.EvalBatch(t.Context(), calls)
		if calls[0].Err != nil || calls[1].Err != nil {
			t.Errorf("%q: batch: got %v, %v", reply, calls[0].Err, calls[1].Err)
		}
		got, err := s.MGet(t.Context(), []string{"a", "b"}, nil)
		if want := []store.Value{store.BulkValue("a"), store.BulkValue("b")}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: mget: got %v, %v", reply, got, err)
		}
	}
}

func TestParseLayout(t *testing.T) {
	t.Parallel()
	list := func(v ...any) []any { return v }
	node := list([]byte("h"), int64(1), []byte("id"))
	other := list([]byte("h"), int64(2), []byte("id"))
	got, err := parseLayout(list(
		list(int64(0), int64(99), node), list(int64(100), int64(199), other, node), list(int64(200), int64(16383), node)))
	if err != nil || got[0] != 0 || got[99] != 0 || got[100] != 1 || got[199] != 1 || got[200] != 0 || got[16383] != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	for name, bad := range map[string]any{
		"no list":       int64(1),
		"no range":      list(int64(1)),
		"no node":       list(list(int64(0), int64(9))),
		"no port":       list(list(int64(0), int64(9), list([]byte("h")))),
		"no node list":  list(list(int64(0), int64(9), []byte("h"))),
		"text":          list(list([]byte("0"), int64(9), node)),
		"beyond":        list(list(int64(0), int64(16384), node)),
		"below":         list(list(int64(-1), int64(9), node)),
		"error element": list(list(int64(0), redis.Error("ERR"), node)),
	} {
		if _, err := parseLayout(bad); !errors.Is(err, errNotSlots) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// If one of two nodes is dead, calls for its keys fail, and calls for other keys do not.
func TestBatchWithDeadNode(t *testing.T) {
	t.Parallel()
	const dead = "127.0.0.1:1"
	var srv *wiretest.Server
	srv = wiretest.NewServer(t, func(args []string) string {
		switch {
		case args[0] == "CLUSTER":
			return wiretest.Shards(srv.Addr, dead)
		case store.Slot(args[3]) > slots/2:
			return redirect("MOVED", args[3], dead)
		}
		return ":1\r\n"
	})
	c := cluster(t, srv.Addr)
	if err := c.Refresh(); err != nil {
		t.Fatal(err)
	}
	calls := []store.Eval{{Script: script, Keys: []string{high}}, {Script: script, Keys: []string{low}}}
	NewCluster(c).EvalBatch(t.Context(), calls)
	if !errors.Is(calls[0].Err, store.ErrUnavailable) || calls[1].Err != nil {
		t.Errorf("got %v, %v", calls[0].Err, calls[1].Err)
	}
}

// After the context has ended, a call makes no connection to further nodes.
func TestDeadNodesAndContext(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var dials atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var srv *wiretest.Server
	srv = wiretest.NewServer(t, func([]string) string { return wiretest.Shards(srv.Addr) })
	c := &redisc.Cluster{StartupNodes: []string{srv.Addr}, DialOptions: []redis.DialOption{
		redis.DialContextFunc(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !down.Load() {
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			dials.Add(1)
			cancel()
			return nil, errors.New("no route to host")
		}),
	}}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Refresh(); err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	if _, err := NewCluster(c).MGet(ctx, keys, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if n := dials.Load(); n > 10 {
		t.Errorf("%d connection attempts after the context has ended", n)
	}
}

// While a slow refresh runs, no second one starts, and no call waits for it.
func TestFollowOneAtATime(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var srv *wiretest.Server
	var slow atomic.Bool
	srv = wiretest.NewServer(t, func(args []string) string {
		if args[0] != "CLUSTER" {
			return "-CLUSTERDOWN The cluster is down\r\n"
		}
		if slow.Load() {
			<-release
		}
		return wiretest.Shards(srv.Addr)
	})
	c := cluster(t, srv.Addr)
	if err := c.Refresh(); err != nil {
		t.Fatal(err)
	}
	_, _ = srv.Commands()
	slow.Store(true)
	s, refreshes := NewCluster(c), 0
	for start := time.Now(); time.Since(start) < 600*time.Millisecond || refreshes == 0 && time.Since(start) < time.Minute; { // more than two pauses
		if _, err := s.Eval(t.Context(), script, keys, nil, nil); !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		_, n := srv.Commands()
		refreshes += n
		time.Sleep(time.Millisecond)
	}
	close(release)
	if refreshes != 1 {
		t.Errorf("%d refreshes at a time, want 1", refreshes)
	}
}
