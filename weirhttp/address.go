package weirhttp

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir/gate"
)

// defaultIPv6Bits is the length of the network that one IPv6 user usually has.
const defaultIPv6Bits = 64

// Proxies describes the proxies in front of a server, for [ClientIP]. A zero Proxies
// means that there is none.
type Proxies struct {
	// Trusted are the networks of your own proxies, for example 10.0.0.0/8. The client is
	// the rightmost address outside of them. A network must not contain all addresses.
	Trusted []netip.Prefix

	// Count is the number of your own proxies that each request goes through, each of
	// which adds one address to the field. It is safe only if no client can reach the
	// server without the proxies. Use it instead of Trusted if you do not know their
	// addresses.
	Count int

	// Header is the name of the field to which your proxies add the address of their own
	// client. Empty means X-Forwarded-For. Only this field is read, because clients can
	// set the others. Forwarded is parsed as RFC 7239 says, and any other field as a list
	// of addresses.
	Header string

	// IPv6Bits is the length of the network by which an IPv6 client is limited, from 1 to
	// 128. 0 means 64, because one user usually has a whole /64 network.
	IPv6Bits int
}

// RemoteIP is a [Segment]. Its value is the address of the connection without the port,
// and for an IPv6 address its /64 network. Behind a proxy, that is the address of the
// proxy: use [ClientIP].
//
// The IPv6 form of an IPv4 address, for example ::ffff:192.0.2.1 or, behind a NAT64,
// 64:ff9b::192.0.2.1, counts as the IPv4 address. The error is [ErrNoKey] if
// [http.Request.RemoteAddr] is not an address, for example on a Unix socket.
func RemoteIP(r *http.Request) (string, error) {
	return remote.segment(r)
}

var remote = addresser{bits: defaultIPv6Bits}

