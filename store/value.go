package store

import "strconv"

// An Arg is an argument of a script: an integer or a string. The zero Arg is the integer
// 0.
type Arg struct {
	n    int64
	text any // a string, converted to an interface once; nil means n in decimal
}

// IntArg returns the integer n as an argument.
func IntArg(n int64) Arg { return Arg{n: n} }

// ConstArg returns the integer n as an argument that is sent many times. Its text is
// made only once, and not for each call.
func ConstArg(n int64) Arg { return Arg{n: n, text: strconv.FormatInt(n, 10)} }

// StringArg returns s as an argument. s can contain any bytes.
func StringArg(s string) Arg { return Arg{text: s} }

// Int returns the argument as an integer. If the argument is a string, Int returns 0.
func (a Arg) Int() int64 { return a.n }

// String returns the argument as the text that a server receives.
func (a Arg) String() string {
	if a.text != nil {
		return a.text.(string)
	}
	return strconv.FormatInt(a.n, 10)
}

// Any returns the argument as a string or an int64, for clients that accept
// both. It does not allocate for a string.
func (a Arg) Any() any {
	if a.text != nil {
		return a.text
	}
	return a.n
}

// A Kind is the kind of a [Value].
type Kind uint8

// The kinds of values that a store returns.
const (
	Nil     Kind = iota // no value, for example of a missing key
	Integer             // an integer
	Bulk                // a string of any bytes
)

// A Value is one element of a reply. The zero Value is Nil.
type Value struct {
	n    int64
	s    string
	kind Kind
}

// IntegerValue returns the integer n as a value.
func IntegerValue(n int64) Value { return Value{kind: Integer, n: n} }

// BulkValue returns s as a value. s can contain any bytes.
func BulkValue(s string) Value { return Value{kind: Bulk, s: s} }

// Kind returns the kind of v.
func (v Value) Kind() Kind { return v.kind }

// Int returns the integer of v. If v is not an Integer, Int returns 0.
func (v Value) Int() int64 { return v.n }

// Str returns the string of v. If v is not a Bulk, Str returns "".
func (v Value) Str() string { return v.s }

// String returns v as text for people: nil, an integer, or a quoted string. For the
// string of v, use Str.
func (v Value) String() string {
	switch v.kind {
	case Integer:
		return strconv.FormatInt(v.n, 10)
	case Bulk:
		return strconv.Quote(v.s)
	}
	return "nil"
}
