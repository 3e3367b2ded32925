package rueidis

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/weir-go/weir/store/internal/adapter"
)

// Dial is a DialCtxFn of [rueidis.ClientOption]. Set it unless TLS is used: without it, the
// client panics, and so ends the process, if a server has too many clients and a call's
// deadline passes while the call connects.
func Dial(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	return adapter.Dial(ctx, addr, d, config)
}