// ClientIP returns a segment whose value is the address of the client, even if the server
// is behind proxies. See [RemoteIP] for the form of the address.
//
// The addresses that proxies have added are read from the right, because everything to
// the left of them can come from the client:
//
//   - With Proxies.Trusted, the address of the connection is read first, and then the
//     field. The client is the first address that is not trusted. If all addresses are
//     trusted, the client is the leftmost address.
//   - With Proxies.Count n, the client is the nth address of the field from the right.
//
// The error of the segment is [ErrNoKey] if the field has fewer than n addresses, or if
// an entry that must be read is no address, for example "unknown".
//
// The error of ClientIP says what is wrong if a field of p is not valid.
func ClientIP(p Proxies) (Segment, error) {
	a := &addresser{
		count:  p.Count,
		header: http.CanonicalHeaderKey(cmp.Or(p.Header, "X-Forwarded-For")),
		bits:   cmp.Or(p.IPv6Bits, defaultIPv6Bits),
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
	var client address
	if a.count == 0 {
		var ok bool
		if client, ok = parseAddress(r.RemoteAddr); !ok {
			return "", source.Missing("the connection's address %.40q is no IP address: behind a proxy on a Unix socket, use Proxies.Count", r.RemoteAddr)
		}
		if !a.trusts(client) {
			return client.network(a.bits), nil
		}
	}
	n := 0
	for entry, ok := range entries(r.Header[a.header], a.header == forwarded) {
		if n++; n < a.count {
			continue
		}
		if ok {
			client, ok = parseAddress(entry)
		}
		if !ok {
			return "", source.Missing("the entry %.40q of the field %s is no IP address", entry, a.header)
		}
		if !a.trusts(client) { // with a count, no network is trusted
			break
		}
	}
	if n < a.count {
		return "", source.Missing("the field %s has %d addresses: each of the %d proxies adds one", a.header, n, a.count)
	}
	return client.network(a.bits), nil
}

func (a *addresser) trusts(client address) bool {
	return slices.ContainsFunc(a.trusted, func(p netip.Prefix) bool { return p.Contains(client.addr) })
}

// An address is an IP address without a zone. An IPv4 address has no IPv6 form.
type address struct {
	addr netip.Addr
	text string // the text that addr was parsed from
}

// parseAddress parses an address with or without a port, brackets and a zone. An
// unspecified address, for example 0.0.0.0, is not valid.
func parseAddress(s string) (address, bool) {
	host := s
	switch bracket := strings.LastIndexByte(s, ']'); {
	case strings.HasPrefix(s, "["):
		if bracket < 0 || bracket+1 < len(s) && s[bracket+1] != ':' {
			return address{}, false
		}
		host = s[1:bracket]
		if !strings.Contains(host, ":") { // brackets are for IPv6
			return address{}, false
		}
	case strings.Count(s, ":") == 1:
		host, _, _ = strings.Cut(s, ":")
	}
	host, _, zone := strings.Cut(host, "%")
	addr, err := netip.ParseAddr(host)
	if err != nil || zone && addr.Is4() || addr.Unmap().IsUnspecified() {
		return address{}, false
	}
	return address{addr.Unmap(), host}, true
}

// network returns the text of the IPv4 address that a is or has in it, or of the network
// of another IPv6 address.
func (a address) network(bits int) string {
	addr := gate.Unmap(a.addr)
	if addr.Is6() {
		if network, err := addr.Prefix(bits); err == nil { // the bits are valid
			return network.String()
		}
	}
	if !strings.Contains(a.text, ":") {
		return a.text // netip accepts only one spelling
	}
	return addr.String()
}

// forwarded is the field of RFC 7239.
const forwarded = "Forwarded"

// entries returns the entries of the lines of a list, from right to left. It skips empty
// entries. If rfc7239 is true, an entry is the parameter "for" of the element. If the
// element has no such parameter, the entry is the element and the bool is false.
//
// Only the entries that the server's own proxies have added can be trusted to be well
// formed. So nothing is read from the left, and nothing beyond the last entry that the
// caller asks for.
func entries(lines []string, rfc7239 bool) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for i := len(lines) - 1; i >= 0; i-- {
			for rest, more := lines[i], true; more; {
				var entry string
				rest, entry, more = cutLast(rest, rfc7239)
				entry = strings.Trim(entry, " \t")
				if entry == "" {
					continue
				}
				ok := true
				if rfc7239 {
					entry, ok = forParam(entry)
				}
				if !yield(entry, ok) {
					return
				}
			}
		}
	}
}

// cutLast cuts s around the last comma. If quotes is true, a comma in a quoted string
// does not count.
func cutLast(s string, quotes bool) (before, after string, found bool) {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case quotes && s[i] == '"' && !escaped(s[:i]):
			quoted = !quoted
		case s[i] == ',' && !quoted:
			return s[:i], s[i+1:], true
		}
	}
	return "", s, false
}

// escaped reports whether the character after s is escaped: whether s ends in an odd
// number of backslashes.
func escaped(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}

// forParam returns the value of the parameter "for" of an element of Forwarded. If there
// is not exactly one, it returns the element and false.
func forParam(element string) (string, bool) {
	value, found := "", 0
	for rest := element; rest != ""; {
		name, after, ok := strings.Cut(rest, "=")
		v := ""
		if ok {
			v, rest, ok = paramValue(after)
		}
		if !ok {
			return element, false
		}
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			value = v
			found++
		}
	}
	if found != 1 {
		return element, false
	}
	return value, true
}

// paramValue cuts a parameter's value, a token or a quoted string, and the semicolon
// behind it off s. It does not remove backslashes: no address has any.
func paramValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ";")
		return strings.Trim(value, " \t"), rest, !strings.Contains(value, `"`)
	}
	for i := 1; i < len(s); i++ {
		if s[i] == '"' && !escaped(s[1:i]) {
			rest = strings.Trim(s[i+1:], " \t")
			return s[1:i], strings.TrimPrefix(rest, ";"), rest == "" || rest[0] == ';'
		}
	}
	return "", "", false
}
