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
		// A pool follows no redirections.
		Unavailable: []string{"HTTP/1.1 400 Bad Request\r\n", "-MOVED 3999 127.0.0.1:1\r\n"},
	})
}

// MGET replies with bulk strings only.
func TestMGetStatus(t *testing.T) {
	t.Parallel()
	srv := respserver.New(t, func([]string) string { return "*2\r\n+OK\r\n+QUEUED\r\n" })
	if got, err := New(pool(t, srv.Addr)).MGet(t.Context(), keys, nil); !errors.Is(err, store.ErrUnavailable) || got != nil {
		t.Errorf("got %v, %v, want ErrUnavailable", got, err)
	}
}
