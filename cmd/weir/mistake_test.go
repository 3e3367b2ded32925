package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
)

// speaking returns the address of a server that knows only INFO.
func speaking(t *testing.T, mode string, config *tls.Config) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	info := "redis_mode:" + mode + "\r\n"
	reply := fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			if config != nil {
				c = tls.Server(c, config)
			}
			go func() {
				defer c.Close()
				b := make([]byte, 4096)
				for n, err := c.Read(b); err == nil; n, err = c.Read(b) {
					text := strings.Repeat("-ERR unknown command\r\n", max(1, strings.Count(string(b[:n]), "*")))
					if strings.HasSuffix(string(b[:n]), "server\r\n") {
						text = reply
					}
					_, _ = c.Write([]byte(text))
					if strings.Contains(string(b[:n]), "s3cret") {
						t.Errorf("the password was sent to %q", mode)
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestMistakenURL shows that the error of a URL for another kind of server says which URL is right.
func TestMistakenURL(t *testing.T) {
	example := httptest.NewTLSServer(nil)
	defer example.Close()
	secure, plain := speaking(t, "standalone", example.TLS), speaking(t, "standalone", nil)
	for _, test := range []struct{ url, addr, want string }{
		{"redis://ann:s3cret@%s", secure, "it uses TLS: the URL must begin with rediss"},
		{"rediss://ann:s3cret@%s", plain, "it does not use TLS: the URL must begin with redis"},
		{"rediss://%s", secure, "certificate"},
		{"redis+sentinel://%s?master_name=m", plain, "it is a single server: its URL is like redis://"},
		{"redis+sentinel://%s?master_name=m", speaking(t, "cluster", nil), "it is a cluster server: its URL is like redis+cluster://"},
		{"redis+sentinel://ann:s3cret@%s?master_name=m", speaking(t, "sentinel", nil), "cannot be used"},
		{"redis://%s", speaking(t, "sentinel", nil), "it is a sentinel server: its URL is like redis+sentinel://"},
		{"redis://%s", plain, "cannot be used"},
		{"postgres://ann:s3cret@%s/db?sslmode=nope", plain, "the PostgreSQL server cannot be used: pgx cannot read a parameter of its URL"},
	} {
		var tool tool
		at, err := tool.parseURL(fmt.Sprintf(test.url, test.addr), "")
		if err != nil {
			t.Fatal(err)
		}
		s, err := dial(t.Context(), at)
		if s != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.url, err, test.want)
		} else if !errors.Is(err, store.ErrUnavailable) && at.kind != postgres {
			t.Errorf("%s: got %v, which hides the error of the store", test.url, err)
		}
		if got := at.mistake(t.Context(), fmt.Errorf("dial: %w", os.ErrDeadlineExceeded)); got != "" {
			t.Errorf("%s: after a timeout, got %q, want no advice", test.url, got)
		}
	}
}
