package weir

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

const (
	// MaxSegments is the most segments of a key.
	MaxSegments = 8

	// MaxSegment is the length, in bytes, of the longest segment that stands in a
	// store's key as it is. A longer one is replaced by "%sha256=" and its SHA-256
	// in hexadecimal. Names of limiters and rules have at most that length.
	MaxSegment = 128
)

// DefaultPrefix begins the keys of a limiter that has no other prefix.
const DefaultPrefix = "weir"

// A Key identifies the caller being limited. It has one segment for each of
// [Policy].Segments, for example an IP address and an account. Keys are comparable.
// Make one with [KeyOf]: the zero Key is invalid.
type Key struct {
	segments [MaxSegments]string
	count    int // as given: it can be more than MaxSegments
}

// KeyOf returns the key with these segments. It does not check them: a request with
// an invalid key returns [ErrInvalidKey].
func KeyOf(segments ...string) Key {
	var k Key
	k.set(segments)
	return k
}

func (k *Key) set(segments []string) {
	k.count = copy(k.segments[:], segments) + max(len(segments)-MaxSegments, 0)
}

// A keySpace turns keys into the keys of a store:
//
//	prefix:name:{shared segments}:rule.tag:other segments
type keySpace struct {
	head     string // prefix, name, and an opening brace
	segments []string
	secret   segmentSet
	shared   []int // the segments that all rules are by, ascending
	rules    []ruleKey
}

type ruleKey struct {
	tail  string // a closing brace, the rule's name and the algorithm's tag
	by    segmentSet
	other []int // the segments of by that not all rules share, ascending
}

// A segmentSet has one bit for each segment.
type segmentSet uint8

func (s segmentSet) has(n int) bool { return s&(1<<n) != 0 }

func (s segmentSet) list() []int {
	var list []int
	for n := range MaxSegments {
		if s.has(n) {
			list = append(list, n)
		}
	}
	return list
}

// newKeySpace returns the key space of p, so far without rules.
func newKeySpace(prefix string, p *Policy) (*keySpace, error) {
	ks := &keySpace{segments: []string{"key"}}
	if p.Segments != nil {
		ks.segments = slices.Clone(p.Segments)
	}
	switch {
	case p.Name == "":
		return nil, fail(ErrInvalidRule, "the limiter has no name: its name is part of every key, so that two limiters never share state by accident")
	case len(p.Name) > MaxSegment:
		return nil, fail(ErrInvalidRule, "the limiter's name has %d bytes: it must have at most %d", len(p.Name), MaxSegment)
	case len(ks.segments) < 1 || len(ks.segments) > MaxSegments:
		return nil, fail(ErrInvalidRule, "Policy.Segments has %d names: it must have from 1 to %d, or be nil for one segment", len(ks.segments), MaxSegments)
	}
	for i, name := range ks.segments {
		switch {
		case name == "":
			return nil, fail(ErrInvalidRule, "Policy.Segments: name %d is empty", i)
		case slices.Contains(ks.segments[:i], name):
			return nil, fail(ErrInvalidRule, "Policy.Segments: two segments are named %q", name)
		}
	}
	var err error
	if ks.secret, err = ks.set("Policy.Secret", p.Secret); err != nil {
		return nil, err
	}
	b := append(appendEscaped(nil, prefix), ':')
	ks.head = string(append(appendEscaped(b, p.Name), ":{"...))
	return ks, nil
}

// set returns the set of the segments with these names. The field is for the error.
func (ks *keySpace) set(field string, names []string) (segmentSet, error) {
	var set segmentSet
	for _, name := range names {
		n := slices.Index(ks.segments, name)
		switch {
		case n < 0:
			return 0, fail(ErrInvalidRule, "%s names the segment %q: the segments are %s", field, name, ks.names())
		case set.has(n):
			return 0, fail(ErrInvalidRule, "%s names the segment %q twice", field, name)
		}
		set |= 1 << n
	}
	return set, nil
}

