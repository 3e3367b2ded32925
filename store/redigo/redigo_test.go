package redigo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// What the calls send.
var script, keys = wiretest.Script, wiretest.Keys

// newPool returns a pool of connections to addr, with a timeout for connecting and the
// options.
func newPool(addr string, options ...redis.DialOption) (*redis.Pool, error) {
	options = append([]redis.DialOption{redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(5 * time.Second)}, options...)
	return &redis.Pool{
		MaxIdle: 10,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, options...)
		},
	}, nil
}

// pool returns a pool that is closed when t ends.
func pool(t *testing.T, addr string, options ...redis.DialOption) *redis.Pool {
	t.Helper()
	p, _ := newPool(addr, options...)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// cluster returns a cluster that is closed when t ends.
func cluster(t *testing.T, addr string, options ...redis.DialOption) *redisc.Cluster {
	t.Helper()
	c := &redisc.Cluster{StartupNodes: []string{addr}, CreatePool: newPool, DialOptions: options}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestUnfitClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store *Store
		want  string
	}{
		"nil":           {New(nil), "nil: call New with a *redis.Pool"},
		"nil Pool":      {New((*redis.Pool)(nil)), "nil: call New with a *redis.Pool"},
		"empty Pool":    {New(&redis.Pool{}), "must have a Dial"},
		"embedded nil":  {New(struct{ *redis.Pool }{}), "nil: call New with a *redis.Pool"},
		"wrapped nil":   {New(&struct{ Pool }{}), "nil: call New with a *redis.Pool"},
		"wrapped empty": {New(struct{ Pool }{&redis.Pool{}}), "must have a Dial"},
		"nil Cluster":   {NewCluster(nil), "or NewCluster with a *redisc.Cluster"},
		"empty Cluster": {NewCluster(&redisc.Cluster{}), "must have StartupNodes"},
		"zero Store":    {&Store{}, "nil: call New with a *redis.Pool"},
		"nil Store":     {nil, "nil: call New with a *redis.Pool"},
	} {
		errs := wiretest.EveryCall(t.Context(), c.store)
		errs["check"] = c.store.Check()
		for call, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: got %v, want an error with %q", name, call, err, c.want)
			}
		}
	}
}

// A pool whose dials ignore deadlines is found without the network. Other clients are fit.
func TestCheckDeadline(t *testing.T) {
	t.Parallel()
	dial := func() (redis.Conn, error) { return nil, errors.New("no server") }
	for name, tt := range map[string]struct {
		st   *Store
		want string
	}{
		"DialContext": {New(&redis.Pool{DialContext: func(context.Context) (redis.Conn, error) { return dial() }}), ""},
		"Dial":        {New(&redis.Pool{Dial: dial}), "set DialContext"},
		"embedded":    {New(struct{ *redis.Pool }{&redis.Pool{Dial: dial}}), "set DialContext"},
		"wrapped":     {New(&struct{ Pool }{&redis.Pool{Dial: dial}}), "set DialContext"},
		"another":     {New(noConn{}), ""},
		"cluster":     {NewCluster(&redisc.Cluster{StartupNodes: []string{"127.0.0.1:1"}}), ""},
		"nil":         {New(nil), "the client is nil"},
	} {
		if err := tt.st.Check(); (err == nil) != (name != "nil") {
			t.Errorf("%s: Check returned %v", name, err)
		}
		if err := tt.st.CheckDeadline(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
}

func TestExhaustedPool(t *testing.T) {
	t.Parallel()
	srv := wiretest.NewServer(t, func([]string) string { return ":1\r\n" })
	p := pool(t, srv.Addr)
	p.MaxActive = 1
	taken := p.Get()
	for call, err := range wiretest.EveryCall(t.Context(), New(p)) {
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, redis.ErrPoolExhausted) {
			t.Errorf("%s: got %v", call, err)
		}
	}
	_ = taken.Close()

	p = pool(t, srv.Addr)
	p.MaxActive, p.Wait = 1, true
	taken = p.Get()
	defer func() { _ = taken.Close() }()
	for _, call := range wiretest.Calls {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := wiretest.OneCall(ctx, New(p), call); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s, waiting: got %v", call, err)
		}
		cancel()
	}
	if sent, _ := srv.Commands(); len(sent) != 0 {
		t.Errorf("the server received %q", sent)
	}
}
