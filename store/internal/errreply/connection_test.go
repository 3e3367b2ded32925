package errreply

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
)

// A TLS that one side rejects is a mistake. A connection that is lost is none.
func TestConnection(t *testing.T) {
	t.Parallel()
	serve := func(auth tls.ClientAuthType, start func(*httptest.Server)) string {
		s := httptest.NewUnstartedServer(nil)
		s.Config.ErrorLog, s.TLS = log.New(io.Discard, "", 0), &tls.Config{ClientAuth: auth}
		start(s)
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	someTLS := serve(tls.NoClientCert, (*httptest.Server).StartTLS)
	for says, c := range map[string]struct {
		addr string
		tls  *tls.Config
	}{
		"rejects the certificate":    {someTLS, &tls.Config{ServerName: "example.com"}},
		"does not speak TLS":         {serve(tls.NoClientCert, (*httptest.Server).Start), &tls.Config{ServerName: "example.com"}},
		"may lack a certificate":     {serve(tls.RequireAnyClientCert, (*httptest.Server).StartTLS), &tls.Config{InsecureSkipVerify: true}},
		store.ErrUnavailable.Error(): {"127.0.0.1:1", &tls.Config{}},
	} {
		conn, err := tls.Dial("tcp", c.addr, c.tls)
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // a server of TLS 1.3 rejects the client after the handshake
			_ = conn.Close()
		}
		got := Connection(fmt.Errorf("dial: %w", err))
		if lasts := c.addr != "127.0.0.1:1"; !errors.Is(got, store.ErrUnavailable) || errors.Is(got, store.ErrMisconfigured) != lasts || !strings.Contains(got.Error(), says) {
			t.Errorf("%v: got %v, want that it %s", err, got, says)
		}
	}
}
