package weirhttp_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/weirhttp"
)

func prefixes(list ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

func clientIP(t *testing.T, p weirhttp.Proxies) weirhttp.Segment {
	t.Helper()
	ip, err := weirhttp.ClientIP(p)
	if err != nil {
		t.Fatal(err)
	}
	return ip
}

// from returns a request from addr with the lines of a field.
func from(addr, field string, lines ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = addr
	r.Header[http.CanonicalHeaderKey(field)] = lines
	return r
}

// IPSegment returns what the middleware uses for a client with that address, and takes it again.
func TestRemoteIP(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:1234":               "192.0.2.1",
		"192.0.2.1":                    "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:1234":  "2001:db8:1:2::/64",
		"2001:db8:1:2:3:4:5:6":         "2001:db8:1:2::/64",
		"[2001:DB8:1:2:0::6]:1":        "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1234":          "fe80::/64",
		"fe80::1%eth1":                 "fe80::/64",
		"[::ffff:192.0.2.1]:1234":      "192.0.2.1",
		"::ffff:192.0.2.1":             "192.0.2.1",
		"[::ffff:c000:201]:1":          "192.0.2.1",
		"[64:ff9b::192.0.2.1]:1234":    "192.0.2.1",
		"64:ff9b::c000:202":            "192.0.2.2",
		"[64:ff9b::c000:201%eth0]:1":   "192.0.2.1",
		"[64:ff9b::1:c000:201]:1":      "64:ff9b::/64",
		"[64:ff9b:1::192.0.2.1]:1":     "64:ff9b:1::/64",
		"[::1]:1":                      "::/64",
		"":                             "",
		"@":                            "",
		"/run/weir.sock":               "",
		"0.0.0.0:1":                    "",
		"[::]:1":                       "",
		"[::ffff:0.0.0.0]:1":           "",
		"192.0.2.1%eth0:1":             "",
		"192.0.2.01:1":                 "",
		"192.0.2:1":                    "",
		"[192.0.2.1]:1":                "",
		"[2001:db8::1":                 "",
		"[2001:db8::1]1":               "",
		"example.org:1":                "",
		"192.0.2.1:1:1":                "",
		" 192.0.2.1:1":                 "",
		strings.Repeat("[", 1<<16):     "",
		strings.Repeat("1.", 1<<16):    "",
		strings.Repeat(":", 1<<16):     "",
		strings.Repeat("1:%", 1<<16):   "",
		strings.Repeat(`"\`, 1<<16):    "",
		"[" + strings.Repeat("]", 1e5): "",
	} {
		got, err := weirhttp.RemoteIP(from(addr, "X-Forwarded-For", "203.0.113.9"))
		if got != want || (err == nil) != (want != "") || err != nil && (!errors.Is(err, weirhttp.ErrNoKey) || len(err.Error()) > 300) {
			t.Errorf("%.50q: got %q, %v, want %q", addr, got, err, want)
		}
		if got, err := weirhttp.IPSegment(addr, 0); got != want || (err == nil) != (want != "") || err != nil && !strings.Contains(err.Error(), "is no IP address") {
			t.Errorf("IPSegment of %.50q: got %q, %v, want %q", addr, got, err, want)
		}
		if again, err := weirhttp.IPSegment(want, 0); want != "" && (again != want || err != nil) {
			t.Errorf("the segment %q: got %q, %v, want the same", want, again, err)
		}
	}
}

// A segment has the network of so many bits, and no other network is one.
func TestIPSegment(t *testing.T) {
	for _, tt := range []struct {
		addr string
		bits int
		want string // an error, if it has a space
	}{
		{"2001:DB8:1:2:3::4", 56, "2001:db8:1::/56"},
		{"2001:db8:1::/56", 56, "2001:db8:1::/56"},
		{"2001:db8::1", 128, "2001:db8::1/128"},
		{"192.0.2.1", 1, "192.0.2.1"},
		{"ann", 0, "is no IP address"},
		{"2001:db8::/48", 0, "of 64 bits"},
		{"10.0.0.0/8", 8, "of 8 bits"},
		{"192.0.2.1", 129, "ipv6Bits is 129"},
		{"192.0.2.1", -1, "ipv6Bits is -1"},
	} {
		got, err := weirhttp.IPSegment(tt.addr, tt.bits)
		if strings.Contains(tt.want, " ") {
			if weirtest.WantError(t, err, nil, "weirhttp", tt.want); got != "" {
				t.Errorf("%s, %d bits: got %q", tt.addr, tt.bits, got)
			}
		} else if got != tt.want || err != nil {
			t.Errorf("%s, %d bits: got %q, %v, want %q", tt.addr, tt.bits, got, err, tt.want)
		}
	}
}

// The client is what the trusted proxies say, read from the right.
func TestClientIP(t *testing.T) {
	trusted := weirhttp.Proxies{Trusted: prefixes("10.0.0.0/8", "fd00::/8", "::ffff:172.16.0.0/108")}
	one, two := weirhttp.Proxies{Count: 1}, weirhttp.Proxies{Count: 2}
	with := func(p weirhttp.Proxies, header string) weirhttp.Proxies { p.Header = header; return p }
	for _, tt := range []struct {
		name    string
		proxies weirhttp.Proxies
		addr    string
		lines   []string
		want    string
	}{
		{"no proxies", weirhttp.Proxies{}, "203.0.113.9:1", []string{"198.51.100.1"}, "203.0.113.9"},
		{"no proxies, a /56", weirhttp.Proxies{IPv6Bits: 56}, "[2001:db8:1:2ff::1]:1", nil, "2001:db8:1:200::/56"},
		{"no proxies, a whole address", weirhttp.Proxies{IPv6Bits: 128}, "[2001:db8::1]:1", nil, "2001:db8::1/128"},

		{"trusted: the connection is the client", trusted, "203.0.113.9:1", []string{"198.51.100.1"}, "203.0.113.9"},
		{"trusted: one proxy", trusted, "10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"trusted: a proxy in an IPv6 form", trusted, "[::ffff:10.0.0.1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"trusted: a network in an IPv6 form", trusted, "172.16.3.4:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"trusted: two proxies", trusted, "10.0.0.1:1", []string{"198.51.100.1, fd00::2"}, "198.51.100.1"},
		{"trusted: two lines", trusted, "10.0.0.1:1", []string{"192.0.2.66", "198.51.100.1, 10.0.0.2", "10.0.0.3"}, "198.51.100.1"},
		{"trusted: the client adds addresses", trusted, "10.0.0.1:1", []string{"192.0.2.66, 10.0.0.9, 198.51.100.1"}, "198.51.100.1"},
		{"trusted: the client adds garbage", trusted, "10.0.0.1:1", []string{`;;"\, unknown,,198.51.100.1`}, "198.51.100.1"},
		{"trusted: empty entries", trusted, "10.0.0.1:1", []string{"", " 198.51.100.1 ,\t, ", ""}, "198.51.100.1"},
		{"trusted: ports and IPv6", trusted, "10.0.0.1:1", []string{"[2001:db8:0:1::1]:1234, 10.0.0.2:80"}, "2001:db8:0:1::/64"},
		{"trusted: an IPv4 address with a port", trusted, "10.0.0.1:1", []string{"198.51.100.1:5555"}, "198.51.100.1"},
		{"trusted: nothing but proxies", trusted, "10.0.0.1:1", []string{"10.0.0.5, 10.0.0.2"}, "10.0.0.5"},
		{"trusted: no field", trusted, "10.0.0.1:1", nil, "10.0.0.1"},
		{"trusted: unknown", trusted, "10.0.0.1:1", []string{"198.51.100.1, unknown, 10.0.0.2"}, ""},
		{"trusted: no address", trusted, "@", []string{"198.51.100.1"}, ""},
		{"trusted: a proxy with a zone", trusted, "[fd00::1%eth0]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"trusted: an IPv4 address with a zone", trusted, "10.0.0.1:1", []string{"::ffff:198.51.100.1%eth0"}, "198.51.100.1"},
		{"trusted: another field", with(trusted, "X-Real-Ip"), "10.0.0.1:1", []string{"198.51.100.1"}, "10.0.0.1"},

		{"one: the last", one, "10.0.0.1:1", []string{"192.0.2.66, 198.51.100.1"}, "198.51.100.1"},
		{"one: on a Unix socket", one, "@", []string{"192.0.2.66", "198.51.100.1"}, "198.51.100.1"},
		{"one: no field", one, "198.51.100.1:1", nil, ""},
		{"one: empty", one, "198.51.100.1:1", []string{"", ", ,"}, ""},
		{"one: unknown", one, "198.51.100.1:1", []string{"192.0.2.66, unknown"}, ""},
		{"two: the last but one", two, "10.0.0.1:1", []string{"192.0.2.66, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"two: the client's line", two, "10.0.0.1:1", []string{"192.0.2.66", "198.51.100.1", "10.0.0.2"}, "198.51.100.1"},
		{"two: only one", two, "10.0.0.1:1", []string{"198.51.100.1"}, ""},
		{"two: garbage to the right", two, "10.0.0.1:1", []string{"198.51.100.1, unknown"}, "198.51.100.1"},
	} {
		got, err := clientIP(t, tt.proxies)(from(tt.addr, "X-Forwarded-For", tt.lines...))
		if got != tt.want || (err == nil) != (tt.want != "") || err != nil && !errors.Is(err, weirhttp.ErrNoKey) {
			t.Errorf("%s: got %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

// Forwarded is parsed as RFC 7239 says. The other field is not read.
func TestForwarded(t *testing.T) {
	for line, want := range map[string]string{
		"for=198.51.100.1":                                                      "198.51.100.1",
		"For=198.51.100.1;proto=https;by=10.0.0.1":                              "198.51.100.1",
		`proto=http; FOR="198.51.100.1:80" ; host="a,b;c=\"d\""`:                "198.51.100.1",
		`for="[2001:db8:0:1::1]:4711"`:                                          "2001:db8:0:1::/64",
		`for="[2001:db8:0:1::1]"`:                                               "2001:db8:0:1::/64",
		`for=192.0.2.66, for=198.51.100.1`:                                      "198.51.100.1",
		`for="192.0.2.66, for=198.51.100.1`:                                     "198.51.100.1",
		`for="192.0.2.66\, for="[2001:db8:0:1::1]"`:                             "2001:db8:0:1::/64",
		`x="\",for=192.0.2.66;host="a\\",for=198.51.100.1;host="e,for=1.1.1.1"`: "198.51.100.1",
		`for=192.0.2.66, ,for=198.51.100.1,`:                                    "198.51.100.1",
		`for=198.51.100.1;host="a\",for=192.0.2.66;x=\""`:                       "198.51.100.1",
		"for=_hidden":                     "",
		"for=unknown":                     "",
		`for=""`:                          "",
		"for=":                            "",
		"for":                             "",
		"198.51.100.1":                    "",
		"by=198.51.100.1":                 "",
		"for=192.0.2.66;for=198.51.100.1": "",
		`for="198.51.100.1`:               "",
		`for="198.51.100.1"x`:             "",
		`for=19"8.51.100.1`:               "",
		"for=198.51.100.1;x":              "",
		`for="198.51.100.\1"`:             "",
	} {
		for _, p := range []weirhttp.Proxies{{Count: 1, Header: "forwarded"}, {Trusted: prefixes("10.0.0.0/8"), Header: "Forwarded"}} {
			r := from("10.0.0.1:1", "Forwarded", line)
			r.Header.Set("X-Forwarded-For", "203.0.113.9")
			got, err := clientIP(t, p)(r)
			if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, weirhttp.ErrNoKey) {
				t.Errorf("%s: got %q, %v, want %q", line, got, err, want)
			}
		}
	}
}

func TestClientIPErrors(t *testing.T) {
	for _, tt := range []struct {
		proxies weirhttp.Proxies
		want    string
	}{
		{weirhttp.Proxies{Count: -1}, "Proxies.Count is -1"},
		{weirhttp.Proxies{Count: 1, Trusted: prefixes("10.0.0.0/8")}, "set only one of them"},
		{weirhttp.Proxies{Header: "X-Real-IP"}, "set Trusted or Count too"},
		{weirhttp.Proxies{IPv6Bits: 129}, "IPv6Bits is 129"},
		{weirhttp.Proxies{IPv6Bits: -1}, "IPv6Bits is -1"},
		{weirhttp.Proxies{Trusted: make([]netip.Prefix, 1)}, "Trusted[0] is not valid"},
		{weirhttp.Proxies{Trusted: prefixes("10.0.0.0/8", "0.0.0.0/0")}, "Trusted[1] is 0.0.0.0/0, which contains every client"},
		{weirhttp.Proxies{Trusted: prefixes("::/0")}, "contains every client"},
		{weirhttp.Proxies{Trusted: prefixes("::ffff:0.0.0.0/96")}, "contains every client"},
	} {
		ip, err := weirhttp.ClientIP(tt.proxies)
		if weirtest.WantError(t, err, nil, "weirhttp", tt.want); ip != nil {
			t.Errorf("%+v: got a segment", tt.proxies)
		}
	}
}
