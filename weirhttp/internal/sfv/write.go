// Package sfv writes and parses the part of the Structured Field Values of RFC 9651 that
// the fields RateLimit and RateLimit-Policy use: a List of Items with Parameters.
package sfv

import (
	"encoding/base64"
	"strconv"
)

// MaxInteger is the largest Integer: it has 15 digits.
const MaxInteger = 999_999_999_999_999

// AppendInteger appends n as an Integer. If n is out of range, it appends the nearest
// Integer.
func AppendInteger(b []byte, n int64) []byte {
	return strconv.AppendInt(b, min(max(n, -MaxInteger), MaxInteger), 10)
}

// AppendString appends s as a String. A String has printable ASCII characters only. So
// Plain encodes s first.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case plain(c):
			b = append(b, c)
		default:
			b = appendPercent(b, c)
		}
	}
	return append(b, '"')
}

// AppendBytes appends data as a Byte Sequence.
func AppendBytes(b, data []byte) []byte {
	b = base64.StdEncoding.AppendEncode(append(b, ':'), data)
	return append(b, ':')
}

// Plain returns the text of the String that AppendString appends for s. It replaces each
// byte that is no printable ASCII character, and each %, by % and two hexadecimal digits.
func Plain(s string) string {
	for i := range len(s) {
		if !plain(s[i]) {
			b := []byte(s[:i])
			for _, c := range []byte(s[i:]) {
				if plain(c) {
					b = append(b, c)
				} else {
					b = appendPercent(b, c)
				}
			}
			return string(b)
		}
	}
	return s
}

// plain reports whether c is a printable ASCII character, and not %.
func plain(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }

func appendPercent(b []byte, c byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(b, '%', digits[c>>4], digits[c&15])
}
