// Package sfv writes and parses the part of the Structured Field Values of RFC 9651 that
// the fields RateLimit and RateLimit-Policy use: a List of Items with Parameters.
package sfv

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// MaxInteger is the largest Integer: it has 15 digits.
const MaxInteger = 999_999_999_999_999

// AppendInteger appends n as an Integer. If n is out of range, it appends the nearest
// Integer.
func AppendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, -MaxInteger), MaxInteger), 10)
}

// AppendString appends s as a String. A String has printable ASCII characters only. So
// Plain encodes s first. Go quotes these characters as RFC 9651 does.
func AppendString(b []byte, s string) []byte { return strconv.AppendQuote(b, Plain(s)) }

// AppendBytes appends data as a Byte Sequence.
func AppendBytes(b, data []byte) []byte {
	b = base64.StdEncoding.AppendEncode(append(b, ':'), data)
	return append(b, ':')
}

// Plain returns the text of the String that AppendString appends for s. It replaces each
// byte that is no printable ASCII character, and each %, by % and two hexadecimal digits.
func Plain(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	var b []byte
	for _, c := range []byte(s) {
		if plain(rune(c)) {
			b = append(b, c)
		} else {
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}

// plain reports whether c is a printable ASCII character, and not %.
func plain(c rune) bool { return c >= ' ' && c <= '~' && c != '%' }
