package weirgrpc_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/weirgrpc"
)

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// text is an address of no known type.
type text string

func (text) Network() string  { return "text" }
func (t text) String() string { return string(t) }

func tcp(s string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(s), Port: 1234} }

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
		t.Run(tt.name, func(t *testing.T) {
			ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: tt.addr})
			got, err := weirgrpc.PeerIP(ctx, "/a/b")
			if got != tt.want || errors.Is(err, weirgrpc.ErrNoKey) != (tt.want == "") || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	if _, err := weirgrpc.PeerIP(t.Context(), "/a/b"); !errors.Is(err, weirgrpc.ErrNoKey) {
		t.Errorf("without a peer: got %v, want ErrNoKey", err)
	}
}

func TestMetadata(t *testing.T) {
	one := func(key string, values ...string) metadata.MD { return metadata.MD{key: values} }
	key, binary := weirgrpc.Metadata("X-API-Key"), weirgrpc.Metadata("key-bin")
	for _, tt := range []struct {
		name    string
		segment weirgrpc.Segment
		md      metadata.MD
		want    string // what is hashed; empty means ErrNoKey
	}{
		{"a key", key, one("x-api-key", "ann"), "ann"},
		{"spaces around it", key, one("x-api-key", " \tann\t "), "ann"},
		{"spaces in it", key, one("x-api-key", "a  b"), "a  b"},
		{"other metadata", key, one("x-api-keys", "ann"), ""},
		{"twice", key, one("x-api-key", "ann", "bob"), ""},
		{"twice the same", key, one("x-api-key", "ann", "ann"), ""},
		{"an empty key", key, one("x-api-key", ""), ""},
		{"only spaces", key, one("x-api-key", " \t "), ""},
		{"no value", key, one("x-api-key"), ""},
		{"no metadata", key, nil, ""},
		{"a pseudo-header", weirgrpc.Metadata(":authority"), one(":authority", "example.org"), "example.org"},
		{"a binary key", binary, one("key-bin", " \x00\xff"), " \x00\xff"},
		{"an empty binary key", binary, one("key-bin", ""), ""},
		{"a token", weirgrpc.BearerToken, one("authorization", "Bearer t0ken"), "t0ken"},
		{"a token in another spelling", weirgrpc.BearerToken, one("authorization", "  bEARER \t t0ken "), "t0ken"},
		{"another scheme", weirgrpc.BearerToken, one("authorization", "Basic t0ken"), ""},
		{"no token", weirgrpc.BearerToken, one("authorization", "Bearer "), ""},
		{"only the scheme", weirgrpc.BearerToken, one("authorization", "Bearer"), ""},
		{"two tokens", weirgrpc.BearerToken, one("authorization", "Bearer a b"), ""},
		{"a list of tokens", weirgrpc.BearerToken, one("authorization", "Bearer a,b"), ""},
		{"two authorizations", weirgrpc.BearerToken, one("authorization", "Bearer a", "Bearer a"), ""},
		{"no authorization", weirgrpc.BearerToken, nil, ""},
		{"the first of two", weirgrpc.FirstOf(key, weirgrpc.BearerToken), metadata.MD{"x-api-key": {"ann"}, "authorization": {"Bearer t0ken"}}, "ann"},
		{"the second of two", weirgrpc.FirstOf(key, weirgrpc.BearerToken), one("authorization", "Bearer t0ken"), "t0ken"},
		{"none of two", weirgrpc.FirstOf(key, weirgrpc.BearerToken), nil, ""},
		{"twice, and then another", weirgrpc.FirstOf(key, weirgrpc.BearerToken), metadata.MD{"x-api-key": {"ann", "ann"}, "authorization": {"Bearer t0ken"}}, ""},
		{"empty, and then none", weirgrpc.FirstOf(weirgrpc.Text(""), key), nil, ""},
		{"none, and then empty", weirgrpc.FirstOf(key, weirgrpc.Text("")), nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.segment(metadata.NewIncomingContext(t.Context(), tt.md), "/a/b")
			want := ""
			if tt.want != "" {
				want = hash(tt.want)
			}
			if got != want || errors.Is(err, weirgrpc.ErrNoKey) != (want == "") || (err == nil) != (want != "") {
				t.Errorf("got %q, %v, want the hash of %q", got, err, tt.want)
			}
		})
	}
	for _, key := range []string{"", ":", "a b", "a:b", "::a", "é", "a\n", "a/b"} {
		if weirgrpc.Metadata(key) != nil {
			t.Errorf("Metadata(%q) is a segment, want nil", key)
		}
	}
	boom := errors.New("boom")
	fails := func(context.Context, string) (string, error) { return "", boom }
	if got, err := weirgrpc.FirstOf(fails, weirgrpc.Method)(t.Context(), "/a/b"); !errors.Is(err, boom) {
		t.Errorf("got %q, %v, want the error of the first segment", got, err)
	}
}

