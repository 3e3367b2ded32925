package adapter

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// Dial connects as rueidis and valkey-go do by themselves. The connection is read only once
// something was written to it. A server that has too many clients sends an error unasked. If the
// context has ended meanwhile, these clients would take the error for a reply to nothing, and panic.
func Dial(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config != nil { // such a server sends nothing before the handshake
		return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", addr)
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	asked := make(chan struct{})
	return &askedConn{conn, asked, sync.OnceFunc(func() { close(asked) })}, nil
}

// An askedConn waits in Read for the first Write or Close.
type askedConn struct {
	net.Conn
	asked <-chan struct{}
	ask   func()
}

func (c *askedConn) Read(b []byte) (int, error) {
	<-c.asked
	return c.Conn.Read(b)
}

func (c *askedConn) Write(b []byte) (int, error) {
	c.ask()
	return c.Conn.Write(b)
}

func (c *askedConn) Close() error {
	c.ask()
	return c.Conn.Close()
}
