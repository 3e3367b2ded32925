package storekey

import (
	"crypto/sha256"
	"encoding/hex"
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
