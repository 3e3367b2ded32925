// Package secret makes segments of keys of the secrets that callers send, so that the same
// secret is the same caller over HTTP and gRPC.
package secret

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Hash returns the SHA-256 of s in hexadecimal.
func Hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}

// Bearer returns the token of an authorization, and whether it has exactly one. The scheme can
// be in any case.
func Bearer(authorization string) (token string, ok bool) {
	scheme, token, _ := strings.Cut(authorization, " ")
	token = strings.Trim(token, " \t")
	return token, strings.EqualFold(scheme, "Bearer") && token != "" && !strings.ContainsAny(token, " \t,")
}
