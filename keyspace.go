package weir

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/weir-go/weir/internal/storekey"
)

// A keySpace turns keys into the keys of a store:
//
//	prefix:name:{shared segments}:rule.tag:other segments
type keySpace struct {
	name     string // of the policy
	head     string // prefix, name, and an opening brace
	segments []string
	units    []string // Policy.Units
	secret   segmentSet
	shared   keyPart // the segments that every rule has in By
	rules    []ruleKey
	calls    atomic.Uint64 // the calls with markers: see addMarkers
}

// newKeySpace returns the key space of p. It has no rules: addRules adds them.
func newKeySpace(prefix string, p *Policy) (*keySpace, error) {
	ks := &keySpace{name: p.Name, segments: []string{"key"}, units: slices.Clone(p.Units)}
	if p.Segments != nil {
		ks.segments = slices.Clone(p.Segments)
	}
	switch {
	case p.Name == "":
		return nil, fail(ErrInvalidRule, "the limiter's name is empty: give each limiter its own name, so that two limiters never share state by accident")
	case len(p.Name) > MaxSegment:
		return nil, fail(ErrInvalidRule, "the limiter's name has %d bytes: it must have at most %d", len(p.Name), MaxSegment)
	case len(ks.segments) < 1 || len(ks.segments) > MaxSegments:
		return nil, fail(ErrInvalidRule, "Policy.Segments has %d names: it must have from 1 to %d, or be nil for one segment", len(ks.segments), MaxSegments)
	}
	err := checkNames("Segments", "segment", ks.segments)
	if err == nil {
		err = checkUnits(p.Units)
	}
	if err != nil {
		return nil, err
	}
	if ks.secret, err = ks.set("Policy.Secret", p.Secret); err != nil {
		return nil, err
	}
	b := append(appendEscaped(nil, prefix, true), ':')
	ks.head = string(append(appendEscaped(b, p.Name, true), ":{"...))
	return ks, nil
}

// checkNames checks that the names in a field of a Policy are not empty, and differ. what is
// what each of them names.
func checkNames(field, what string, names []string) error {
	for i, name := range names {
		switch {
		case name == "":
			return fail(ErrInvalidRule, "Policy.%s[%d] is empty: each %s needs a name", field, i, what)
		case slices.Contains(names[:i], name):
			return fail(ErrInvalidRule, "Policy.%s has the name %q twice: each %s needs its own name", field, name, what)
		}
	}
	return nil
}

// quoted returns a list of names.
func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// set returns the set of the segments with these names. Errors name the field.
func (ks *keySpace) set(field string, names []string) (segmentSet, error) {
	var set segmentSet
	for _, name := range names {
		n := slices.Index(ks.segments, name)
		switch {
		case n < 0:
			return 0, fail(ErrInvalidRule, "%s names the segment %q, which does not exist: the segments are %s", field, name, ks.names())
		case set.has(n):
			return 0, fail(ErrInvalidRule, "%s names the segment %q twice: name it once", field, name)
		}
		set |= 1 << n
	}
	return set, nil
}

// by returns the set of the segments in Rule.By. Errors name the rule by label.
func (ks *keySpace) by(label string, names []string) (segmentSet, error) {
	switch {
	case names == nil:
		return 1<<len(ks.segments) - 1, nil
	case len(names) == 0:
		return 0, fail(ErrInvalidRule, "%s: By is empty: it must name at least one segment, or be nil for all", label)
	}
	return ks.set(label+": By", names)
}

// addRules adds rules, and sets their keys. by[i] is the set of segments of rules[i].
func (ks *keySpace) addRules(rules []rule, by []segmentSet) error {
	all := ^segmentSet(0)
	for _, set := range by {
		all &= set
	}
	if all == 0 {
		return fail(ErrInvalidRule, "the rules have no segment in common: "+
			"all keys of a decision must have one cluster slot, which the common segments choose: "+
			"add a segment to By of every rule, for example an action or a tenant, or make two limiters")
	}
	ks.shared = ks.newPart(all)
	ks.rules = make([]ruleKey, len(rules))
	for i := range rules {
		r, rk := &rules[i], &ks.rules[i]
		tail := []byte("}:")
		if r.given != "" {
			tail = append(appendEscaped(tail, r.given, true), '.')
		}
		tail = append(tail, r.kind().Tag[:]...)
		*rk = ruleKey{n: i, tail: string(tail), by: by[i], other: ks.newPart(by[i] &^ all)}
		rk.frame = storekey.NewFrame(ks.head, rk.tail)
		r.key = rk
	}
	return nil
}

