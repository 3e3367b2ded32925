package weirfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// An Error is one mistake in a file. The error of [Load] and [Parse] joins all of them:
// its method Unwrap() []error lists them.
type Error struct {
	File   string `json:"-"`                // as given to Load or Parse
	Line   int    `json:"line,omitempty"`   // from 1; 0 if the mistake has no place
	Column int    `json:"column,omitempty"` // from 1; 0 if the mistake has no place
	Text   string `json:"text"`             // what was given, what is wrong, and what would be right

	is error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("weirfile: %s: %s", e.File, e.Text)
	}
	return fmt.Sprintf("weirfile: %s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Unwrap returns the error of package weir for a limit or a rule that is not valid, for
// example [weir.ErrInvalidLimit], or nil.
func (e *Error) Unwrap() error { return e.is }

// maxErrors is the largest number of mistakes of a file that are reported together.
const maxErrors = 20

// A place is where something stands in a file.
type place struct{ line, column int }

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

// A reader collects the mistakes of a file.
type reader struct {
	file   string
	errors []*Error
	kinds  []*kind
}

func (r *reader) fail(at place, format string, args ...any) {
	r.failIs(nil, at, format, args...)
}

// failIs is fail for a mistake that wraps the error is.
func (r *reader) failIs(is error, at place, format string, args ...any) {
	text := strings.TrimPrefix(fmt.Sprintf(format, args...), "weir: ")
	r.errors = append(r.errors, &Error{File: r.file, Line: at.line, Column: at.column, Text: short(text), is: is})
}

// short returns the text of an error without the middle of a value that is too long.
func short(text string) string {
	if len(text) > 1024 {
		text = strings.ToValidUTF8(text[:512], "") + "…" + strings.ToValidUTF8(text[len(text)-512:], "")
	}
	return text
}

// err returns the mistakes as one error, in the order of the file.
func (r *reader) err() error {
	if len(r.errors) == 0 {
		return nil
	}
	slices.SortStableFunc(r.errors, func(a, b *Error) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	var list []error
	for i, e := range r.errors {
		if i == maxErrors {
			list = append(list, fmt.Errorf("weirfile: %s: %d more mistakes are not shown", r.file, len(r.errors)-i))
			break
		}
		list = append(list, e)
	}
	return errors.Join(list...)
}

// pairs calls each for every pair of the mapping n, in the order of the file. what names
// n in errors.
func (r *reader) pairs(n *yaml.Node, what string, each func(name string, key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.wrong(n, what, "a mapping of names to values")
		return
	}
	seen := make(map[string]place, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || isNull(key) || key.Tag == "!!merge" {
			r.wrong(key, "a name in "+what, "a text")
			continue
		}
		if first, twice := seen[key.Value]; twice {
			r.fail(placeOf(key), "%s has %q twice: the first is on line %d", what, key.Value, first.line)
			continue
		}
		seen[key.Value] = placeOf(key)
		each(key.Value, key, value)
	}
}

// A mapping is a mapping of which each field is taken once.
type mapping struct {
	wrong  bool     // it is no mapping, which is reported
	names  []string // in the order of the file
	keys   map[string]*yaml.Node
	values map[string]*yaml.Node // those that are not yet taken
}

// fields returns the fields of n.
func (r *reader) fields(n *yaml.Node, what string) *mapping {
	m := &mapping{wrong: n.Kind != yaml.MappingNode, keys: map[string]*yaml.Node{}, values: map[string]*yaml.Node{}}
	r.pairs(n, what, func(name string, key, value *yaml.Node) {
		m.names = append(m.names, name)
		m.keys[name], m.values[name] = key, value
	})
	return m
}

// take returns the value of the field, and removes it. It is nil if there is none.
func (m *mapping) take(name string) *yaml.Node {
	n := m.values[name]
	delete(m.values, name)
	return n
}

// left returns the keys of the fields that nobody has taken.
func (m *mapping) left() (keys []*yaml.Node) {
	for _, name := range m.names {
		if m.values[name] != nil {
			keys = append(keys, m.keys[name])
		}
	}
	return keys
}

// rest reports the fields that nobody has taken. known are the names of all.
func (r *reader) rest(m *mapping, what string, known names) {
	for _, key := range m.left() {
		r.unknown(key, what, known)
	}
}

// items returns the elements of the list n.
func (r *reader) items(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		r.wrong(n, what, "a list")
		return nil
	}
	return n.Content
}

// text returns the text of the scalar n.
func (r *reader) text(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		r.wrong(n, what, "a text")
		return "", false
	}
	return n.Value, true
}

// texts returns a list of texts.
func (r *reader) texts(n *yaml.Node, what string) []string {
	list := []string{}
	for _, item := range r.items(n, what) {
		if text, ok := r.text(item, "an element of "+what); ok {
			list = append(list, text)
		}
	}
	return list
}

// wrong reports that n has the wrong type.
func (r *reader) wrong(n *yaml.Node, what, want string) {
	if n.Kind == yaml.AliasNode || n.Tag == "!!merge" {
		r.fail(placeOf(n), "%s is an alias or a merge key, which are not supported: write the values again", what)
		return
	}
	r.fail(placeOf(n), "%s is %s: it must be %s", what, show(n), want)
}

// unknown reports a field that does not exist.
func (r *reader) unknown(key *yaml.Node, what string, names []string) {
	hint := "the fields are " + strings.Join(names, ", ")
	if near := nearest(key.Value, names); near != "" {
		hint = "did you mean " + strconv.Quote(near) + "?"
	}
	r.fail(placeOf(key), "%s has no field %q: %s", what, key.Value, hint)
}

// show says what n is.
func show(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	}
	return strconv.Quote(n.Value)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// quoted reports whether the scalar n is written in quotes, or as a block of text.
func quoted(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
}
