package gate_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/gate"
	"github.com/weir-go/weir/internal/weirtest"
)

var errNoKey = errors.New("test: no key")

var source = gate.Source{Package: "test", Field: "field", NoKey: errNoKey}

// The segments come in the order of the names, and there is one for each name.
func TestByName(t *testing.T) {
	type segments = map[string]func() string
	of := func(s string) func() string { return func() string { return s } }
	isNil := func(f func() string) bool { return f == nil }
	for _, tt := range []struct {
		names    []string
		segments segments
		want     string // the values, or the error
	}{
		{[]string{"tenant", "user", "route"}, segments{"route": of("c"), "tenant": of("a"), "user": of("b")}, "abc"},
		{[]string{"user", "tenant"}, segments{"tenant": of("a"), "user": of("b")}, "ba"},
		{nil, segments{"key": of("a")}, "a"},
		{[]string{}, nil, "there are 0 names"},
		{make([]string, 9), nil, "there are 9 names"},
		{[]string{"ip", "ip"}, segments{"ip": of("a")}, `the name "ip" is given twice`},
		{[]string{"ip", "user"}, segments{"ip": of("a")}, `the segment "user" is missing or nil`},
		{[]string{"ip"}, segments{"ip": nil}, `the segment "ip" is missing or nil`},
		{[]string{"ip"}, segments{"ip": of("a"), "id": of("b")}, `the policy has no segment "id"`},
	} {
		list, err := gate.ByName(&source, tt.names, tt.segments, isNil)
		if strings.Contains(tt.want, " ") {
			weirtest.WantError(t, err, nil, "test", "ByName: "+tt.want)
			continue
		}
		got := ""
		for _, s := range list {
			got += s()
		}
		if err != nil || got != tt.want {
			t.Errorf("%q of %q: got %q, %v, want %q", tt.names, slices.Sorted(maps.Keys(tt.segments)), got, err, tt.want)
		}
	}
}

// A secret is hashed without the space around it. All spellings of a token have the same hash. A
// field with no value or with several is an error without the value.
func TestSecret(t *testing.T) {
	secret := func(space string) func(string, []string) (string, error) {
		return func(name string, values []string) (string, error) { return source.Secret(name, values, space) }
	}
	for _, tt := range []struct {
		segment func(string, []string) (string, error)
		values  []string
		want    string // what is hashed, or an error about the field
	}{
		{secret(gate.Space), []string{"secret"}, "secret"},
		{secret(gate.Space), []string{" \tse  cret\t "}, "se  cret"},
		{secret(gate.Space), []string{"\x00é"}, "\x00é"},
		{secret(""), []string{" \x00\xff"}, " \x00\xff"},
		{secret(gate.Space), nil, "the field f is missing or empty"},
		{secret(gate.Space), []string{""}, "the field f is missing or empty"},
		{secret(gate.Space), []string{" \t "}, "the field f is missing or empty"},
		{secret(""), []string{""}, "the field f is missing or empty"},
		{secret(gate.Space), []string{"secret", "secret"}, "the field f is there 2 times: send it once"},
		{source.Bearer, []string{"Bearer secret"}, "secret"},
		{source.Bearer, []string{"  bEARER  \t secret "}, "secret"},
		{source.Bearer, []string{"Bearer"}, "the field f has no bearer token"},
		{source.Bearer, []string{"Bearer "}, "the field f has no bearer token"},
		{source.Bearer, []string{"Bearer secret b"}, "the field f has no bearer token"},
		{source.Bearer, []string{"Bearer secret\tb"}, "the field f has no bearer token"},
		{source.Bearer, []string{"Bearer secret,b"}, "the field f has no bearer token"},
		{source.Bearer, []string{"Basic secret"}, "the field f has no bearer token"},
		{source.Bearer, []string{"Bearer a", "Bearer b"}, "the field f is there 2 times: send it once"},
		{source.Bearer, nil, "the field f is missing or empty"},
	} {
		got, err := tt.segment("f", tt.values)
		if strings.HasPrefix(tt.want, "the field f") {
			if got != "" || !errors.Is(err, errNoKey) || err.Error() != "test: no key: "+tt.want {
				t.Errorf("%q: got %q, %v, want %q", tt.values, got, err, tt.want)
			}
		} else if want := fmt.Sprintf("%x", sha256.Sum256([]byte(tt.want))); got != want || err != nil {
			t.Errorf("%q: got %q, %v, want the hash of %q", tt.values, got, err, tt.want)
		}
	}
}
