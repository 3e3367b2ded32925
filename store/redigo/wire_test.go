package redigo

import (
	"errors"
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/internal/respserver"
	"github.com/weir-go/weir/store/internal/wiretest"
)

func TestOnTheWire(t *testing.T) {
	t.Parallel()
	single := func(t *testing.T, addr string) wiretest.Store { return New(pool(t, addr)) }
	wiretest.Run(t, wiretest.Subject{
		Name:      "redigo",
		Single:    single,
		Cluster:   func(t *testing.T, addr string) wiretest.Store { return NewCluster(cluster(t, addr)) },
		Pipelined: single,
	})
}

// A pool follows no redirections, and an HTTP server is not a server of Redis.
func TestNoServerOfThePool(t *testing.T) {
	t.Parallel()
	for _, wire := range []string{"-MOVED 3999 127.0.0.1:1\r\n", "HTTP/1.1 400 Bad Request\r\n"} {
		srv := respserver.New(t, func([]string) string { return wire })
		if err := wiretest.OneCall(t.Context(), New(pool(t, srv.Addr)), "eval"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%q: got %v, want ErrUnavailable", wire, err)
		}
	}
}
