package weir

import (
	"hash/maphash"
	"strings"
)

const (
	// MaxSegments is the largest number of segments of a key.
	MaxSegments = 8

	// MaxSegment is the largest length in bytes of a name, and of a segment in the store.
	// A longer segment is replaced by "%sha256=" and its SHA-256 in hexadecimal.
	MaxSegment = 128
)

// DefaultPrefix is the default of [Options].Prefix.
const DefaultPrefix = "weir"

// A Key identifies the caller being limited, with one segment for each name in
// [Policy].Segments. Keys are comparable. Make one with [KeyOf]: the zero Key is invalid.
type Key struct {
	segments [MaxSegments]string
	count    int32      // the number of segments given; it can be above MaxSegments
	hashed   segmentSet // the segments that are hashes: see Hashed
}

// KeyOf returns the key with these segments, without checking them.
func KeyOf(segments ...string) Key {
	var k Key
	k.set(segments)
	return k
}

// Segments returns the segments of k. Those after the first [MaxSegments] are empty.
func (k Key) Segments() []string {
	segments := make([]string, k.count)
	copy(segments, k.segments[:])
	return segments
}

// Hashed reports whether segment i is a hash, as in keys from [Limiter.ParseStoreKey] and
// [HashedKeyOf].
func (k Key) Hashed(i int) bool { return i >= 0 && i < MaxSegments && k.hashed.has(i) }

// Size returns the total length of the segments, in bytes.
func (k *Key) Size() int {
	n := 0
	for i := range k.segments {
		n += len(k.segments[i])
	}
	return n
}

// Clone copies the segments, so that k can be retained.
func (k Key) Clone() Key {
	for i := range k.segments {
		k.segments[i] = strings.Clone(k.segments[i])
	}
	return k
}

// Equal reports whether k and other have the same segments. It is faster than ==.
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
