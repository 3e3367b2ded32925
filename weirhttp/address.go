package weirhttp

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// defaultIPv6Bits is the length of the network that one IPv6 user usually has.
const defaultIPv6Bits = 64

// Proxies describes the proxies in front of a server, for [ClientIP]. A zero Proxies means
// that there is none.
type Proxies struct {
	// Trusted are the networks of your own proxies, for example 10.0.0.0/8. The client is
	// the last address that is not in them. A network must not contain all addresses.
	Trusted []netip.Prefix

	// Count is the number of your own proxies that each request goes through. Each of
	// them adds one address to the field. Use it if the addresses of the proxies are not
	// known. Nobody must be able to reach the server without the proxies. Set
	// either Trusted or Count.
	Count int

	// Header is the field to which your proxies add the address of their own client. Empty
	// means X-Forwarded-For. The field Forwarded is parsed as RFC 7239 says, any other one
	// as a list of addresses. Other fields are not read: clients can set them.
	Header string

	// IPv6Bits is the length of the network by which an IPv6 client is limited, from 1 to
	// 128. 0 means 64, because one user usually has a whole /64 network.
	IPv6Bits int
}

// RemoteIP is a [Segment]. Its value is the address of the connection, without the port: of an
// IPv6 address, the /64 network. If the server is behind a proxy, this is the address of the
// proxy: use [ClientIP].
//
// An IPv4 address in an IPv6 address, ::ffff:192.0.2.1, is the IPv4 address. The error is
// [ErrNoKey] if http.Request.RemoteAddr is no address, for example on a Unix socket.
func RemoteIP(r *http.Request) (string, error) {
	return remote.segment(r)
}

var remote = addresser{bits: defaultIPv6Bits}

// ClientIP returns a segment whose value is the address of the client, also if the server
// is behind proxies. See [RemoteIP] for the form of the address.
//
// The addresses that proxies have added are read from the right, because everything to the
// left of them can come from the client:
//
//   - With Proxies.Trusted, the client is the first address that is not trusted, beginning
//     with that of the connection. If all are trusted, it is the leftmost one.
//   - With Proxies.Count n, the client is the nth address from the right.
//
// The error of the segment is [ErrNoKey] if the field has fewer than n addresses, or if an
// entry that must be read is no address, for example "unknown".
//
// The error of ClientIP says what is wrong if a field of p is not valid.
func ClientIP(p Proxies) (Segment, error) {
	a := &addresser{bits: p.IPv6Bits, count: p.Count, header: http.CanonicalHeaderKey(p.Header)}
	if p.Header == "" {
		a.header = "X-Forwarded-For"
	}
	if p.IPv6Bits == 0 {
		a.bits = defaultIPv6Bits
	}
	switch {
	case p.Count < 0:
		return nil, fmt.Errorf("weirhttp: ClientIP: Proxies.Count is %d: it must be at least 1, or 0 if there are no proxies", p.Count)
	case p.Count > 0 && len(p.Trusted) > 0:
		return nil, fmt.Errorf("weirhttp: ClientIP: Proxies.Count is %d and Proxies.Trusted is set: set only one of them", p.Count)
	case p.Header != "" && p.Count == 0 && len(p.Trusted) == 0:
		return nil, fmt.Errorf("weirhttp: ClientIP: Proxies.Header is %q: set Trusted or Count too, because only your own proxies can be trusted to set it", p.Header)
	case p.IPv6Bits < 0 || p.IPv6Bits > 128:
		return nil, fmt.Errorf("weirhttp: ClientIP: Proxies.IPv6Bits is %d: it must be from 1 to 128, or 0, which means 64", p.IPv6Bits)
	}
	for i, network := range p.Trusted {
		switch {
		case !network.IsValid():
			return nil, fmt.Errorf("weirhttp: ClientIP: Proxies.Trusted[%d] is not valid: make it with netip.ParsePrefix", i)
		case network.Addr().Is4In6() && network.Bits() >= 96:
			network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
		}
		if network.Bits() == 0 {
			return nil, fmt.Errorf("weirhttp: ClientIP: Proxies.Trusted[%d] is %v, which contains every client: name the networks of your own proxies", i, network)
		}
		a.trusted = append(a.trusted, network)
	}
	return a.segment, nil
}

// An addresser finds the address of a client.
type addresser struct {
	trusted []netip.Prefix
	count   int
	header  string
	bits    int // of the network of an IPv6 client
}

func (a *addresser) segment(r *http.Request) (string, error) {
	if a.count > 0 {
		return a.counted(r)
	}
	addr, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return "", noKey("the connection's address %.40q is no IP address: behind a proxy on a Unix socket, use Proxies.Count", r.RemoteAddr)
	}
	if !a.trusts(addr) {
		return a.network(addr, r.RemoteAddr), nil
	}
	text := r.RemoteAddr
	for entry := range entries(r.Header[a.header], a.header == forwarded) {
		if addr, ok = parseAddr(entry); !ok {
			return "", noKey("the entry %.40q of the field %s is no IP address", entry, a.header)
		}
		text = entry
		if !a.trusts(addr) {
			break
		}
	}
	return a.network(addr, text), nil
}

// counted returns the address that is a.count entries from the right.
func (a *addresser) counted(r *http.Request) (string, error) {
	n := 0
	for entry := range entries(r.Header[a.header], a.header == forwarded) {
		if n++; n < a.count {
			continue
		}
		addr, ok := parseAddr(entry)
		if !ok {
			return "", noKey("the entry %.40q of the field %s is no IP address", entry, a.header)
		}
		return a.network(addr, entry), nil
	}
	return "", noKey("the field %s has %d addresses: each of the %d proxies adds one", a.header, n, a.count)
}

func (a *addresser) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(a.trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// network returns the text of the client's network. text is the text that addr was parsed
// from.
func (a *addresser) network(addr netip.Addr, text string) string {
	if addr.Is4() {
		if host, _, _ := strings.Cut(text, ":"); host != "" && host[0] >= '0' && host[0] <= '9' && strings.Count(host, ".") == 3 {
			return host // netip accepts only one spelling, so no copy is needed
		}
		return addr.String()
	}
	network, err := addr.Prefix(a.bits)
	if err != nil { // the bits were checked
		return addr.String()
	}
	return network.String()
}

// parseAddr parses an address with or without a port, brackets and a zone. The zone and
// the IPv6 form of an IPv4 address are removed. An unspecified address, for example
// 0.0.0.0, is not valid.
func parseAddr(s string) (netip.Addr, bool) {
	host := s
	switch bracket := strings.LastIndexByte(s, ']'); {
	case strings.HasPrefix(s, "["):
		if bracket < 0 || bracket+1 < len(s) && s[bracket+1] != ':' {
			return netip.Addr{}, false
		}
		host = s[1:bracket]
		if !strings.Contains(host, ":") { // brackets are for IPv6
			return netip.Addr{}, false
		}
	case strings.Count(s, ":") == 1:
		host, _, _ = strings.Cut(s, ":")
	}
	if strings.Contains(host, ":") {
		host, _, _ = strings.Cut(host, "%")
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.IsUnspecified() || addr.Unmap().IsUnspecified() {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}
