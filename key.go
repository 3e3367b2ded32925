package weir

import (
	"hash/maphash"
	"strings"
)

const (
	// MaxSegments is the largest number of segments of a key.
	MaxSegments = 8

	// MaxSegment is the largest length, in bytes, of a segment that is part of a key
	// in the store. A longer segment is replaced by "%sha256=" and its SHA-256 in
	// hexadecimal. MaxSegment is also the largest length of the name of a limiter or
	// a rule.
	MaxSegment = 128
)

// DefaultPrefix is the default of [Options].Prefix.
const DefaultPrefix = "weir"

// A Key identifies the caller being limited. It has one segment for each name in
// [Policy].Segments, for example an IP address and an account. Keys are comparable.
// Make one with [KeyOf]: the zero Key is invalid.
type Key struct {
	segments [MaxSegments]string
	count    int32      // the number of segments given; it can be above MaxSegments
	hashed   segmentSet // the segments that are hashes: see Hashed
}

// KeyOf returns the key with these segments. KeyOf does not check them. If the key is
// invalid, the decision returns [ErrInvalidKey].
func KeyOf(segments ...string) Key {
	var k Key
	k.set(segments)
	return k
}

// Segments returns the segments of k. If k has more than [MaxSegments] segments, the
// segments after the first MaxSegments are returned as empty strings. No limiter accepts
// such a key. A segment that is a hash begins with "%sha256=": see [Key.Hashed].
func (k Key) Segments() []string {
	segments := make([]string, k.count)
	copy(segments, k.segments[:])
	return segments
}

// Hashed reports whether segment i is the hash of a segment, as the store has it. Only
// [Limiter.ParseStoreKey] returns keys with such segments.
func (k Key) Hashed(i int) bool { return i >= 0 && i < MaxSegments && k.hashed.has(i) }

// Size returns the length of all segments together, in bytes.
func (k *Key) Size() int {
	n := 0
	for i := range k.segments {
		n += len(k.segments[i])
	}
	return n
}

// Clone copies the segments, so that k can be retained without the text that they are part of.
func (k Key) Clone() Key {
	for i := range k.segments {
		k.segments[i] = strings.Clone(k.segments[i])
	}
	return k
}

// Equal reports whether k and other have the same segments. It is quicker than ==.
func (k *Key) Equal(other *Key) bool {
	if k.count != other.count || k.hashed != other.hashed {
		return false
	}
	for i := range min(k.count, MaxSegments) {
		if k.segments[i] != other.segments[i] {
			return false
		}
	}
	return true
}

const hashFactor = 0x9E3779B97F4A7C15

// Hash returns a hash of the segments.
func (k *Key) Hash(seed maphash.Seed) uint64 {
	var h uint64
	for i := range min(k.count, MaxSegments) {
		h = h*hashFactor + maphash.String(seed, k.segments[i])
	}
	return h
}

func (k *Key) set(segments []string) {
	k.count, k.hashed = int32(len(segments)), 0
	for i := range min(len(segments), MaxSegments) { // quicker than copy, for few segments
		k.segments[i] = segments[i]
	}
}
