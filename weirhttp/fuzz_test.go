package weirhttp_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-go/weir/weirhttp"
)

// pieces are what random fields are made of.
var pieces = []string{
	"192.0.2.66", "10.0.0.9", "2001:db8::66", "[2001:db8::66]:80", "for=", "FOR=", "by=", "host=", "unknown", "_x", ",", ", ", ";", "=",
	`"`, `\`, `\"`, `\\`, " ", "\t", "%", "%eth0", ":", ":80", "[", "]", "é", "\x00", "\xff", "::", "::ffff:", "255.255.255.255", "0x7f.1", "1e9",
}

func randomField(rnd *rand.Rand) string {
	var b strings.Builder
	for range rnd.IntN(30) {
		b.WriteString(pieces[rnd.IntN(len(pieces))])
	}
	return b.String()
}

// checkField checks that garbage from the client does not change what the proxies say,
// and that the garbage alone gives an address or an ErrNoKey. A proxy adds to the
// client's line, or adds a line of its own.
func checkField(t *testing.T, garbage string) {
	t.Helper()
	for _, tt := range []struct{ header, ours, want string }{
		{"X-Forwarded-For", "203.0.113.7", "203.0.113.7"},
		{"X-Forwarded-For", "[2001:db8:7::7]:443", "2001:db8:7::/64"},
		{"Forwarded", "for=203.0.113.7", "203.0.113.7"},
		{"Forwarded", `for="[2001:db8:7::7]:443";host="a,\"b"`, "2001:db8:7::/64"},
	} {
		for _, p := range []weirhttp.Proxies{{Count: 1, Header: tt.header}, {Trusted: prefixes("10.0.0.0/8"), Header: tt.header}} {
			ip := clientIP(t, p)
			for _, lines := range [][]string{{garbage + "," + tt.ours}, {garbage, tt.ours}, {garbage, garbage + ", " + tt.ours + ", "}} {
				if got, err := ip(from("10.0.0.1:1", tt.header, lines...)); got != tt.want || err != nil {
					t.Errorf("%s %q: got %q, %v, want %q", tt.header, lines, got, err, tt.want)
				}
			}
			got, err := ip(from("10.0.0.1:1", tt.header, garbage))
			if err != nil {
				if got != "" || !errors.Is(err, weirhttp.ErrNoKey) || len(err.Error()) > 400 {
					t.Errorf("%s %q: got %q, %v, want an ErrNoKey", tt.header, garbage, got, err)
				}
				continue
			}
			if _, err := netip.ParsePrefix(got); err != nil {
				if a, err := netip.ParseAddr(got); err != nil || !a.Is4() || a.String() != got {
					t.Errorf("%s %q: got %q, want an IPv4 address or a network", tt.header, garbage, got)
				}
			}
		}
	}
	if got, err := weirhttp.RemoteIP(from(garbage, "X-Forwarded-For", "192.0.2.66")); (got == "") == (err == nil) {
		t.Errorf("RemoteAddr %q: got %q, %v, want an address or an error", garbage, got, err)
	}
}

// Long fields take no more than a pass over them.
func FuzzFields(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		f.Add(randomField(rnd))
	}
	for _, s := range []string{"", "for=\"", `for="\`, `"`, "\\", "[::ffff:0:0%1]"} {
		f.Add(s)
	}
	for _, s := range []string{"for=10.0.0.1,", `"`, `\"`, `"\`, ",", ";", "for="} {
		f.Add(strings.Repeat(s, 1<<16/len(s)))
	}
	f.Fuzz(checkField)
}
