package weirgrpc

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
)

// ipv6Bits is the length of the network that one IPv6 user usually has.
const ipv6Bits = 64

var source = gate.Source{Package: "weirgrpc", Field: "metadata", NoKey: ErrNoKey}

// A Segment returns the value of one segment of a key. If the call has none, it returns
// an empty string or an error that wraps [ErrNoKey].
//
// A value can have any length. A limiter replaces a value that is longer than
// [weir.MaxSegment] by its SHA-256.
type Segment func(ctx context.Context, method string) (string, error)

// By returns a [RequestFunc] whose key has these segments, in the order of
// [weir.Policy].Segments. A limiter of [weir.New] has one segment.
//
// By returns nil if no segment is given, if there are more than [weir.MaxSegments], or if
// one is nil. The constructors then return an error. If the policy has another number of
// segments, each call ends with INTERNAL: [ByName] reports this mistake at once.
func By(segments ...Segment) RequestFunc {
	segments = slices.Clone(segments)
	if len(segments) == 0 || len(segments) > weir.MaxSegments || slices.ContainsFunc(segments, isNil) {
		return nil
	}
	return func(ctx context.Context, method string) (weir.Request, error) {
		return source.Request(len(segments), func(i int) (string, error) { return segments[i](ctx, method) })
	}
}

func isNil(s Segment) bool { return s == nil }

// ByName returns a RequestFunc for a limiter whose [weir.Policy].Segments are names. It
// needs one segment for each name, and brings them into the order of names. If names is
// nil, the only name is "key".
//
// The error says what is wrong if a name has no segment, or a segment no name.
func ByName(names []string, segments map[string]Segment) (RequestFunc, error) {
	ordered, err := gate.ByName(&source, names, segments, isNil)
	if err != nil {
		return nil, err
	}
	return By(ordered...), nil
}

// WithCosts returns a RequestFunc that sets the Costs of the requests of request, for a
// limiter in which a rule counts a unit:
//
//	weirgrpc.WithCosts(weirgrpc.By(customer), func(ctx context.Context, _ string) (weir.Costs, error) {
//		return weir.CostsOf(map[string]int64{"input": tokens(ctx), "output": 4000}), nil
//	})
//
// It does not see the message of the call: let an earlier interceptor put what the
// amounts depend on into the context. After an error of costs, the call is treated as
// after an error of a RequestFunc. The constructors cannot see whether a RequestFunc sets
// Costs, so without them, each call ends with INTERNAL. Do not let the client choose an
// amount: a lower one than it uses allows more, and a negative one is an error.
//
// If request or costs is nil, WithCosts returns nil.
func WithCosts(request RequestFunc, costs func(ctx context.Context, method string) (weir.Costs, error)) RequestFunc {
	if request == nil || costs == nil {
		return nil
	}
	return func(ctx context.Context, method string) (weir.Request, error) {
		req, err := request(ctx, method)
		if err == nil {
			req.Costs, err = costs(ctx, method)
		}
		return req, err
	}
}

// Method is a [Segment]. Its value is the full method, for example
// "/grpc.health.v1.Health/Check", so that all callers share the limit of the method. With
// a grpc.UnknownServiceHandler, clients can choose the method.
func Method(_ context.Context, method string) (string, error) { return method, nil }

// Text returns a segment with the same value for all calls, for example the name of a
// service, or "anonymous" for calls without another key.
func Text(value string) Segment {
	return func(context.Context, string) (string, error) { return value, nil }
}

// PeerIP is a [Segment] of a server. Its value is the address of the connection without
// the port, and for an IPv6 address its /64 network. Behind a proxy, that is the address
// of the proxy.
//
// The IPv6 form of an IPv4 address, for example ::ffff:192.0.2.1 or, behind a NAT64,
// 64:ff9b::192.0.2.1, counts as the IPv4 address. The error is [ErrNoKey] if the
// connection has no IP address, for example on a Unix socket.
func PeerIP(ctx context.Context, _ string) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", source.Missing("the call has no peer")
	}
	var addr netip.Addr
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		addr = tcp.AddrPort().Addr()
	} else if port, err := netip.ParseAddrPort(p.Addr.String()); err == nil {
		addr = port.Addr()
	}
	addr = gate.Unmap(addr)
	if !addr.IsValid() || addr.IsUnspecified() {
		return "", source.Missing("the peer's address %.40q is no IP address", p.Addr)
	}
	if network, err := addr.Prefix(ipv6Bits); err == nil { // without the zone
		return network.String(), nil
	}
	return addr.String(), nil // an IPv4 address has fewer bits
}

// Metadata returns a segment of a server whose value is the SHA-256, in hexadecimal, of
// the incoming metadata with that key, for example of an API key. The store never sees
// the metadata, but anyone who reads the store can guess a value with few possibilities:
// see [weir.Policy].Secret. Upper and lower case of the key are the same.
//
// The error is [ErrNoKey] if the call has no such metadata or an empty value, or has it
// more than once, because the program and the limiter could then read different ones.
// Spaces around the value do not count, unless the key ends in "-bin".
//
// Metadata returns nil if metadata cannot have that key. A key consists of letters,
// digits and the characters - _ and . and can begin with a colon, for example
// ":authority".
func Metadata(key string) Segment {
	key = strings.ToLower(key)
	name := strings.TrimPrefix(key, ":")
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return nil
	}
	space := gate.Space
	if strings.HasSuffix(key, "-bin") {
		space = ""
	}
	return func(ctx context.Context, _ string) (string, error) {
		return source.Secret(key, metadata.ValueFromIncomingContext(ctx, key), space)
	}
}

// BearerToken is a [Segment] of a server. Its value is the SHA-256, in hexadecimal, of
// the token in the metadata authorization: Bearer. All spellings of the same token have
// the same value, for example with "bearer" in lower case.
//
// The error is [ErrNoKey] if the call does not have exactly one such token.
func BearerToken(ctx context.Context, _ string) (string, error) {
	return source.Bearer("authorization", metadata.ValueFromIncomingContext(ctx, "authorization"))
}

// FirstOf returns a segment with the value of the first of segments that the call has a
// value for, for example for calls without an API key:
//
//	weirgrpc.FirstOf(weirgrpc.Metadata("x-api-key"), weirgrpc.PeerIP)
//
// A client that can choose between the segments has a limit under each of them. So reject
// unknown API keys in an earlier interceptor.
//
// If no segment has a value, the error is [ErrNoKey]. Another error is returned at once.
// So is an ErrNoKey for metadata that the call has more than once, because the program
// could read it. If no segment is given, or one is nil, FirstOf returns nil.
func FirstOf(segments ...Segment) Segment {
	segments = slices.Clone(segments)
	if len(segments) == 0 || slices.ContainsFunc(segments, isNil) {
		return nil
	}
	return func(ctx context.Context, method string) (string, error) {
		return source.First(len(segments), func(i int) (string, error) { return segments[i](ctx, method) })
	}
}