// by returns the set of Rule.By of the rule that label names.
func (ks *keySpace) by(label string, names []string) (segmentSet, error) {
	switch {
	case names == nil:
		return 1<<len(ks.segments) - 1, nil
	case len(names) == 0:
		return 0, fail(ErrInvalidRule, "%s: By names no segment: name segments, or leave it nil for all", label)
	}
	return ks.set(label+": By", names)
}

// addRules adds the rules with these names, algorithms' tags, and segments.
func (ks *keySpace) addRules(rules []rule, by []segmentSet) error {
	all := ^segmentSet(0)
	for _, set := range by {
		all &= set
	}
	if all == 0 {
		return fail(ErrInvalidRule, "the rules have no segment in common: "+
			"all keys of a decision must lie in one cluster slot, which the common segments choose: "+
			"add a segment that every rule is by, for example an action or a tenant, or make two limiters")
	}
	ks.shared = all.list()
	for i, r := range rules {
		tail := []byte("}:")
		if r.given != "" {
			tail = append(appendEscaped(tail, r.given), '.')
		}
		tail = append(tail, r.limit.Kind.Tag[:]...)
		ks.rules = append(ks.rules, ruleKey{tail: string(tail), by: by[i], other: (by[i] &^ all).list()})
	}
	return nil
}

// names lists the names of the segments.
func (ks *keySpace) names() string { return `"` + strings.Join(ks.segments, `", "`) + `"` }

// full reports whether all segments identify rule n.
func (ks *keySpace) full(n int) bool { return ks.rules[n].by == 1<<len(ks.segments)-1 }

// check returns an ErrInvalidKey unless k is a key of this space.
func (ks *keySpace) check(k *Key) error {
	if k.count != len(ks.segments) {
		return fail(ErrInvalidKey, "the key has %d segments: it must have %d: %s", k.count, len(ks.segments), ks.names())
	}
	for i, name := range ks.segments {
		if k.segments[i] == "" {
			return fail(ErrInvalidKey, "the key's segment %q is empty", name)
		}
	}
	return nil
}

// appendHead appends what the keys of all rules begin with.
func (ks *keySpace) appendHead(b []byte, k *Key) []byte {
	b = append(b, ks.head...)
	for i, n := range ks.shared {
		if i > 0 {
			b = append(b, ':')
		}
		b = ks.appendSegment(b, n, k)
	}
	return b
}

// appendTail appends the rest of the key of rule n.
func (ks *keySpace) appendTail(b []byte, n int, k *Key) []byte {
	rk := &ks.rules[n]
	b = append(b, rk.tail...)
	for _, n := range rk.other {
		b = ks.appendSegment(append(b, ':'), n, k)
	}
	return b
}

func (ks *keySpace) appendSegment(b []byte, n int, k *Key) []byte {
	if ks.secret.has(n) {
		return appendHash(b, k.segments[n])
	}
	return appendEscaped(b, k.segments[n])
}

// appendNumber appends to the key of a rule with several keys the number of one of
// them, as a segment. Every key of such a rule ends in one number, so no two keys are
// equal.
func appendNumber(b []byte, n int) []byte {
	return strconv.AppendInt(append(b, ':'), int64(n), 10)
}

// appendEscaped appends s. What has a meaning in a key, and the escape itself, is
// replaced by % and two hexadecimal digits.
func appendEscaped(b []byte, s string) []byte {
	if len(s) > MaxSegment {
		return appendHash(b, s)
	}
	from := 0
	for i := range len(s) {
		if escaped[s[i]] {
			b = append(b, s[from:i]...)
			b = append(b, '%', "0123456789ABCDEF"[s[i]>>4], "0123456789ABCDEF"[s[i]&15])
			from = i + 1
		}
	}
	return append(b, s[from:]...)
}

var escaped = [256]bool{'{': true, '}': true, ':': true, '%': true}

// appendHash appends the hash of s behind a mark that escaping cannot produce.
func appendHash(b []byte, s string) []byte {
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(s), len(s))) // []byte(s) would allocate
	return hex.AppendEncode(append(b, "%sha256="...), sum[:])
}