// Whatever the metadata is, there is a hash, the same for all spellings, or an ErrNoKey.
func FuzzMetadata(f *testing.F) {
	for _, s := range []string{"", "ann", "Bearer t0ken", " bearer  t0ken ", "Bearer a b", "\x00", "Bearer \xff", "basic x", "\u00a0"} {
		f.Add(s, 1)
		f.Add(s, 2)
	}
	key := weirgrpc.Metadata("x-api-key")
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = min(max(n, 0), 3)
		md := metadata.MD{}
		for range n {
			md["x-api-key"] = append(md["x-api-key"], s)
			md["authorization"] = append(md["authorization"], s)
		}
		ctx := metadata.NewIncomingContext(t.Context(), md)
		for name, segment := range map[string]weirgrpc.Segment{"Metadata": key, "BearerToken": weirgrpc.BearerToken} {
			got, err := segment(ctx, "/a/b")
			if (err == nil) != (len(got) == 64) || err != nil && (got != "" || !errors.Is(err, weirgrpc.ErrNoKey)) {
				t.Errorf("%s of %d times %q: got %q, %v, want a hash or an ErrNoKey", name, n, s, got, err)
			}
			if err == nil && n != 1 {
				t.Errorf("%s of %d times %q: got %q, want ErrNoKey", name, n, s, got)
			}
			if err != nil && strings.TrimFunc(s, unicode.IsSpace) != "" && strings.Contains(err.Error(), s) && len(s) > 12 {
				t.Errorf("%s of %q: the error %q contains the value", name, s, err)
			}
		}
		if n != 1 {
			return
		}
		want, wantErr := key(ctx, "")
		got, err := key(metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-api-key", "\t "+s+" ")), "")
		if got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("Metadata of %q: spaces around it make another key", s)
		}
		token := strings.Trim(s, " \t")
		a, errA := weirgrpc.BearerToken(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token)), "")
		b, errB := weirgrpc.BearerToken(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", " bEaReR   "+token+"\t")), "")
		if a != b || (errA == nil) != (errB == nil) {
			t.Errorf("BearerToken of %q: got %q, %v and %q, %v for two spellings", token, a, errA, b, errB)
		}
	})
}

