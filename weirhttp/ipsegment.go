package weirhttp

import (
	"cmp"
	"fmt"
	"net/netip"
)

// IPSegment returns the segment that [RemoteIP] and [ClientIP] make of a client with this
// address, so that an operator can look up a client by the address in a log. For an IPv6
// address, it is the network of ipv6Bits bits: see [Proxies].IPv6Bits. 0 means 64.
//
// The address can have a port, brackets and a zone. It can also be a segment that
// IPSegment has returned, for example 2001:db8::/64.
func IPSegment(addr string, ipv6Bits int) (string, error) {
	if ipv6Bits < 0 || ipv6Bits > 128 {
		return "", fmt.Errorf("weirhttp: IPSegment: ipv6Bits is %d: it must be from 1 to 128, or 0, which means 64", ipv6Bits)
	}
	bits := cmp.Or(ipv6Bits, defaultIPv6Bits)
	if client, ok := parseAddress(addr); ok {
		return client.network(bits), nil
	}
	network, err := netip.ParsePrefix(addr)
	switch {
	case err != nil:
		return "", fmt.Errorf("weirhttp: IPSegment: %.60q is no IP address: it must be one, for example 192.0.2.1 or 2001:db8::1", addr)
	case network.Addr().Unmap().Is4() || network.Bits() != bits:
		return "", fmt.Errorf("weirhttp: IPSegment: the network is %s: it must be an address, or an IPv6 network of %d bits", addr, bits)
	}
	return network.Masked().String(), nil
}
