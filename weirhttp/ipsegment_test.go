package weirhttp_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weir-go/weir/weirhttp"
)

func ExampleIPSegment() {
	segment, err := weirhttp.IPSegment("2001:db8:1:2:3::4", 0)
	if err != nil {
		panic(err)
	}
	fmt.Println(segment) // the key of everyone in the client's network
	// Output: 2001:db8:1:2::/64
}

// IPSegment returns what the middleware uses for a client with that address.
func TestIPSegment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr string
		bits int
		want string
	}{
		{"192.0.2.1", 0, "192.0.2.1"},
		{"192.0.2.1:443", 0, "192.0.2.1"},
		{"2001:db8:1:2:3::4", 0, "2001:db8:1:2::/64"},
		{"2001:DB8:1:2:3::4", 56, "2001:db8:1::/56"},
		{"[2001:db8::1%eth0]:80", 0, "2001:db8::/64"},
		{"::ffff:192.0.2.1", 0, "192.0.2.1"},
		{"64:ff9b::192.0.2.1", 0, "192.0.2.1"},
		{"2001:db8::1", 128, "2001:db8::1/128"},
	} {
		got, err := weirhttp.IPSegment(c.addr, c.bits)
		if got != c.want || err != nil {
			t.Errorf("%s, %d bits: got %q, %v, want %q", c.addr, c.bits, got, err, c.want)
		}
		segment, err := weirhttp.ClientIP(weirhttp.Proxies{IPv6Bits: c.bits})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.addr
		if same, err := segment(r); same != got || err != nil {
			t.Errorf("%s, %d bits: the middleware uses %q, %v, and IPSegment returns %q", c.addr, c.bits, same, err, got)
		}
		if again, err := weirhttp.IPSegment(got, c.bits); again != got || err != nil {
			t.Errorf("the segment %q: got %q, %v, want the same", got, again, err)
		}
	}
	for addr, want := range map[string]string{
		"": "is no IP address", "ann": "is no IP address", "0.0.0.0": "is no IP address", "2001:db8::/48": "of 64 bits", "10.0.0.0/8": "of 64 bits",
	} {
		if got, err := weirhttp.IPSegment(addr, 0); got != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v, want an error with %q", addr, got, err, want)
		}
	}
	if _, err := weirhttp.IPSegment("192.0.2.1", 129); err == nil {
		t.Error("129 bits: got no error")
	}
}
