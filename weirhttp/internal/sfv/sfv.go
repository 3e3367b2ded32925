// Package sfv writes and parses the part of the Structured Field Values of RFC 9651 that
// the fields RateLimit and RateLimit-Policy use: a List of Items with Parameters.
package sfv

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
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

// A Kind is the type of a bare item.
type Kind uint8

// The kinds of bare items.
const (
	Integer Kind = iota
	Decimal
	String
	Token
	Bytes
	Boolean
	Date
	Display
)

// A Value is a bare item.
type Value struct {
	Kind Kind
	Int  int64  // of an Integer or a Date; of a Boolean, 0 or 1
	Text string // of the other kinds; of a Decimal, its digits
}

// A Param is a parameter of an item.
type Param struct {
	Name  string
	Value Value
}

// An Item is a member of a List.
type Item struct {
	Value  Value
	Params []Param // no name is there twice
}

// Integer returns the parameter with that name. It returns false if there is none, or if
// it is no Integer.
func (it *Item) Integer(name string) (int64, bool) {
	for _, p := range it.Params {
		if p.Name == name {
			return p.Value.Int, p.Value.Kind == Integer
		}
	}
	return 0, false
}

var errMalformed = errors.New("sfv: malformed list of items")

// Parse parses the List s. Its members must be Items: an Inner List is an error. An empty
// List has no items.
func Parse(s string) ([]Item, error) {
	p := parser{strings.Trim(s, " ")}
	var list []Item
	for p.rest != "" {
		if len(list) > 0 {
			p.skip(" \t")
			if p.rest == "" {
				break
			}
			if !p.next(',') {
				return nil, errMalformed
			}
			p.skip(" \t")
		}
		it, err := p.item()
		if err != nil {
			return nil, err
		}
		list = append(list, it)
	}
	return list, nil
}

type parser struct{ rest string }

// next skips c, if it is the next character.
func (p *parser) next(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) skip(set string) { p.rest = strings.TrimLeft(p.rest, set) }

// take skips the longest prefix whose characters are in, and returns it.
func (p *parser) take(in func(byte) bool) string {
	n := 0
	for n < len(p.rest) && in(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *parser) item() (it Item, err error) {
	if it.Value, err = p.value(); err != nil {
		return it, err
	}
	for p.next(';') {
		p.skip(" ")
		if p.rest == "" || !lower(p.rest[0]) && p.rest[0] != '*' {
			return it, errMalformed
		}
		param := Param{Name: p.take(keyChar), Value: Value{Kind: Boolean, Int: 1}}
		if p.next('=') {
			if param.Value, err = p.value(); err != nil {
				return it, err
			}
		}
		earlier := func(p Param) bool { return p.Name == param.Name } // the last one counts
		it.Params = append(slices.DeleteFunc(it.Params, earlier), param)
	}
	return it, nil
}

func (p *parser) value() (Value, error) {
	if p.rest == "" {
		return Value{}, errMalformed
	}
	switch c := p.rest[0]; {
	case c == '-' || digit(c):
		return p.number()
	case p.next('"'):
		return p.quoted(String)
	case c == '*' || lower(c) || c >= 'A' && c <= 'Z':
		return Value{Kind: Token, Text: p.take(tokenChar)}, nil
	case c == ':':
		text, rest, ok := strings.Cut(p.rest[1:], ":")
		data, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
		if !ok || err != nil || strings.ContainsAny(text, "\r\n") {
			return Value{}, errMalformed
		}
		p.rest = rest
		return Value{Kind: Bytes, Text: string(data)}, nil
	case c == '?' && len(p.rest) > 1 && (p.rest[1] == '0' || p.rest[1] == '1'):
		v := Value{Kind: Boolean, Int: int64(p.rest[1] - '0')}
		p.rest = p.rest[2:]
		return v, nil
	case c == '@':
		p.rest = p.rest[1:]
		v, err := p.number()
		if v.Kind != Integer {
			err = errMalformed
		}
		v.Kind = Date
		return v, err
	case p.next('%') && p.next('"'):
		return p.quoted(Display)
	}
	return Value{}, errMalformed
}

func (p *parser) number() (Value, error) {
	text := p.rest
	p.next('-')
	whole := p.take(digit)
	switch {
	case whole == "" || len(whole) > 15:
		return Value{}, errMalformed
	case !p.next('.'):
		n, err := strconv.ParseInt(text[:len(text)-len(p.rest)], 10, 64)
		return Value{Kind: Integer, Int: n}, err
	}
	if part := p.take(digit); part == "" || len(part) > 3 || len(whole) > 12 {
		return Value{}, errMalformed
	}
	return Value{Kind: Decimal, Text: text[:len(text)-len(p.rest)]}, nil
}

// quoted parses the rest of a String or a Display, behind its first quote.
func (p *parser) quoted(kind Kind) (Value, error) {
	var text []byte
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			p.rest = p.rest[i+1:]
			if !utf8.Valid(text) {
				return Value{}, errMalformed
			}
			return Value{Kind: kind, Text: string(text)}, nil
		case c == '\\' && kind == String:
			if i++; i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return Value{}, errMalformed
			}
			text = append(text, p.rest[i])
		case c == '%' && kind == Display:
			if i+2 >= len(p.rest) || strings.ToLower(p.rest[i:i+3]) != p.rest[i:i+3] {
				return Value{}, errMalformed
			}
			b, err := hex.DecodeString(p.rest[i+1 : i+3])
			if err != nil {
				return Value{}, errMalformed
			}
			text = append(text, b...)
			i += 2
		case c < ' ' || c > '~':
			return Value{}, errMalformed
		default:
			text = append(text, c)
		}
	}
	return Value{}, errMalformed
}

func lower(c byte) bool { return c >= 'a' && c <= 'z' }

func digit(c byte) bool { return c >= '0' && c <= '9' }

func keyChar(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 }

func tokenChar(c byte) bool {
	return lower(c) || digit(c) || c >= 'A' && c <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
