package weirgrpc_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/weirgrpc"
)

func hash(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

// text is an address of no known type.
type text string

func (text) Network() string  { return "text" }
func (t text) String() string { return string(t) }

func tcp(s string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(s), Port: 1234} }

// The peer is its IP address, or the network of an IPv6 address.
func TestPeerIP(t *testing.T) {
	var none *net.TCPAddr
	for _, tt := range []struct {
		name string
		addr net.Addr
		want string // empty means ErrNoKey
	}{
		{"IPv4", tcp("192.0.2.1"), "192.0.2.1"},
		{"IPv4 in IPv6", &net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1").To16()}, "192.0.2.1"},
		{"IPv6", tcp("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64"},
		{"IPv6 of the same network", tcp("2001:db8:1:2:ffff::1"), "2001:db8:1:2::/64"},
		{"IPv6 with a zone", &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, "fe80::/64"},
		{"text", text("192.0.2.1:80"), "192.0.2.1"},
		{"IPv6 text", text("[2001:db8::1%eth0]:80"), "2001:db8::/64"},
		{"IPv4 in IPv6 text", text("[::ffff:192.0.2.1]:80"), "192.0.2.1"},
		{"NAT64", tcp("64:ff9b::192.0.2.1"), "192.0.2.1"},
		{"NAT64 text", text("[64:ff9b::c000:202%eth0]:80"), "192.0.2.2"},
		{"close to NAT64", tcp("64:ff9b::1:c000:201"), "64:ff9b::/64"},
		{"no port", text("192.0.2.1"), ""},
		{"a name", text("localhost:80"), ""},
		{"empty", text(""), ""},
		{"Unix socket", &net.UnixAddr{Net: "unix", Name: "/tmp/x"}, ""},
		{"unspecified", tcp("0.0.0.0"), ""},
		{"unspecified IPv6", tcp("::"), ""},
		{"no IP", &net.TCPAddr{Port: 1}, ""},
		{"a nil address of TCP", none, ""},
		{"no address", nil, ""},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: tt.addr})
		got, err := weirgrpc.PeerIP(ctx, "/a/b")
		if got != tt.want || errors.Is(err, weirgrpc.ErrNoKey) != (tt.want == "") || (err == nil) != (tt.want != "") {
			t.Errorf("%s: got %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	if _, err := weirgrpc.PeerIP(t.Context(), "/a/b"); !errors.Is(err, weirgrpc.ErrNoKey) {
		t.Errorf("without a peer: got %v, want ErrNoKey", err)
	}
}

// The segments read the metadata of a call. FirstOf does not look further after metadata that is there
// twice, because the program could read it.
func TestMetadata(t *testing.T) {
	key, binary := weirgrpc.Metadata("X-API-Key"), weirgrpc.Metadata("key-bin")
	first := weirgrpc.FirstOf(weirgrpc.Text(""), key, weirgrpc.BearerToken)
	boom := errors.New("boom")
	fails := func(context.Context, string) (string, error) { return "", boom }
	for name, tt := range map[string]struct {
		segment weirgrpc.Segment
		md      metadata.MD
		want    string
		err     error
	}{
		"a key":               {key, metadata.MD{"x-api-key": {" ann "}}, hash("ann"), nil},
		"other metadata":      {key, metadata.MD{"x-api-keys": {"ann"}}, "", weirgrpc.ErrNoKey},
		"twice":               {key, metadata.MD{"x-api-key": {"ann", "ann"}}, "", weirgrpc.ErrNoKey},
		"no metadata":         {key, nil, "", weirgrpc.ErrNoKey},
		"a pseudo-header":     {weirgrpc.Metadata(":authority"), metadata.MD{":authority": {"example.org"}}, hash("example.org"), nil},
		"a binary key":        {binary, metadata.MD{"key-bin": {" \x00\xff"}}, hash(" \x00\xff"), nil},
		"a token":             {weirgrpc.BearerToken, metadata.MD{"authorization": {"bearer t0ken"}}, hash("t0ken"), nil},
		"no token":            {weirgrpc.BearerToken, metadata.MD{"authorization": {"Basic t0ken"}}, "", weirgrpc.ErrNoKey},
		"the first of both":   {first, metadata.MD{"x-api-key": {"ann"}, "authorization": {"Bearer t0ken"}}, hash("ann"), nil},
		"the second of both":  {first, metadata.MD{"authorization": {"Bearer t0ken"}}, hash("t0ken"), nil},
		"none of both":        {first, nil, "", weirgrpc.ErrNoKey},
		"twice, and a token":  {first, metadata.MD{"x-api-key": {"ann", "ann"}, "authorization": {"Bearer t0ken"}}, "", weirgrpc.ErrNoKey},
		"an error in FirstOf": {weirgrpc.FirstOf(fails, weirgrpc.Method), nil, "", boom},
		"a method":            {weirgrpc.Method, nil, "/a/b", nil},
	} {
		if got, err := tt.segment(metadata.NewIncomingContext(t.Context(), tt.md), "/a/b"); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: got %q, %v, want %q, %v", name, got, err, tt.want, tt.err)
		}
	}
	for _, key := range []string{"", ":", "a b", "a:b", "::a", "é", "a\n", "a/b"} {
		if weirgrpc.Metadata(key) != nil {
			t.Errorf("Metadata(%q) is a segment, want nil", key)
		}
	}
}

// ByName brings segments into the order of the policy. By makes no key after an error of a segment.
func TestByName(t *testing.T) {
	fails := func(context.Context, string) (string, error) { return "a", context.Canceled }
	segments := map[string]weirgrpc.Segment{"method": weirgrpc.Method, "who": weirgrpc.Text("ann")}
	by, err := weirgrpc.ByName([]string{"who", "method"}, segments)
	if err != nil {
		t.Fatal(err)
	}
	if req, err := by(t.Context(), "/a/b"); err != nil || req != (weir.Request{Key: weir.KeyOf("ann", "/a/b")}) {
		t.Errorf("got %+v, %v, want the key ann, /a/b", req, err)
	}
	by, err = weirgrpc.ByName([]string{"who"}, segments)
	if weirtest.WantError(t, err, nil, "weirgrpc", `the policy has no segment "method"`); by != nil {
		t.Error("got a RequestFunc, want nil")
	}
	if req, err := weirgrpc.By(weirgrpc.Method, fails)(t.Context(), "/a/b"); !errors.Is(err, context.Canceled) || req != (weir.Request{}) {
		t.Errorf("got %+v, %v, want the error of the segment", req, err)
	}
}
