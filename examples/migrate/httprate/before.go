// Package httprate moves a program from httprate to weir.
package httprate

import (
	"net"
	"net/http"
	"time"

	"github.com/go-chi/httprate"
)

// Before limits each IP address to 3 requests per minute.
func Before(next http.Handler) http.Handler {
	return httprate.LimitBy(3, time.Minute, func(r *http.Request) (string, error) {
		ip, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(ip), err
	})(next)
}
