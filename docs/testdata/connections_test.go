package migrate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.com/snippets/connections"
	"github.com/coder/websocket"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/prefetch"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/memory"
)

// A counting store counts scripts.
type counting struct {
	store.Store
	scripts atomic.Int64
}

func (c *counting) Eval(ctx context.Context, s *store.Script, keys []string, args []store.Arg, reply []store.Value) ([]store.Value, error) {
	c.scripts.Add(1)
	return c.Store.Eval(ctx, s, keys, args, reply)
}

// The WebSocket server of connections.md: a user has three connections, which share 100 messages, few of
// them are round trips, and the message above the limit ends one connection.
func TestConnections(t *testing.T) {
	var now atomic.Int64 // virtual, because tokens are refilled; leases are renewed in real time
	clock := func() time.Time { return time.UnixMicro(now.Load()) }
	now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	st := &counting{Store: memory.New(&memory.Options{Now: clock})}
	pool := prefetch.New(&prefetch.Options{Now: clock})
	server := httptest.NewServer(must(connections.NewChat(st, pool)))
	defer server.Close()

	connect := func(user string) (*websocket.Conn, int) {
		conn, resp, err := websocket.Dial(t.Context(), server.URL, &websocket.DialOptions{HTTPHeader: http.Header{"X-User": {user}}})
		if resp == nil {
			t.Fatal(err)
		}
		if conn != nil {
			t.Cleanup(func() { _ = conn.CloseNow() })
		}
		return conn, resp.StatusCode
	}
	say := func(conn *websocket.Conn) error {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte("hello")); err != nil {
			return err
		}
		_, text, err := conn.Read(t.Context())
		if err == nil && string(text) != "hello" {
			err = fmt.Errorf("got %q", text)
		}
		return err
	}
	var conns []*websocket.Conn
	for range 3 {
		conn, code := connect("ann")
		if conn == nil {
			t.Fatalf("got the status %d", code)
		}
		conns = append(conns, conn)
	}
	if _, code := connect("ann"); code != http.StatusTooManyRequests {
		t.Errorf("a fourth connection got the status %d", code)
	}
	before := st.scripts.Load()
	for i := range 100 {
		if err := say(conns[i%3]); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if n := st.scripts.Load() - before; n > 60 {
		t.Errorf("100 messages took %d scripts", n)
	}
	if err := say(conns[0]); websocket.CloseStatus(err) != websocket.StatusTryAgainLater || !strings.Contains(err.Error(), "retry after 100ms") {
		t.Fatalf("message 101: got %v", err)
	}
	if bob, code := connect("bob"); bob == nil || say(bob) != nil {
		t.Errorf("another user got the status %d, or no answer", code)
	}
	now.Add(100_000)
	if err := say(conns[1]); err != nil {
		t.Errorf("after 100ms: got %v", err)
	}
	if err := pool.Return(t.Context()); err != nil {
		t.Error(err)
	}

	// The place of the closed connection becomes free when its handler returns.
	places := must(weir.New("connections", st, algorithm.Concurrency{Limit: 3, Lease: 30 * time.Second}, nil))
	for must(places.Peek(t.Context(), "ann")).Remaining != 1 {
		time.Sleep(time.Millisecond) // the test's time limit ends it
	}
}
