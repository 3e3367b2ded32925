package servertest

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-go/weir/store"
	weirnats "github.com/weir-go/weir/store/nats"
)

// Ready names a mistake of the connection, though the client goes on to connect, or sends
// what the user has no right to.
func TestReady(t *testing.T) {
	t.Parallel()
	cert := httptest.NewTLSServer(nil)
	defer cert.Close()
	few := &server.User{Username: "few", Password: "b", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"$JS.>"}}}}
	users := &server.Options{Users: []*server.User{{Username: "all", Password: "b"}, few}}
	secure := &server.Options{TLS: true, TLSTimeout: 60, TLSConfig: &tls.Config{Certificates: cert.TLS.Certificates}}
	all := nats.UserInfo("all", "b")
	for says, c := range map[string]struct {
		server *server.Options
		admin  nats.Option
		client []nats.Option
	}{
		"correct the credentials":   {users, all, nil},
		"grant it to the user":      {users, all, []nats.Option{nats.UserInfo("few", "b")}},
		"certificate signed by":     {secure, nats.Secure(&tls.Config{InsecureSkipVerify: true}), []nats.Option{nats.Secure(&tls.Config{})}},
		"secure connection not":     {&server.Options{}, nil, []nats.Option{nats.Secure(&tls.Config{})}},
		"maximum messages exceeded": {&server.Options{}, nil, nil},
	} {
		opts := *c.server
		s := start(t, &opts)
		defer stop(s)
		admin := connect(t, s.ClientURL(), append([]nats.Option{}, c.admin)...)
		create(t, admin, func(cfg *jetstream.StreamConfig) { cfg.MaxMsgs = 1 })
		lim := limiter(t, weirnats.New(connect(t, s.ClientURL(), append(c.client, nats.RetryOnFailedConnect(true))...), "limits"))
		var err error
		for !errors.Is(err, store.ErrMisconfigured) { // the client connects in the background
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err = lim.Ready(ctx)
			cancel()
		}
		if errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want a mistake alone that says %q", err, says)
		}
	}
}
