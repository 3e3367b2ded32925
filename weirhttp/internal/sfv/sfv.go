// Package sfv writes and reads the part of the Structured Field Values of RFC 9651 that
// fields about rate limits use: a List of Items with Parameters.
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

// A Kind is the type of a value.
type Kind uint8

// The kinds. The fields have values of other types only in parameters that nobody reads.
const (
	Other Kind = iota
	Integer
	String
)

// A Value is a value of an Item or of a parameter.
type Value struct {
	Kind Kind
	Int  int64  // of an Integer
	Text string // of a String; as it was sent for the other kinds
}

// An Item is a member of a List.
type Item struct {
	Value  Value
	Params map[string]Value
}

// Integer returns the parameter with that name. It returns false if there is none, or if
// it is no Integer.
func (it *Item) Integer(name string) (int64, bool) {
	v := it.Params[name]
	return v.Int, v.Kind == Integer
}

// Parse parses the List s, and reports whether it is one. Its members must be Items: an
// Inner List is malformed. An empty List has no items. Of the values of other kinds, Parse
// finds only the end.
func Parse(s string) ([]Item, bool) {
	p := parser{strings.TrimRight(strings.TrimLeft(s, " "), " \t")}
	var list []Item
	for p.rest != "" {
		if len(list) > 0 {
			p.skip(" \t")
			if !p.next(',') {
				return nil, false
			}
			p.skip(" \t")
		}
		it, ok := p.item()
		if !ok {
			return nil, false
		}
		list = append(list, it)
	}
	return list, true
}

type parser struct{ rest string }

// ends are the characters that end a value of another kind than String, and others that it
// cannot have.
const ends = ";, \t\"()"

// next skips c, if it is the next character.
func (p *parser) next(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *parser) skip(set string) { p.rest = strings.TrimLeft(p.rest, set) }

// take takes the text before the next character of stop.
func (p *parser) take(stop string) string {
	n := strings.IndexAny(p.rest, stop)
	if n < 0 {
		n = len(p.rest)
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *parser) item() (it Item, ok bool) {
	if it.Value, ok = p.value(); !ok {
		return it, false
	}
	it.Params = make(map[string]Value)
	for p.next(';') {
		p.skip(" ")
		name, v := p.take(ends+"="), Value{} // without a value, a Boolean
		if name == "" {
			return it, false
		}
		if p.next('=') {
			if v, ok = p.value(); !ok {
				return it, false
			}
		}
		it.Params[name] = v // the last one counts
	}
	return it, true
}

func (p *parser) value() (Value, bool) {
	if p.next('"') {
		text, ok := p.quoted()
		return Value{Kind: String, Text: text}, ok
	}
	if rest, ok := strings.CutPrefix(p.rest, `%"`); ok { // a Display String
		var v Value
		v.Text, p.rest, ok = strings.Cut(rest, `"`)
		return v, ok
	}
	text := p.take(ends)
	if digits := strings.TrimPrefix(text, "-"); digits != "" && len(digits) <= 15 && strings.Trim(digits, "0123456789") == "" {
		n, err := strconv.ParseInt(text, 10, 64)
		return Value{Integer, n, text}, err == nil
	}
	return Value{Text: text}, text != ""
}

// quoted takes the rest of a String, behind its first quote.
func (p *parser) quoted() (string, bool) {
	var text []byte
	for i := 0; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == '"':
			p.rest = p.rest[i+1:]
			return string(text), true
		case c == '\\' && i+1 < len(p.rest):
			i++
			c = p.rest[i]
		case c < ' ' || c > '~':
			return "", false
		}
		text = append(text, c)
	}
	return "", false
}