// names lists the names of the segments.
func (ks *keySpace) names() string { return quoted(ks.segments) }

// full reports whether all segments identify the limit of a rule.
func (ks *keySpace) full(rk *ruleKey) bool { return rk.by == 1<<len(ks.segments)-1 }

// check returns an ErrInvalidKey unless k is a key of this space.
func (ks *keySpace) check(k *Key) error {
	if int(k.count) != len(ks.segments) {
		return fail(ErrInvalidKey, "the key has %d segments: it must have %d: %s", k.count, len(ks.segments), ks.names())
	}
	for i, name := range ks.segments {
		if k.segments[i] == "" {
			return fail(ErrInvalidKey, "the key's segment %q is empty: it must have at least 1 byte", name)
		}
	}
	return nil
}

// fits reports whether check returns no error.
func (ks *keySpace) fits(k *Key) bool {
	if int(k.count) != len(ks.segments) {
		return false
	}
	for i := range ks.segments {
		if k.segments[i] == "" {
			return false
		}
	}
	return true
}

// setPlaces sets the keys of places, which are zero, to the keys of rules. If it has to build
// a part of a key, it does so in buffers, and returns them.
func (ks *keySpace) setPlaces(places []storekey.Place, rules []rule, k *Key) (s *buffers) {
	shared := ks.part(&ks.shared, k, &s)
	for i := range places {
		key, rk := &places[i].Key, rules[i].key
		if key.Frame, key.Shared = &rk.frame, shared; len(rk.other.list) > 0 {
			key.Other = ks.part(&rk.other, k, &s)
		}
	}
	return s
}

// part returns the text of p, which build builds unless it is a segment alone.
func (ks *keySpace) part(p *keyPart, k *Key, s **buffers) string {
	if p.alone(k) {
		return k.segments[p.one]
	}
	return ks.build(p, k, nil, s)
}

// build builds the text of p in room. If that is too small, or a segment must be escaped, it
// takes buffers, unless *s has some, and appends the text to their buf.
func (ks *keySpace) build(p *keyPart, k *Key, room []byte, s **buffers) string {
	text, ok := ks.appendPlain(room, p.list, k)
	if ok {
		return unsafe.String(&text[0], len(text))
	}
	if *s == nil {
		*s = bufferPool.Get().(*buffers)
		(*s).buf = (*s).buf[:0]
	}
	start := len((*s).buf)
	(*s).buf = ks.appendSegments((*s).buf, p.list, k)
	return unsafe.String(&(*s).buf[start], len((*s).buf)-start)
}

// A keyPart is the segments of a part of a key, ascending.
type keyPart struct {
	list []int
	one  int // the only segment, if it is not secret; otherwise -1
}

func (ks *keySpace) newPart(set segmentSet) keyPart {
	p := keyPart{set.list(), -1}
	if len(p.list) == 1 && !ks.secret.has(p.list[0]) {
		p.one = p.list[0]
	}
	return p
}

// alone reports whether the text of p is the segment p.one of k as it is.
func (p *keyPart) alone(k *Key) bool { return p.one >= 0 && asIs(k.segments[p.one]) }

// appendHead appends the part with which the keys of all rules begin.
func (ks *keySpace) appendHead(b []byte, k *Key) []byte {
	return ks.appendSegments(append(b, ks.head...), ks.shared.list, k)
}

// appendTail appends the rest of the key of a rule.
func (ks *keySpace) appendTail(b []byte, rk *ruleKey, k *Key) []byte {
	if b = append(b, rk.tail...); len(rk.other.list) > 0 {
		b = ks.appendSegments(append(b, ':'), rk.other.list, k)
	}
	return b
}

// appendSegments appends the segments of k in list, escaped and joined by colons. The last
// one may contain colons, because the others cannot.
func (ks *keySpace) appendSegments(b []byte, list []int, k *Key) []byte {
	if plain, ok := ks.appendPlain(b, list, k); ok {
		return plain
	}
	for i, n := range list {
		if i > 0 {
			b = append(b, ':')
		}
		b = ks.appendSegment(b, n, k, i < len(list)-1)
	}
	return b
}

