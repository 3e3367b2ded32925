package weirgrpc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/secret"
)

// ipv6Bits is the length of the network that one IPv6 user usually has.
const ipv6Bits = 64

// A Segment returns the value of one segment of a key. If the call has none, it returns an
// empty string or an error that wraps [ErrNoKey].
//
// A value can have any length. A limiter replaces a value that is longer than
// [weir.MaxSegment] by its SHA-256.
type Segment func(ctx context.Context, method string) (string, error)

// By returns a RequestFunc whose key has these segments, in the order of
// [weir.Policy].Segments. A limiter of [weir.New] has one segment.
//
// If no segment is given, if there are more than [weir.MaxSegments], or if one is nil, By
// returns nil. The constructors then return an error. If the number of segments is not that of
// the policy, each call ends with INTERNAL: [ByName] reports this mistake at once.
func By(segments ...Segment) RequestFunc {
	segments = slices.Clone(segments)
	if len(segments) == 0 || len(segments) > weir.MaxSegments || hasNil(segments) {
		return nil
	}
	return func(ctx context.Context, method string) (weir.Request, error) {
		var values [weir.MaxSegments]string
		for i, segment := range segments {
			value, err := segment(ctx, method)
			if err != nil {
				return weir.Request{}, err
			}
			if value == "" {
				return weir.Request{}, noKey("segment %d of the key is empty", i+1)
			}
			values[i] = value
		}
		return weir.Request{Key: weir.KeyOf(values[:len(segments)]...)}, nil
	}
}

func hasNil(segments []Segment) bool {
	return slices.ContainsFunc(segments, func(s Segment) bool { return s == nil })
}

// ByName returns a RequestFunc for a limiter whose [weir.Policy].Segments are names. It needs
// one segment for each name, and brings them into the order of names. If names is nil, the only
// name is "key".
//
// The error says what is wrong if a name has no segment, or a segment no name.
func ByName(names []string, segments map[string]Segment) (RequestFunc, error) {
	if names == nil {
		names = []string{"key"}
	}
	if len(names) == 0 || len(names) > weir.MaxSegments {
		return nil, fmt.Errorf("weirgrpc: ByName: there are %d names: pass Policy.Segments, which has from 1 to %d", len(names), weir.MaxSegments)
	}
	var ordered []Segment
	for i, name := range names {
		switch {
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("weirgrpc: ByName: the name %q is given twice: name each segment once", name)
		case segments[name] == nil:
			return nil, fmt.Errorf("weirgrpc: ByName: the segment %q is missing or nil: the policy's segments are %q", name, names)
		}
		ordered = append(ordered, segments[name])
	}
	for _, name := range slices.Sorted(maps.Keys(segments)) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("weirgrpc: ByName: the policy has no segment %q: its segments are %q", name, names)
		}
	}
	return By(ordered...), nil
}

// Leased returns a RequestFunc that adds a random ID to the requests of request, for a limiter
// with an algorithm.Concurrency. A request that already has an ID keeps it: the ID must then be
// another one for each call. If request is nil, Leased returns nil.
func Leased(request RequestFunc) RequestFunc {
	if request == nil {
		return nil
	}
	return func(ctx context.Context, method string) (weir.Request, error) {
		req, err := request(ctx, method)
		if err == nil && req.ID == "" {
			req.ID = rand.Text()
		}
		return req, err
	}
}

// Method is a [Segment]. Its value is the full method, for example
// "/grpc.health.v1.Health/Check", so that all callers share the limit of the method. With a
// grpc.UnknownServiceHandler, clients can choose the method.
func Method(_ context.Context, method string) (string, error) { return method, nil }

// Text returns a segment with the same value for all calls, for example the name of a service,
// or "anonymous" for calls without another key.
func Text(value string) Segment {
	return func(context.Context, string) (string, error) { return value, nil }
}

