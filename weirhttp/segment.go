package weirhttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/gate"
)

var source = gate.Source{Package: "weirhttp", Field: "field", NoKey: ErrNoKey}

// A Segment returns the value of one segment of a key. If the request has none, it
// returns an empty string or an error that wraps [ErrNoKey]. This one returns the
// customer that another middleware has put into the context:
//
//	func customer(r *http.Request) (string, error) {
//		id, _ := r.Context().Value(customerKey{}).(string)
//		return id, nil
//	}
//
// A value can have any length. A limiter replaces a value that is longer than
// [weir.MaxSegment] by its SHA-256.
type Segment func(*http.Request) (string, error)

// By returns a [RequestFunc] whose key has these segments, in the order of
// [weir.Policy].Segments. A limiter of [weir.New] has one segment. If none is given, one
// is nil, or the policy has another number, each request is rejected with status 500:
// [ByName] reports such mistakes at once.
func By(segments ...Segment) RequestFunc {
	segments = slices.Clone(segments)
	var misuse error
	switch {
	case len(segments) == 0 || len(segments) > weir.MaxSegments:
		misuse = fmt.Errorf("weirhttp: By: there are %d segments: there must be from 1 to %d, as many as the policy has", len(segments), weir.MaxSegments)
	case slices.ContainsFunc(segments, isNil):
		misuse = errors.New("weirhttp: By: a segment is nil: pass a function, for example weirhttp.RemoteIP")
	}
	return func(r *http.Request) (weir.Request, error) {
		if misuse != nil {
			return weir.Request{}, misuse
		}
		return source.Request(len(segments), func(i int) (string, error) { return segments[i](r) })
	}
}

// ByName returns a RequestFunc for a limiter whose [weir.Policy].Segments are names.
// There must be one segment for each name. The key has the segments in the order of
// names. If names is nil, the only name is "key".
//
// If a name has no segment, or a segment is not in names, ByName returns an error.
func ByName(names []string, segments map[string]Segment) (RequestFunc, error) {
	ordered, err := gate.ByName(&source, names, segments, isNil)
	if err != nil {
		return nil, err
	}
	return By(ordered...), nil
}

func isNil(s Segment) bool { return s == nil }

// WithCosts returns a RequestFunc that sets the Costs of the requests of request, for a
// limiter in which a rule counts a unit:
//
//	weirhttp.WithCosts(weirhttp.By(customer), func(r *http.Request) (weir.Costs, error) {
//		return weir.CostsOf(map[string]int64{"input": tokens(r), "output": 4000}), nil
//	})
//
// After an error of costs, the HTTP request is treated as after an error of a
// RequestFunc. New cannot see whether a RequestFunc sets Costs, so without them, each
// request is rejected with status 500. Do not let the client choose an amount: a lower
// one than it uses allows more, and a negative one is an error.
//
// If request or costs is nil, WithCosts returns nil.
func WithCosts(request RequestFunc, costs func(*http.Request) (weir.Costs, error)) RequestFunc {
	if request == nil || costs == nil {
		return nil
	}
	return func(r *http.Request) (weir.Request, error) {
		req, err := request(r)
		if err == nil {
			req.Costs, err = costs(r)
		}
		return req, err
	}
}

// Header returns a segment whose value is the SHA-256, in hexadecimal, of the header
// field with that name, for example of an API key. The store never sees the field, but
// anyone who reads the store can guess a value with few possibilities: see
// [weir.Policy].Secret.
//
// The error is [ErrNoKey] if the request has no such field or an empty one, or has it
// more than once, because the handler could then read one field and the limiter another.
// For the field Authorization, use [BearerToken]. A request to a server has no field
// Host: use a function that returns r.Host.
func Header(name string) Segment {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		return source.Secret(name, r.Header[name], gate.Space)
	}
}

// BearerToken is a [Segment]. Its value is the SHA-256, in hexadecimal, of the token in
// the field Authorization: Bearer. All spellings of the same token have the same value,
// for example with "bearer" in lower case.
//
// The error is [ErrNoKey] if the request does not have exactly one such field and token.
func BearerToken(r *http.Request) (string, error) {
	return source.Bearer("Authorization", r.Header["Authorization"])
}

// Pattern is a [Segment]. Its value is the pattern of the route, for example "GET
// /users/{id}", so that all users share the limit of the route.
//
// The middleware must be between the mux and the handler, as in mux.Handle(pattern,
// limit(handler)), because an [http.ServeMux] sets the pattern when it has chosen the
// handler. Otherwise each request is rejected with status 500.
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

// FirstOf returns a segment with the value of the first of segments that the request has
// a value for, for example for requests without an API key:
//
//	weirhttp.FirstOf(weirhttp.Header("X-API-Key"), weirhttp.RemoteIP)
//
// A client that can choose between the segments has a separate limit for each of them. So
// reject unknown API keys in front of the middleware.
//
// If no segment has a value, the error is [ErrNoKey]. Another error is returned at once.
// So is an ErrNoKey for a header field that the request has more than once, because the
// handler could read it.
func FirstOf(segments ...Segment) Segment {
	segments = slices.Clone(segments)
	return func(r *http.Request) (string, error) {
		if len(segments) == 0 {
			return "", errors.New("weirhttp: FirstOf has no segments: pass at least one, for example weirhttp.RemoteIP")
		}
		return source.First(len(segments), func(i int) (string, error) {
			if segments[i] == nil {
				return "", errors.New("weirhttp: FirstOf: a segment is nil: pass a function, for example weirhttp.RemoteIP")
			}
			return segments[i](r)
		})
	}
}
