package servertest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weir-go/weir"
	weirnats "github.com/weir-go/weir/store/nats"
)

// startCluster starts three servers, which know each other.
func startCluster(t *testing.T) []*server.Server {
	servers := make([]*server.Server, 3)
	ports := make([]int, len(servers))
	var routes []*url.URL
	for i := range ports { // a server of a cluster must know a route when it starts
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		_ = l.Close()
	}
	for i := range servers {
		servers[i] = launch(t, &server.Options{ServerName: fmt.Sprint("n", i), Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}})
		t.Cleanup(func() { stop(servers[i]) })
	}
	for _, s := range servers {
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("a server does not listen")
		}
	}
	return servers
}

// While the leader of a bucket with three replicas changes, no confirmed token is lost,
// and none is consumed that nobody asked for.
func TestLeaderChange(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	js := connect(t, servers[0].ClientURL())
	ready, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		cfg := weirnats.StreamConfig("limits")
		cfg.Replicas = 3
		try, cancel := context.WithTimeout(ready, 2*time.Second) // without a leader, nobody replies
		_, err := js.CreateOrUpdateStream(try, cfg)
		cancel()
		if err == nil {
			break
		}
		if ready.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	const callers, each, changes = 6, 60, 4
	var granted, unknown, done atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		lim, err := weir.NewPolicy(weirnats.New(connect(t, servers[c%3].ClientURL()), "limits"), weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
			{Name: "tenant", By: []string{"tenant"}, Algorithm: daily},
			{Name: "user", Algorithm: daily},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for n := 0; n < each; {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				res, err := lim.Allow(ctx, "acme", fmt.Sprint("user", c))
				cancel()
				switch {
				case err != nil:
					unknown.Add(1)
					time.Sleep(10 * time.Millisecond)
				case res.Allowed:
					n++
					granted.Add(1)
				}
				if ready.Err() != nil {
					t.Errorf("caller %d was served %d times: %v", c, n, err)
					break
				}
			}
			done.Add(1)
		})
	}
	for i := range int64(changes) { // spread over the requests
		for granted.Load() < (i+1)*callers*each/(changes+2) && done.Load() < callers {
			time.Sleep(time.Millisecond)
		}
		if _, err := js.Conn().Request("$JS.API.STREAM.LEADER.STEPDOWN.KV_limits", nil, 5*time.Second); err != nil {
			t.Log(err)
		}
	}
	wg.Wait()
	all, err := weir.NewPolicy(weirnats.New(js, "limits"), weir.Policy{Name: "api", Segments: []string{"tenant"}, Rules: []weir.Rule{{Name: "tenant", Algorithm: daily}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := all.Peek(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	consumed := daily.Limit - res.Remaining
	t.Logf("%d granted, %d errors, %d consumed", granted.Load(), unknown.Load(), consumed)
	if consumed < granted.Load() || consumed > granted.Load()+unknown.Load() {
		t.Errorf("%d tokens are consumed: want at least the %d granted, and at most %d more", consumed, granted.Load(), unknown.Load())
	}
}
