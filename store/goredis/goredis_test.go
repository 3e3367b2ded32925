package goredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/wiretest"
)

// What the calls send.
var script, keys = wiretest.Script, wiretest.Keys

// client returns a client without retries and with short timeouts.
func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: 5 * time.Second, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// cluster returns a cluster client without retries.
func cluster(t *testing.T, addr string) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{addr}, MaxRedirects: -1, DialTimeout: time.Second, ReadTimeout: 5 * time.Second, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestUnfitClient(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	const isNil, isRing = "nil or a zero value: it must be a *redis.Client of NewClient, or a *redis.ClusterClient", "*redis.Ring"
	for name, c := range map[string]struct {
		client redis.UniversalClient
		want   string
	}{
		"nil":               {nil, isNil},
		"nil Client":        {(*redis.Client)(nil), isNil},
		"nil ClusterClient": {(*redis.ClusterClient)(nil), isNil},
		"nil Ring":          {(*redis.Ring)(nil), isNil},
		"zero Cluster":      {&redis.ClusterClient{}, isNil},
		"wrapped zero":      {&wrapper{&redis.Client{}}, isNil},
		"embedded nil":      {struct{ *redis.Client }{}, isNil},
		"wrapped nil":       {&wrapper{}, isNil},
		"Ring":              {ring, isRing},
		"embedded Ring":     {struct{ *redis.Ring }{ring}, isRing},
		"wrapped Ring":      {&wrapper{ring}, isRing},
	} {
		s := New(c.client)
		errs := wiretest.EveryCall(t.Context(), s)
		errs["check"] = s.Check()
		for call, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: got %v, want an error that says %q", name, call, err, c.want)
			}
		}
	}
}

// A client that ignores deadlines is found without the network.
func TestCheckDeadline(t *testing.T) {
	for _, heeds := range []bool{true, false} {
		for name, client := range map[string]redis.UniversalClient{
			"single":          redis.NewClient(&redis.Options{ContextTimeoutEnabled: heeds}),
			"sentinel":        redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: heeds}),
			"embedded":        struct{ *redis.Client }{redis.NewClient(&redis.Options{ContextTimeoutEnabled: heeds})},
			"wrapped":         &wrapper{redis.NewClient(&redis.Options{ContextTimeoutEnabled: heeds})},
			"wrapped cluster": wrapper{redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: heeds})},
			"cluster":         redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: heeds}),
		} {
			defer client.Close()
			for _, st := range []store.Store{New(client), store.Coalesce(New(client))} {
				err := st.(store.DeadlineChecker).CheckDeadline()
				if (err == nil) != heeds || err != nil && !strings.Contains(err.Error(), "set ContextTimeoutEnabled") {
					t.Errorf("%s: ContextTimeoutEnabled %v: got %v", name, heeds, err)
				}
			}
		}
	}
	if err := New(struct{ stranger }{client(t, "127.0.0.1:1")}).CheckDeadline(); err == nil || !strings.Contains(err.Error(), "give it its method Options") {
		t.Errorf("a client without options: got %v", err)
	}
	if err := New(nil).CheckDeadline(); err == nil || !strings.Contains(err.Error(), "the client is nil") {
		t.Errorf("got %v, want the error of a nil client", err)
	}
}

// A wrapper is a client that an application has instrumented.
type wrapper struct{ redis.UniversalClient }

// stranger is embedded by a name that is not exported, so that nobody can look into it.
type stranger = redis.UniversalClient

// A counter counts the commands that pass it.
type counter struct {
	*redis.ClusterClient
	n atomic.Int64
}

func (c *counter) Process(ctx context.Context, cmd redis.Cmder) error {
	c.n.Add(1)
	return c.ClusterClient.Process(ctx, cmd)
}

// A store finds the client that a wrapper embeds, and calls the wrapper.
func TestWrapper(t *testing.T) {
	t.Parallel()
	single, cluster := client(t, "127.0.0.1:1"), cluster(t, "127.0.0.1:1")
	for name, tt := range map[string]struct {
		client redis.UniversalClient
		want   redis.UniversalClient
	}{
		"Client":                {single, single},
		"embedded Client":       {struct{ *redis.Client }{single}, single},
		"wrapped Client":        {wrapper{single}, single},
		"Client, wrapped twice": {&wrapper{wrapper{single}}, single},
		"ClusterClient":         {cluster, cluster},
		"embedded Cluster":      {struct{ *redis.ClusterClient }{cluster}, cluster},
		"wrapped Cluster":       {&wrapper{cluster}, cluster},
	} {
		s := New(tt.client)
		if s.single != (tt.want == single) || (s.cluster == cluster) != (tt.want == cluster) {
			t.Errorf("%s: single is %v, and the client of a cluster is %v", name, s.single, s.cluster)
		}
		if want := New(tt.want).base.Client; s.base.Client != want {
			t.Errorf("%s: the kind of client is %v, want %v", name, s.base.Client, want)
		}
	}
	c := &counter{ClusterClient: cluster}
	if _, err := New(c).Eval(t.Context(), script, keys, nil, nil); err == nil || c.n.Load() == 0 {
		t.Errorf("a call of a wrapper: %v, after %d commands", err, c.n.Load())
	}
}

// A swallower is a client whose calls neither reply nor fail, as with a hook that calls no
// next one.
type swallower struct{ *redis.Client }

func (swallower) Process(context.Context, redis.Cmder) error { return nil }
func (swallower) Time(ctx context.Context) *redis.TimeCmd    { return redis.NewTimeCmd(ctx) }

func TestSwallowed(t *testing.T) {
	for _, call := range []string{"eval", "time"} {
		if err := wiretest.OneCall(t.Context(), New(swallower{client(t, "127.0.0.1:1")}), call); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got %v, want %v", call, err, store.ErrUnavailable)
		}
	}
}

// An error reply to one call of a batch does not make the client send the other calls
// again, which have run.
func TestBatchRunsOnce(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{"TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN Hash slot not served", "LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica."} {
		for refused := range 3 {
			var ran atomic.Int64
			srv := wiretest.NewCluster(t, func(args []string) string {
				switch {
				case args[0] == "COMMAND":
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