// ByName brings segments into the order of the policy.
func TestByName(t *testing.T) {
	two := map[string]weirgrpc.Segment{"method": weirgrpc.Method, "who": weirgrpc.Text("ann")}
	for _, tt := range []struct {
		name     string
		names    []string
		segments map[string]weirgrpc.Segment
		want     weir.Key
		err      string
	}{
		{"two", []string{"who", "method"}, two, weir.KeyOf("ann", "/a/b"), ""},
		{"another order", []string{"method", "who"}, two, weir.KeyOf("/a/b", "ann"), ""},
		{"no names", nil, map[string]weirgrpc.Segment{"key": weirgrpc.Method}, weir.KeyOf("/a/b"), ""},
		{"empty names", []string{}, nil, weir.Key{}, "there are 0 names"},
		{"too many names", make([]string, weir.MaxSegments+1), two, weir.Key{}, "there are 9 names"},
		{"a name twice", []string{"who", "who"}, two, weir.Key{}, `the name "who" is given twice`},
		{"a missing segment", []string{"who", "tenant"}, two, weir.Key{}, `the segment "tenant" is missing or nil`},
		{"a nil segment", []string{"who"}, map[string]weirgrpc.Segment{"who": nil}, weir.Key{}, `the segment "who" is missing or nil`},
		{"a segment too many", []string{"who"}, two, weir.Key{}, `the policy has no segment "method"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request, err := weirgrpc.ByName(tt.names, tt.segments)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || request != nil {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if req, err := request(t.Context(), "/a/b"); err != nil || req != (weir.Request{Key: tt.want}) {
				t.Errorf("got %+v, %v, want %v", req, err, tt.want)
			}
		})
	}
}

// By makes no key with an empty segment, and passes on the error of a segment.
func TestBy(t *testing.T) {
	fails := func(context.Context, string) (string, error) { return "a", context.Canceled }
	for want, segment := range map[error]weirgrpc.Segment{weirgrpc.ErrNoKey: weirgrpc.Text(""), context.Canceled: fails} {
		if req, err := weirgrpc.By(weirgrpc.Method, segment)(t.Context(), "/a/b"); !errors.Is(err, want) || req != (weir.Request{}) {
			t.Errorf("got %+v, %v, want %v", req, err, want)
		}
	}
}

// On a TCP connection, the segments see the peer, the metadata and the method of the
// call.
func TestSegmentsOfCall(t *testing.T) {
	var got weir.Key
	request := weirgrpc.By(weirgrpc.PeerIP, weirgrpc.Metadata("X-Key"), weirgrpc.Method)
	limit, errs := newInterceptor(t, newLimiter(t, algorithm.FixedWindow{Limit: 1, Window: time.Hour}), func(ctx context.Context, method string) (weir.Request, error) {
		req, err := request(ctx, method)
		got = req.Key
		return req, errors.Join(err, weirgrpc.ErrUnlimited)
	}, weirgrpc.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary))
	defer server.Stop()
	healthpb.RegisterHealthServer(server, new(service))
	go func() { _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	err = check(metadata.AppendToOutgoingContext(t.Context(), "X-KEY", "ann"), healthpb.NewHealthClient(conn))
	if want := weir.KeyOf("127.0.0.1", hash("ann"), "/grpc.health.v1.Health/Check"); err != nil || got != want || len(errs.all()) > 0 {
		t.Errorf("got %v, %v, errors %v, want %v", got.Segments(), err, errs.all(), want.Segments())
	}
}

// A call with bad metadata ends with INVALID_ARGUMENT, and does not reach the handler.
func TestBadMetadata(t *testing.T) {
	lim := newLimiter(t, algorithm.FixedWindow{Limit: 100, Window: time.Hour})
	limit, errs := newInterceptor(t, lim, weirgrpc.By(weirgrpc.BearerToken), weirgrpc.Options{})
	s := new(service)
	c := serve(t, s, limit)
	for _, pairs := range [][]string{
		nil,
		{"authorization", ""},
		{"authorization", "Bearer"},
		{"authorization", "Basic secret"},
		{"authorization", "Bearer secret", "authorization", "Bearer secret"},
		{"authorization", "Bearer secret, Bearer secret"},
		{"authorization-bin", "Bearer secret"},
		{"x-authorization", "Bearer secret"},
	} {
		for kind, call := range kinds {
			err := call(metadata.AppendToOutgoingContext(t.Context(), pairs...), c)
			if status.Code(err) != codes.InvalidArgument || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s with %q: got %v, want INVALID_ARGUMENT", kind, pairs, err)
			}
		}
	}
	for _, err := range errs.all() {
		if !errors.Is(err, weirgrpc.ErrNoKey) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got the error %v, want an ErrNoKey", err)
		}
	}
	if s.count() > 0 {
		t.Errorf("got %d calls of the handler, want none", s.count())
	}
}
