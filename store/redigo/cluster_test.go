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
	d.topologyRequests()
	return d
}

// topologyRequests returns the number of topology requests since the last call.
func (d *duo) topologyRequests() int {
	_, first := d.nodes[0].Commands()
	_, second := d.nodes[1].Commands()
	return first + second
}

// expect checks what the nodes received: the first word of each command, and its key.
func (d *duo) expect(t *testing.T, first, second []string) {
	t.Helper()
	for n, want := range [][]string{first, second} {
		commands, _ := d.nodes[n].Commands()
		var got []string
		for _, c := range commands {
			words := strings.Fields(c)
			if strings.HasPrefix(words[0], "EVAL") {
				words = []string{words[0], words[len(words)-1]}
			}
			got = append(got, strings.Join(words, " "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("node %d received %q, want %q", n, got, want)
		}
	}
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

// If a slot has moved, a call follows it, and the next call is sent to the new owner at
// once.
func TestMoved(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, batch, pooled bool) {
		d := newDuo(t, pooled, func(d *duo, n int, args []string) string {
			if n == 0 {
				return redirect("MOVED", args[3], d.nodes[1].Addr)
			}
			return ":1\r\n"
		})
		d.owners.Store(&[2]int{1, 1})
		if got, err := d.eval(t.Context(), batch, low); err != nil || !slices.Equal(got, one) {
			t.Errorf("got %v, %v", got, err)
		}
		d.expect(t, []string{"EVALSHA {b}"}, []string{"EVALSHA {b}"})
		if got, err := d.eval(t.Context(), batch, low); err != nil || !slices.Equal(got, one) {
			t.Errorf("once more: got %v, %v", got, err)
		}
		d.expect(t, nil, []string{"EVALSHA {b}"})
	})
}

// If two nodes redirect a call to each other, the call ends.
func TestMovedInCircles(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, batch, pooled bool) {
		d := newDuo(t, pooled, func(d *duo, n int, args []string) string {
			if args[0] == "ASKING" {
				return "+OK\r\n"
			}
			return redirect("ASK", args[3], d.nodes[1-n].Addr)
		})
		got, err := d.eval(t.Context(), batch, low)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "ASK") || got != nil {
			t.Errorf("got %v, %v", got, err)
		}
		sent := 0
		for _, node := range d.nodes {
			commands, _ := node.Commands()
			for _, c := range commands {
				if strings.HasPrefix(c, "EVALSHA") {
					sent++
				}
			}
		}
		if sent != 1+maxRedirects {
			t.Errorf("the call was sent %d times, want %d", sent, 1+maxRedirects)
		}
	})
}

// If the new owner of a slot is dead, redisc asks another node, which redirects the call
// to the dead node again. The call then ends.
func TestMovedToDeadNode(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, batch, pooled bool) {
		const dead = "127.0.0.1:1"
		d := newDuo(t, pooled, func(_ *duo, _ int, args []string) string {
			return redirect("MOVED", args[3], dead)
		})
		_, err := d.eval(t.Context(), batch, low)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), dead) {
			t.Errorf("got %v", err)
		}
		sent := 0
		for _, node := range d.nodes {
			commands, _ := node.Commands()
			sent += len(commands)
		}
		if sent != 2 {
			t.Errorf("the call was sent %d times, want 2", sent)
		}
	})
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
			var sent []string
			commands, _ := taker.Commands()
			for _, c := range commands {
				words := strings.Fields(c)
				if len(words) > 1 {
					words = []string{words[0], words[len(words)-1]}
				}
				sent = append(sent, strings.Join(words, " "))
			}
			if !slices.Equal(sent, want) {
				t.Errorf("the taker received %q, want %q", sent, want)
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
		if n := d.topologyRequests(); n != 0 {
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

// If the keys of a call are on two nodes, because their slot moves, the call does not
// wait.
func TestTryAgain(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, batch, pooled bool) {
		d := newDuo(t, pooled, func(*duo, int, []string) string {
			return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
		})
		if _, err := d.eval(t.Context(), batch, low); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		d.expect(t, []string{"EVALSHA {b}"}, nil)
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
	if n := d.topologyRequestsWith(t, lower, upper); n != 1 {
		t.Errorf("first: %d topology requests, want 1", n)
	}
	batch()
	if n := d.topologyRequestsWith(t, lower, upper); n != 0 {
		t.Errorf("second: %d topology requests, want none", n)
	}
	d.silent.Lock() // in the background, redisc asks for the owners, which it would take for newer
	moved.Store(true)
	batch()
	d.silent.Unlock()
	d.expect(t, lower, append([]string{"EVALSHA f"}, upper...))
	moved.Store(false)
	batch()
	if n := d.topologyRequestsWith(t, lower, upper); n < 1 {
		t.Error("after a slot has moved, the store did not ask for the layout")
	}
	for addr, stats := range d.client.Stats() {
		if stats.ActiveCount > 2 { // one for calls, and one of redisc
			t.Errorf("%d connections to %s", stats.ActiveCount, addr)
		}
	}
}

// topologyRequestsWith checks what the nodes received, as expect does, and returns the
// number of topology requests.
func (d *duo) topologyRequestsWith(t *testing.T, first, second []string) int {
	t.Helper()
	n := 0
	for i, want := range [][]string{first, second} {
		commands, topology := d.nodes[i].Commands()
		n += topology
		for j, c := range commands {
			words := strings.Fields(c)
			commands[j] = words[0] + " " + words[len(words)-1]
		}
		if !slices.Equal(commands, want) {
			t.Errorf("node %d received %q, want %q", i, commands, want)
		}
	}
	return n
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
	srv = wiretest.NewServer(t, func([]string) string { return wiretest.Slots(srv.Addr) })
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

// Failing calls make the store read the topology again, but not once for each call.
func TestFollow(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"CLUSTERDOWN":     "-CLUSTERDOWN The cluster is down\r\n",
		"connection lost": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := wiretest.NewCluster(t, func([]string) string { return answer })
			c := cluster(t, srv.Addr)
			if err := c.Refresh(); err != nil {
				t.Fatal(err)
			}
			_, _ = srv.Commands()
			s, refreshes := NewCluster(c), 0
			start := time.Now()
			for refreshes < 4 { // in real time, because the refresh is in the background
				if _, err := s.Eval(t.Context(), script, keys, nil, nil); !errors.Is(err, store.ErrUnavailable) {
					t.Fatal(err)
				}
				_, n := srv.Commands()
				refreshes += n
				if time.Since(start) > 30*time.Second {
					t.Fatalf("%d refreshes after %v", refreshes, time.Since(start))
				}
			}
			if took := time.Since(start); took < 700*time.Millisecond { // four within three pauses
				t.Errorf("4 refreshes within %v", took)
			}
		})
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
		return wiretest.Slots(srv.Addr)
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