// PeerIP is a [Segment] of a server. Its value is the address of the connection, without the
// port: of an IPv6 address, the /64 network. If the server is behind a proxy, this is the
// address of the proxy.
//
// An IPv4 address in an IPv6 address, ::ffff:192.0.2.1, is the IPv4 address. The error is
// [ErrNoKey] if the connection has no IP address, for example on a Unix socket.
func PeerIP(ctx context.Context, _ string) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", noKey("the call has no peer")
	}
	var addr netip.Addr
	if tcp, ok := p.Addr.(*net.TCPAddr); ok {
		addr = tcp.AddrPort().Addr()
	} else if port, err := netip.ParseAddrPort(p.Addr.String()); err == nil {
		addr = port.Addr()
	}
	addr = addr.Unmap()
	switch {
	case !addr.IsValid() || addr.IsUnspecified():
		return "", noKey("the peer's address %.40q is no IP address", p.Addr)
	case addr.Is4():
		return addr.String(), nil
	}
	network, err := addr.Prefix(ipv6Bits) // without the zone
	if err != nil {                       // an IPv6 address has more bits
		return "", err
	}
	return network.String(), nil
}

// Metadata returns a segment of a server whose value is the SHA-256, in hexadecimal, of the
// incoming metadata with that key, for example of an API key. The store never sees the metadata
// itself. Upper and lower case of the key are the same.
//
// The error is [ErrNoKey] if the call has no such metadata, if it is empty, or if the call has it
// more than once: the program could read another one than the limiter. Spaces around the value
// do not count, except if the key ends in "-bin".
//
// Metadata returns nil if metadata cannot have that key: it must consist of letters, digits and
// the characters - _ and . and a first colon is allowed, for example ":authority".
func Metadata(key string) Segment {
	key = strings.ToLower(key)
	name := strings.TrimPrefix(key, ":")
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return nil
	}
	return func(ctx context.Context, _ string) (string, error) {
		value, err := incoming(ctx, key)
		if err != nil {
			return "", err
		}
		return secret.Hash(value), nil
	}
}

// BearerToken is a [Segment] of a server. Its value is the SHA-256, in hexadecimal, of the token
// in the metadata authorization: Bearer. All spellings of the same token have the same value,
// for example with "bearer" in lower case.
//
// The error is [ErrNoKey] if the call does not have exactly one such token.
func BearerToken(ctx context.Context, _ string) (string, error) {
	value, err := incoming(ctx, "authorization")
	if err != nil {
		return "", err
	}
	token, ok := secret.Bearer(value)
	if !ok {
		return "", noKey("the metadata authorization has no bearer token")
	}
	return secret.Hash(token), nil
}

// errTwice is a part of the ErrNoKey of metadata with several values.
var errTwice = errors.New("send it once")

// incoming returns the only value of the incoming metadata with that key. It is not empty.
func incoming(ctx context.Context, key string) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, key)
	if len(values) > 1 {
		return "", fmt.Errorf("%w: the metadata %s is there %d times: %w", ErrNoKey, key, len(values), errTwice)
	}
	if len(values) == 1 {
		value := values[0]
		if !strings.HasSuffix(key, "-bin") {
			value = strings.Trim(value, " \t")
		}
		if value != "" {
			return value, nil
		}
	}
	return "", noKey("the metadata %s is missing or empty", key)
}

// FirstOf returns a segment with the value of the first of segments that the call has a value
// for. Use it for calls without an API key:
//
//	weirgrpc.FirstOf(weirgrpc.Metadata("x-api-key"), weirgrpc.PeerIP)
//
// A client that can choose between the segments has a limit under each of them. So reject an
// API key that does not exist before. The error is [ErrNoKey] if no segment has a value.
// Another error of a segment is returned at once. The same holds for the ErrNoKey of metadata
// that the call has more than once: the program could read it. If no segment is given, or if
// one is nil, FirstOf returns nil.
func FirstOf(segments ...Segment) Segment {
	segments = slices.Clone(segments)
	if len(segments) == 0 || hasNil(segments) {
		return nil
	}
	return func(ctx context.Context, method string) (value string, err error) {
		for _, segment := range segments {
			value, err = segment(ctx, method)
			if err == nil && value == "" {
				err = noKey("no segment of FirstOf has a value")
			}
			if err == nil || !errors.Is(err, ErrNoKey) || errors.Is(err, errTwice) {
				break
			}
		}
		return value, err
	}
}

// noKey returns an ErrNoKey with the reason.
func noKey(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNoKey, fmt.Sprintf(format, args...))
}
