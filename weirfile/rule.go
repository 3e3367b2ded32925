package weirfile

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weir-go/weir"
)

// limit reads the algorithm and the cost. In a plan or an override, rule.Algorithm is the
// inherited one, and the file names the fields that differ. Otherwise it is nil.
func (r *reader) limit(p *mapping, what string, at place, rule *weir.Rule) {
	inherits := rule.Algorithm != nil
	if n := p.take("cost"); n != nil {
		var cost struct{ N int64 }
		if v := reflect.ValueOf(&cost).Elem(); r.scalar(n, what+": cost", &intCodec, v.Field(0), v) {
			switch rule.Cost = cost.N; {
			case rule.Unit != "":
				r.fail(placeOf(n), "%s: cost is %d: it must be left out, because the rule counts the unit %q", what, cost.N, rule.Unit)
			case cost.N < 1:
				r.fail(placeOf(n), "%s: cost is %d: it must be at least 1, or left out for the cost of the request", what, cost.N)
			}
		}
	}
	k := r.kind(p, what, at, rule)
	if k == nil {
		return
	}
	v := reflect.New(k.prototype.Type())
	v.Elem().Set(k.prototype)
	if inherits {
		_, old := of(r.kinds, rule.Algorithm)
		v.Elem().Set(old)
	}
	given, bad := map[string]place{}, len(r.errors)
	for i := range k.fields {
		f := &k.fields[i]
		if n := p.take(f.name); n != nil {
			given[f.name] = placeOf(n)
			r.value(n, what+": "+f.name, &f.codec, v.Elem().Field(f.index), v.Elem())
		} else if f.required && !inherits {
			r.fail(at, "%s has no %s: the algorithm %s needs it", what, f.name, k.name)
		}
	}
	for _, key := range p.left() {
		r.unknownIn(key, what, k, inherits)
	}
	if len(r.errors) > bad {
		return
	}
	rule.Algorithm = k.algorithm(v)
	if _, err := rule.Algorithm.NewLimit(); err != nil {
		text, at := k.explain(err, at, given)
		r.failIs(err, at, "%s: %s", what, text)
	}
}

// kind returns the algorithm that a rule names.
func (r *reader) kind(p *mapping, what string, at place, rule *weir.Rule) *kind {
	known := namesOf(r.kinds, func(k *kind) string { return k.name })
	var was *kind
	if rule.Algorithm != nil {
		was, _ = of(r.kinds, rule.Algorithm)
	}
	n := p.take("algorithm")
	if n == nil {
		if near := nearest("algorithm", p.names); was == nil && near != "" {
			r.unknown(p.keys[near], what, names{"algorithm"})
		} else if was == nil && !p.wrong {
			r.fail(at, "%s has no algorithm: it must be %s", what, oneOf(known))
		}
		return was
	}
	name, ok := r.text(n, what+": algorithm")
	if !ok {
		return nil
	}
	k := find(r.kinds, name)
	switch {
	case k == nil:
		r.fail(placeOf(n), "%s: algorithm is %q: %s", what, name, suggest(name, known))
	case was != nil && k != was:
		r.fail(placeOf(n), "%s: algorithm is %q: it must be %q, as in the policy, because the keys hold the state of that algorithm", what, name, was.name)
		return nil
	}
	return k
}

// unknownIn reports a field that the algorithm k lacks. A rule of a plan or an override
// inherits by, unit and shadow.
func (r *reader) unknownIn(key *yaml.Node, what string, k *kind, inherits bool) {
	own := ruleFields
	if inherits {
		own = limitFields
		if ruleFields.has(key.Value) {
			r.fail(placeOf(key), "%s has a field %q: it can be changed only in the policy", what, key.Value)
			return
		}
	}
	fields := append(fieldNames(k.fields), own...)
	if near := nearest(key.Value, fields); near != "" {
		r.fail(placeOf(key), "%s has no field %q: did you mean %q?", what, key.Value, near)
		return
	}
	r.fail(placeOf(key), "%s has no field %q: the fields of the algorithm %s are %s", what, key.Value, k.name, strings.Join(fields, ", "))
}

// value reads the value of a field.
func (r *reader) value(n *yaml.Node, what string, c *codec, value, in reflect.Value) {
	if c.list == nil {
		r.scalar(n, what, c, value, in)
		return
	}
	items := r.items(n, what)
	list := reflect.MakeSlice(value.Type(), len(items), len(items))
	for i, item := range items {
		what, element := fmt.Sprintf("%s[%d]", what, i), list.Index(i)
		m := r.fields(item, what)
		for j := range c.list {
			f := &c.list[j]
			if n := m.take(f.name); n != nil {
				r.value(n, what+": "+f.name, &f.codec, element.Field(f.index), element)
			} else if !m.wrong {
				r.fail(placeOf(item), "%s has no %s: it needs one", what, f.name)
			}
		}
		r.rest(m, what, fieldNames(c.list))
	}
	value.Set(list)
}

// scalar reads a value that is one text.
func (r *reader) scalar(n *yaml.Node, what string, c *codec, value, in reflect.Value) bool {
	text, ok := r.text(n, what)
	if !ok {
		return false
	}
	if quoted(n) && !c.quoted {
		r.fail(placeOf(n), "%s is a text in quotes: write it without them: %s", what, n.Value)
		return false
	}
	if err := c.parse(text, value, in); err != nil {
		r.fail(placeOf(n), "%s is %q: %v", what, text, err)
		return false
	}
	return true
}

func fieldNames(fields []field) []string {
	return namesOf(fields, func(f field) string { return f.name })
}

// explain returns the text of an error of NewLimit in the words of the file, and the
// place of the field that it is about.
func (k *kind) explain(err error, at place, given map[string]place) (string, place) {
	text := err.Error()
	typ := k.prototype.Type()
	first := len(text)
	for i := range k.fields {
		f := &k.fields[i]
		full := typ.Name() + "." + typ.Field(f.index).Name
		if n := strings.Index(text, full); n >= 0 && n < first {
			first = n
			if where, ok := given[f.name]; ok {
				at = where
			}
		}
		text = strings.ReplaceAll(text, full, f.name)
	}
	text = goDuration.ReplaceAllStringFunc(text, func(s string) string { d, _ := time.ParseDuration(s); return formatDuration(d) })
	return strings.TrimPrefix(text, "weir: "), at
}

// goDuration is a duration as Go writes it.
var goDuration = regexp.MustCompile(`\b(\d+(\.\d+)?(h|m|s|ms|µs|ns))+\b`)
