package weirfile

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/weir-go/weir/algorithm"
)

// builtin are the algorithms that every file can use. A file uses the names of the types
// and of their fields, in words: "fixed window", "at once". optional lists the fields
// that can be left out, besides booleans.
var builtin = []struct {
	algorithm algorithm.Algorithm
	optional  string
}{
	{algorithm.GCRA{}, ""},
	{algorithm.FixedWindow{}, ""},
	{algorithm.SlidingCounter{}, ""},
	{algorithm.SlidingLog{}, ""},
	{algorithm.SlidingBuckets{}, ""},
	{algorithm.TokenBucket{}, ""},
	{algorithm.LeakyBucket{}, "queue"},
	{algorithm.Calendar{}, "zone month day at carry"},
	{algorithm.MetadataWindow{}, ""},
	{algorithm.Concurrency{}, ""},
	{algorithm.Pause{}, ""},
}

// A kind is an algorithm as the file has it: a name, and fields.
type kind struct {
	name      string
	prototype reflect.Value // the struct
	pointer   bool          // the algorithm is a pointer to the struct
	fields    []field
}

// A field is one field of a kind, or of an element of a list.
type field struct {
	name     string
	index    int // of the struct's field
	codec    codec
	required bool
}

// kinds returns the kinds of algorithms that a file can name, in the order of the
// documentation.
func kinds(own map[string]algorithm.Algorithm) ([]*kind, error) {
	var list []*kind
	for _, b := range builtin {
		k := newKind(words(reflect.TypeOf(b.algorithm).Name()), b.algorithm)
		for i, f := range k.fields {
			k.fields[i].required = f.codec.schema["type"] != "boolean" && !strings.Contains(" "+b.optional+" ", " "+f.name+" ")
		}
		list = append(list, k)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(own)) {
		k := newKind(name, own[name])
		switch {
		case k == nil:
			problems = append(problems, fmt.Errorf("weirfile: Options.Algorithms[%q] is a %T: it must be a struct, or a pointer to one", name, own[name]))
		case name == "" || name != strings.ToLower(name) || strings.TrimSpace(name) != name:
			problems = append(problems, fmt.Errorf("weirfile: Options.Algorithms has the name %q: it must be words in lower case", name))
		case find(list, name) != nil:
			problems = append(problems, fmt.Errorf("weirfile: Options.Algorithms has the name %q, which is built in: choose another name", name))
		default:
			for _, f := range k.fields {
				if ruleFields.has(f.name) {
					problems = append(problems, fmt.Errorf("weirfile: Options.Algorithms[%q]: its field %q has a name that every rule uses: rename the field", name, f.name))
				}
			}
			list = append(list, k)
		}
	}
	return list, errors.Join(problems...)
}

// newKind returns the kind of a, or nil if a is not a struct.
func newKind(name string, a algorithm.Algorithm) *kind {
	k := &kind{name: name, prototype: reflect.ValueOf(a)}
	if k.pointer = k.prototype.Kind() == reflect.Pointer; k.pointer {
		k.prototype = k.prototype.Elem()
	}
	if k.prototype.Kind() != reflect.Struct {
		return nil
	}
	k.fields = fieldsOf(k.prototype.Type())
	return k
}

// fieldsOf returns the fields of a struct that a file can set.
func fieldsOf(t reflect.Type) []field {
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		if c, ok := codecOf(f); ok {
			list = append(list, field{name: words(f.Name), index: i, codec: c})
		}
	}
	return list
}

// find returns the kind with the name, or nil.
func find(list []*kind, name string) *kind {
	for _, k := range list {
		if k.name == name {
			return k
		}
	}
	return nil
}

// of returns the kind of a, and its struct.
func of(list []*kind, a algorithm.Algorithm) (*kind, reflect.Value) {
	v := reflect.ValueOf(a)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	for _, k := range list {
		if v.IsValid() && v.Type() == k.prototype.Type() {
			return k, v
		}
	}
	return nil, v
}

// algorithm returns the algorithm of which v, a pointer, is the struct.
func (k *kind) algorithm(v reflect.Value) algorithm.Algorithm {
	if !k.pointer {
		v = v.Elem()
	}
	return v.Interface().(algorithm.Algorithm)
}

// words returns a name of Go in words: AtOnce is "at once", and GCRA is "gcra".
func words(name string) string {
	var b strings.Builder
	letters := []rune(name)
	for i, c := range letters {
		if i > 0 && unicode.IsUpper(c) && (!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// Describe returns a in the words of a file, on one line:
//
//	algorithm: gcra, rate: 100 per second, burst: 200
//
// In braces, the text is a rule of a file. If a is neither a built-in algorithm nor one
// of Options.Algorithms, Describe returns the name of its type.
func Describe(a algorithm.Algorithm, opts *Options) string {
	list, err := kinds(opts.orDefault().Algorithms)
	if err != nil {
		return fmt.Sprintf("%T", a)
	}
	return describe(list, a)
}

func describe(list []*kind, a algorithm.Algorithm) string {
	k, v := of(list, a)
	if k == nil {
		return fmt.Sprintf("%T", a)
	}
	text := "algorithm: " + k.name
	if fields := formatFields(k.fields, v); fields != "" {
		text += ", " + fields
	}
	return text
}

// formatFields writes the fields of v as a file has them, and leaves out optional fields
// that are zero.
func formatFields(fields []field, v reflect.Value) string {
	var parts []string
	for _, f := range fields {
		value := v.Field(f.index)
		if value.IsZero() && !f.required {
			continue
		}
		parts = append(parts, f.name+": "+f.codec.format(value, v))
	}
	return strings.Join(parts, ", ")
}
