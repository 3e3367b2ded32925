package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-go/weir"
)

// A Source is what a package reads segments from.
type Source struct {
	Package string // its name
	Field   string // what it calls a named value of a request
	NoKey   error  // its ErrNoKey
}

// Missing returns a NoKey with the reason.
func (s *Source) Missing(format string, args ...any) error {
	return fmt.Errorf("%w: %s", s.NoKey, fmt.Sprintf(format, args...))
}

// Explain returns the error err of d for the request r of a RequestFunc. If the key has an empty
// segment, the error is a NoKey too. If the request has no Costs, it says what adds them.
func (s *Source) Explain(d weir.Decider, r *weir.Request, err error) error {
	switch {
	case errors.Is(err, weir.ErrInvalidKey) && slices.Contains(r.Key.Segments(), ""):
		return fmt.Errorf("%w: %w", s.NoKey, err)
	case errors.Is(err, weir.ErrInvalidCost) && r.Costs == (weir.Costs{}):
		lim, _ := weir.Find[*weir.Limiter](d)
		if slices.ContainsFunc(lim.Rules(), func(rule weir.RuleInfo) bool { return rule.Unit != "" && !rule.Shadow }) {
			return fmt.Errorf("%s: the request has no Costs: use WithCosts: %w", s.Package, err)
		}
	}
	return err
}

// Request returns a request whose key has the n segments that value returns.
func (s *Source) Request(n int, value func(i int) (string, error)) (weir.Request, error) {
	var values [weir.MaxSegments]string
	for i := range n {
		v, err := value(i)
		if err != nil {
			return weir.Request{}, err
		}
		if v == "" {
			return weir.Request{}, s.Missing("segment %d of the key is empty", i+1)
		}
		values[i] = v
	}
	return weir.Request{Key: weir.KeyOf(values[:n]...)}, nil
}

// errTwice is a part of the NoKey of a field with several values.
var errTwice = errors.New("send it once")

// First returns the first of the n segments that has a value. The error of a field with several
// values ends the search, because the handler could read one of them.
func (s *Source) First(n int, value func(i int) (string, error)) (v string, err error) {
	for i := range n {
		v, err = value(i)
		if err == nil && v == "" {
			err = s.Missing("no segment of FirstOf has a value")
		}
		if err == nil || !errors.Is(err, s.NoKey) || errors.Is(err, errTwice) {
			break
		}
	}
	return v, err
}

// ByName returns the segments in the order of names. No names means the name of the key of
// weir.New.
func ByName[S any](s *Source, names []string, segments map[string]S, isNil func(S) bool) ([]S, error) {
	if names == nil {
		names = []string{"key"}
	}
	if len(names) == 0 || len(names) > weir.MaxSegments {
		return nil, fmt.Errorf("%s: ByName: there are %d names: pass Policy.Segments, which has from 1 to %d", s.Package, len(names), weir.MaxSegments)
	}
	var ordered []S
	for i, name := range names {
		switch {
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("%s: ByName: the name %q is given twice: name each segment once", s.Package, name)
		case isNil(segments[name]):
			return nil, fmt.Errorf("%s: ByName: the segment %q is missing or nil: the policy's segments are %q", s.Package, name, names)
		}
		ordered = append(ordered, segments[name])
	}
	for _, name := range slices.Sorted(maps.Keys(segments)) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s: ByName: the policy has no segment %q: its segments are %q", s.Package, name, names)
		}
	}
	return ordered, nil
}

// Secret returns the hash of the only value of a field, without the characters of space around it.
func (s *Source) Secret(name string, values []string, space string) (string, error) {
	value, err := s.only(name, values, space)
	if err != nil {
		return "", err
	}
	return hash(value), nil
}

// Bearer returns the hash of the bearer token in the field authorization. The scheme can be in any
// case.
func (s *Source) Bearer(name string, values []string) (string, error) {
	value, err := s.only(name, values, Space)
	if err != nil {
		return "", err
	}
	scheme, token, _ := strings.Cut(value, " ")
	token = strings.Trim(token, Space)
	if !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,") {
		return "", s.Missing("the %s %s has no bearer token", s.Field, name)
	}
	return hash(token), nil
}

// nat64 is the network whose addresses end in an IPv4 address: see section 2.1 of RFC 6052.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Unmap returns the IPv4 address in the IPv6 address addr, if there is one, and otherwise addr. A
// translator gives the addresses of nat64 to all IPv4 clients, which are not one user.
func Unmap(addr netip.Addr) netip.Addr {
	if nat64.Contains(addr.WithZone("")) {
		bytes := addr.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr.Unmap()
}

// Space is the white space around a value.
const Space = " \t"

// only returns the only value of a field. It is not empty.
func (s *Source) only(name string, values []string, space string) (string, error) {
	if len(values) > 1 {
		return "", fmt.Errorf("%w: the %s %s is there %d times: %w", s.NoKey, s.Field, name, len(values), errTwice)
	}
	if len(values) == 1 {
		if value := strings.Trim(values[0], space); value != "" {
			return value, nil
		}
	}
	return "", s.Missing("the %s %s is missing or empty", s.Field, name)
}

// hash returns the SHA-256 of secret in hexadecimal.
func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}