// appendPlain is appendSegments if all segments stay as they are, and b has room for them.
// Otherwise, it returns false.
func (ks *keySpace) appendPlain(b []byte, list []int, k *Key) ([]byte, bool) {
	start, last := len(b), len(list)-1
	for i, n := range list {
		s := k.segments[n]
		if len(s) > MaxSegment || len(s) >= cap(b)-len(b) || i < last && strings.IndexByte(s, ':') >= 0 {
			return nil, false
		}
		if b = append(b, s...); i < last {
			b = append(b, ':')
		}
	}
	return b, ks.secret == 0 && unescaped(b[start:])
}

// appendSegment appends segment n of k. If colons is true, its colons are escaped.
func (ks *keySpace) appendSegment(b []byte, n int, k *Key, colons bool) []byte {
	switch {
	case k.hashed.has(n):
		return append(b, k.segments[n]...)
	case ks.secret.has(n):
		return storekey.AppendHash(b, k.segments[n])
	}
	return appendEscaped(b, k.segments[n], colons)
}

// appendEscaped appends s. It replaces each of the characters { } % and, if colons is
// true, : by % and two hexadecimal digits.
func appendEscaped(b []byte, s string, colons bool) []byte {
	if len(s) > MaxSegment {
		return storekey.AppendHash(b, s)
	}
	from := 0
	for i := range len(s) {
		if escaped(s[i], colons) {
			b = append(b, s[from:i]...)
			b = append(b, '%', "0123456789ABCDEF"[s[i]>>4], "0123456789ABCDEF"[s[i]&15])
			from = i + 1
		}
	}
	return append(b, s[from:]...)
}

// asIs reports whether s is a whole part of a key as it is.
func asIs(s string) bool {
	return len(s) <= MaxSegment && unescaped(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// unescaped reports whether b has no brace and no percent sign.
func unescaped(b []byte) bool {
	// Eight or four bytes at once. The last ones can overlap those before.
	switch n := len(b); {
	case n >= 8:
		for i := 0; i < n-8; i += 8 {
			if suspect(binary.LittleEndian.Uint64(b[i:])) {
				return plainBytes(b)
			}
		}
		return !suspect(binary.LittleEndian.Uint64(b[n-8:])) || plainBytes(b)
	case n >= 4:
		return !suspect(uint64(binary.LittleEndian.Uint32(b))<<32|uint64(binary.LittleEndian.Uint32(b[n-4:]))) || plainBytes(b)
	}
	return plainBytes(b)
}

// suspect returns true if one of the eight bytes of x is a brace or a percent sign. It can
// also return true if another byte is 'z' or above.
func suspect(x uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	above := x + ones*(0x80-'{') // sets the highest bit of a brace, even with a carry
	percent := x ^ ones*'%'      // the character becomes 0
	return (above|(percent-ones)&^percent)&highs != 0
}

// plainBytes reports whether b has no brace and no percent sign.
func plainBytes(b []byte) bool {
	for _, c := range b {
		if escaped(c, false) {
			return false
		}
	}
	return true
}

func escaped(c byte, colons bool) bool {
	return c == '{' || c == '}' || c == '%' || colons && c == ':'
}

// unit returns the index in ks.units plus 1 of the unit of a rule, or 0 if it has none.
// Errors name the rule by label.
func (ks *keySpace) unit(label, unit string) (int, error) {
	n := slices.Index(ks.units, unit) + 1
	if unit != "" && n == 0 {
		return 0, fail(ErrInvalidRule, "%s: Unit is %q: Policy.Units must declare it: it has %s", label, unit, ks.unitList())
	}
	return n, nil
}

// checkUnits checks Policy.Units.
func checkUnits(units []string) error {
	if len(units) > MaxUnits {
		return fail(ErrInvalidRule, "Policy.Units has %d names: it must have at most %d", len(units), MaxUnits)
	}
	for i, name := range units {
		if len(name) > MaxSegment {
			return fail(ErrInvalidRule, "Policy.Units[%d] has %d bytes: it must have at most %d", i, len(name), MaxSegment)
		}
	}
	return checkNames("Units", "unit", units)
}

// unitList lists the units.
func (ks *keySpace) unitList() string {
	if len(ks.units) == 0 {
		return "none"
	}
	return quoted(ks.units)
}
