package weirhttp_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/algorithm"
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

// A thousand random fields.
func TestRandomFields(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		checkField(t, randomField(rnd))
	}
}

func FuzzFields(f *testing.F) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(randomField(rnd))
	}
	for _, s := range []string{"", "for=\"", `for="\`, `"`, "\\", "[::ffff:0:0%1]", strings.Repeat(`"\`, 1000), strings.Repeat(",", 1000)} {
		f.Add(s)
	}
	f.Fuzz(checkField)
}

// Whatever a client sends, the middleware answers 204, 400 or 429, and the handler runs
// only if the limiter has allowed the request.
func TestRandomRequests(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 2, Window: time.Hour})
	request := weirhttp.By(weirhttp.FirstOf(weirhttp.BearerToken, weirhttp.Header("X-API-Key"), clientIP(t, weirhttp.Proxies{Count: 1})))
	var next counting
	limit, errs := newMiddleware(t, lim, request, weirhttp.Options{Headers: weirhttp.RateLimitDraft11})
	h, codes := limit(&next), make(map[int]int)
	for range 3000 {
		r := from("10.0.0.1:1", "X-Forwarded-For", randomField(rnd))
		for _, name := range []string{"Authorization", "X-Api-Key"} {
			switch rnd.IntN(5) {
			case 0:
				r.Header[name] = []string{randomField(rnd)}
			case 1:
				r.Header[name] = []string{"Bearer " + pieces[rnd.IntN(4)]}
			}
		}
		codes[serve(h, r).Code]++
	}
	if codes[204]+codes[400]+codes[429] != 3000 || codes[204] != next.calls || codes[400] != len(*errs) || min(codes[204], codes[400], codes[429]) < 100 {
		t.Errorf("got statuses %v, %d calls of the handler and %d errors", codes, next.calls, len(*errs))
	}
	for _, err := range *errs {
		if !errors.Is(err, weirhttp.ErrNoKey) {
			t.Errorf("got error %v, want an ErrNoKey", err)
		}
	}
}

// A field of a megabyte takes no more than a pass over it.
func TestLongFields(t *testing.T) {
	ip := clientIP(t, weirhttp.Proxies{Trusted: prefixes("10.0.0.0/8"), Header: "Forwarded"})
	for _, s := range []string{"for=10.0.0.1,", `"`, `\`, `\"`, `"\`, ",", ";", "=", " ", "for="} {
		r := from("10.0.0.1:1", "Forwarded", strings.Repeat(s, 1<<20/len(s)))
		if got, err := ip(r); got == "" && !errors.Is(err, weirhttp.ErrNoKey) {
			t.Errorf("%q: got %v, want an address or an ErrNoKey", s, err)
		}
	}
	h := weirhttp.Header("X-API-Key")
	r := from("10.0.0.1:1", "X-API-Key", strings.Repeat("k", 1<<20))
	if got, err := h(r); len(got) != 64 || err != nil {
		t.Errorf("a header of a megabyte: got %d bytes, %v, want 64", len(got), err)
	}
	limit, _ := newMiddleware(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}),
		weirhttp.By(func(r *http.Request) (string, error) { return r.Header.Get("X-API-Key"), nil }), weirhttp.Options{})
	for _, want := range []int{204, 429} { // the limiter hashes it
		if w := serve(limit(new(counting)), r); w.Code != want {
			t.Errorf("a segment of a megabyte: got status %d, want %d", w.Code, want)
		}
	}
}
