package main

import (
	"net/http"
	"net/netip"

	"github.com/weir-go/weir/weirhttp"
)

// addressSegment returns the segment that weirhttp makes of an IP address.
func addressSegment(address string) (string, error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return "", err
	}
	return weirhttp.RemoteIP(&http.Request{RemoteAddr: netip.AddrPortFrom(a, 1).String()})
}
