package storekey

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unsafe"
)

// HashPrefix is the beginning of a hash in a key of a store. Escaping cannot produce it.
const HashPrefix = "%sha256="

// AppendHash appends what stands in a key in place of a segment that is secret or too
// long: HashPrefix, and the SHA-256 of the segment in hexadecimal.
func AppendHash(b []byte, segment string) []byte {
	sum := sha256.Sum256(unsafe.Slice(unsafe.StringData(segment), len(segment))) // []byte(segment) would allocate
	return hex.AppendEncode(append(b, HashPrefix...), sum[:])
}

// IsHash reports whether text is what AppendHash appends.
func IsHash(text string) bool {
	digits, ok := strings.CutPrefix(text, HashPrefix)
	sum, err := hex.DecodeString(digits)
	return ok && err == nil && len(sum) == 32 && hex.EncodeToString(sum) == digits
}

// LooksHashed reports whether text is a hash, or has the digits 25 after the % of a hash,
// once or several times.
func LooksHashed(text string) bool {
	rest, ok := strings.CutPrefix(text, "%")
	for strings.HasPrefix(rest, "25") {
		rest = rest[2:]
	}
	return ok && IsHash("%"+rest)
}

// Typed returns a segment as operators type it where they can type hashes. If it is no
// hash, but LooksHashed, %25 replaces its first %.
func Typed(segment string, hashed bool) string {
	if !hashed && LooksHashed(segment) {
		return "%25" + segment[1:]
	}
	return segment
}
