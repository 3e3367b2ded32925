package weirhttp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/secret"
)

// A Segment returns the value of one segment of a key. If the request has none, it
// returns an empty string or an error that wraps [ErrNoKey]. This one returns the customer
// that another middleware has put into the context:
//
//	func customer(r *http.Request) (string, error) {
//		id, _ := r.Context().Value(customerKey{}).(string)
//		return id, nil
//	}
//
// A value can have any length. A limiter replaces a value that is longer than
// [weir.MaxSegment] by its SHA-256.
type Segment func(*http.Request) (string, error)

// By returns a RequestFunc whose key has these segments, in the order of
// [weir.Policy].Segments. A limiter of [weir.New] has one segment.
//
// Each request is rejected with status 500 if no segment is given, if one is nil, or if
// the policy has another number of segments. [ByName] reports such mistakes at once.
func By(segments ...Segment) RequestFunc {
	segments = slices.Clone(segments)
	var misuse error
	switch {
	case len(segments) == 0 || len(segments) > weir.MaxSegments:
		misuse = fmt.Errorf("weirhttp: By: there are %d segments: there must be from 1 to %d, as many as the policy has", len(segments), weir.MaxSegments)
	case slices.ContainsFunc(segments, func(s Segment) bool { return s == nil }):
		misuse = errors.New("weirhttp: By: a segment is nil: pass a function, for example weirhttp.RemoteIP")
	}
	return func(r *http.Request) (weir.Request, error) {
		if misuse != nil {
			return weir.Request{}, misuse
		}
		var values [weir.MaxSegments]string
		for i, segment := range segments {
			value, err := segment(r)
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

// ByName returns a RequestFunc for a limiter whose [weir.Policy].Segments are names. There
// must be one segment for each name. The key has the segments in the order of names. If
// names is nil, the only name is "key".
//
// If a name has no segment, or a segment is not in names, ByName returns an error.
func ByName(names []string, segments map[string]Segment) (RequestFunc, error) {
	if names == nil {
		names = []string{"key"}
	}
	if len(names) == 0 || len(names) > weir.MaxSegments {
		return nil, fmt.Errorf("weirhttp: ByName: there are %d names: pass Policy.Segments, which has from 1 to %d", len(names), weir.MaxSegments)
	}
	ordered := make([]Segment, len(names))
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("weirhttp: ByName: the name %q is there twice: name each segment once", name)
		}
		if ordered[i] = segments[name]; ordered[i] == nil {
			return nil, fmt.Errorf("weirhttp: ByName: the segment %q is missing or nil: the policy's segments are %q", name, names)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(segments)) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("weirhttp: ByName: the policy has no segment %q: its segments are %q", name, names)
		}
	}
	return By(ordered...), nil
}

// Header returns a segment whose value is the SHA-256, in hexadecimal, of the header field
// with that name, for example of an API key. The store never sees the field itself.
//
// The error is [ErrNoKey] if the request has no such field, if the field is empty, or if
// the request has the field more than once. If it were not an error, the handler could
// read one of the fields, and the limiter another. For the field Authorization, use
// [BearerToken]. The header of a request to a server has no field Host: use a function that
// returns r.Host.
func Header(name string) Segment {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		value, err := field(r, name)
		if err != nil {
			return "", err
		}
		return secret.Hash(value), nil
	}
}

// BearerToken is a [Segment]. Its value is the SHA-256, in hexadecimal, of the token in the
// field Authorization: Bearer. All spellings of the same token have the same value, for
// example with "bearer" in lower case.
//
// The error is [ErrNoKey] if the request does not have exactly one such field and token.
func BearerToken(r *http.Request) (string, error) {
	value, err := field(r, "Authorization")
	if err != nil {
		return "", err
	}
	token, ok := secret.Bearer(value)
	if !ok {
		return "", noKey("the field Authorization has no bearer token")
	}
	return secret.Hash(token), nil
}

// errTwice is a part of the ErrNoKey of a header field with several values.
var errTwice = errors.New("send it once")

// field returns the only value of a header field. It is not empty.
func field(r *http.Request, name string) (string, error) {
	switch values := r.Header[name]; {
	case len(values) > 1:
		return "", fmt.Errorf("%w: the field %s is there %d times: %w", ErrNoKey, name, len(values), errTwice)
	case len(values) == 1 && strings.Trim(values[0], " \t") != "":
		return strings.Trim(values[0], " \t"), nil
	}
	return "", noKey("the field %s is missing or empty", name)
}

// Pattern is a [Segment]. Its value is the pattern of the route, for example
// "GET /users/{id}", so that all users share the limit of the route.
//
// A [http.ServeMux] sets the pattern when it has chosen the handler. So the middleware must
// be between the mux and the handler: mux.Handle(pattern, limit(handler)). Otherwise there
// is no pattern, and each request is rejected with status 500.
func Pattern(r *http.Request) (string, error) {
	if r.Pattern == "" {
		return "", errors.New("weirhttp: Pattern: the request has no pattern: limit the handler of a route, mux.Handle(pattern, limit(handler)), and not the mux")
	}
	return r.Pattern, nil
}

// Text returns a segment with the same value for all requests, for example the name of a
// route, or "anonymous" for requests without another key.
func Text(value string) Segment {
	return func(*http.Request) (string, error) { return value, nil }
}

// FirstOf returns a segment with the value of the first of segments that the request has a
// value for. Use it for requests without an API key:
//
//	weirhttp.FirstOf(weirhttp.Header("X-API-Key"), weirhttp.RemoteIP)
//
// A client that can choose between the segments has a separate limit for each of them. So
// check API keys in front of the middleware, and reject unknown ones there. If no segment
// has a value, the error is [ErrNoKey]. If a segment returns another error, that error is
// returned at once. The same holds for the ErrNoKey of a header field that the request has
// more than once: the handler could read it.
func FirstOf(segments ...Segment) Segment {
	segments = slices.Clone(segments)
	return func(r *http.Request) (string, error) {
		last := errNoSegments
		for _, segment := range segments {
			if segment == nil {
				return "", errors.New("weirhttp: FirstOf: a segment is nil: pass a function, for example weirhttp.RemoteIP")
			}
			value, err := segment(r)
			switch {
			case err == nil && value != "":
				return value, nil
			case err == nil:
				err = noKey("no segment of FirstOf has a value")
			case !errors.Is(err, ErrNoKey), errors.Is(err, errTwice):
				return "", err
			}
			last = err
		}
		return "", last
	}
}

var errNoSegments = errors.New("weirhttp: FirstOf has no segments: pass at least one, for example weirhttp.RemoteIP")

// noKey returns an ErrNoKey with the reason.
func noKey(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNoKey, fmt.Sprintf(format, args...))
}
