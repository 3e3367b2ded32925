package weirfile

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/algorithm"
)

// A codec reads and writes the value of a field.
type codec struct {
	// parse sets value, a field of the struct in. The fields before it are already set.
	parse func(text string, value, in reflect.Value) error

	// format returns the value as YAML and JSON have it.
	format func(value, in reflect.Value) string

	// list are the fields of an element, if the field is a list. parse is then nil.
	list []field

	quoted bool   // the text can be in quotes
	schema object // the JSON schema
}

var (
	intCodec = codec{
		parse: func(text string, value, _ reflect.Value) error {
			n, err := parseInt(text)
			if err == nil && value.OverflowInt(n) {
				err = errors.New("it is too large")
			}
			if err == nil {
				value.SetInt(n)
			}
			return err
		},
		format: func(value, _ reflect.Value) string { return strconv.FormatInt(value.Int(), 10) },
		schema: object{"type": "integer", "minimum": 0, "maximum": int64(algorithm.MaxTokens)},
	}
	boolCodec = codecBy(parseBool, strconv.FormatBool, false, object{"type": "boolean"})

	stringCodec = codecBy(func(text string) (string, error) { return text, nil }, quote, true, object{"type": "string"})

	durationCodec = codecBy(ParseDuration, formatDuration, true, object{
		"type": "string", "pattern": `^(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?(\d+us)?(\d+ns)?$`, "minLength": 2,
		"description": "A duration: 30s, 1h30m, 1d. The units are d (24 hours), h, m, s, ms, us and ns.",
	})
	rateCodec = codecBy(parseRate, formatRate, true, object{
		"type": "string", "pattern": `^[1-9]\d* per (second|minute|hour|day|\d+[a-z0-9]+)$`,
		"description": "A rate: 10 per second, 300 per minute, 1 per 30s.",
	})
	clockCodec = codecBy(parseClock, func(d time.Duration) string { return quote(formatClock(d)) }, true, object{
		"type": "string", "pattern": `^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?$`,
		"description": "A time of day: \"06:00\".",
	})
	dayCodec = codec{
		parse: parseDay,
		format: func(value, in reflect.Value) string {
			if weekly(in) && value.Int() <= 7 {
				return weekdays[value.Int()-1]
			}
			return strconv.FormatInt(value.Int(), 10)
		},
		schema: object{
			"anyOf":       []any{object{"type": "integer", "minimum": 1, "maximum": 31}, object{"enum": weekdays}},
			"description": "The day on which a period starts: a day of the week for a week, and otherwise a day of the month.",
		},
	}
	textCodec = codec{
		parse: func(text string, value, _ reflect.Value) error {
			return value.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
		},
		format: func(value, _ reflect.Value) string {
			text, err := value.Interface().(encoding.TextMarshaler).MarshalText()
			if err != nil {
				return quote(err.Error())
			}
			return quote(string(text))
		},
		quoted: true, schema: object{"type": "string"},
	}
)

var (
	weekdays = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
	months   = []string{"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"}
	every    = []string{string(algorithm.Day), string(algorithm.Week), string(algorithm.Month), string(algorithm.Quarter), string(algorithm.Year)}
)

// codecBy is the codec of values of a type like T.
func codecBy[T any](parse func(string) (T, error), format func(T) string, quoted bool, schema object) codec {
	return codec{
		parse: func(text string, value, _ reflect.Value) error {
			v, err := parse(text)
			value.Set(reflect.ValueOf(v).Convert(value.Type()))
			return err
		},
		format: func(value, _ reflect.Value) string {
			return format(value.Convert(reflect.TypeFor[T]()).Interface().(T))
		},
		quoted: quoted, schema: schema,
	}
}

// codecs are the codecs of types. Other types of the same kind have the codec of the
// kind.
var codecs = map[reflect.Type]codec{
	reflect.TypeFor[time.Duration]():    durationCodec,
	reflect.TypeFor[algorithm.Rate]():   rateCodec,
	reflect.TypeFor[time.Month]():       choice(months, func(v reflect.Value) int { return int(v.Int()) - 1 }, func(v reflect.Value, n int) { v.SetInt(int64(n) + 1) }),
	reflect.TypeFor[algorithm.Period](): choice(every, func(v reflect.Value) int { return slices.Index(every, v.String()) }, func(v reflect.Value, n int) { v.SetString(every[n]) }),
}

// tagged are the codecs of integers whose type does not tell what they are, by their tag.
var tagged = map[string]codec{"clock": clockCodec, "day": dayCodec}

// codecOf returns the codec of a field, or false if a file cannot set it.
func codecOf(f reflect.StructField) (codec, bool) {
	if c, ok := tagged[f.Tag.Get("weirfile")]; ok && reflect.Zero(f.Type).CanInt() {
		return c, true
	}
	if c, ok := codecs[f.Type]; ok {
		return c, true
	}
	if f.Type.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && reflect.PointerTo(f.Type).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return textCodec, true
	}
	switch f.Type.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intCodec, true
	case reflect.Bool:
		return boolCodec, true
	case reflect.String:
		return stringCodec, true
	case reflect.Slice:
		if f.Type.Elem().Kind() == reflect.Struct {
			return listOf(f.Type.Elem())
		}
	}
	return codec{}, false
}

// choice is the codec of one of several words.
func choice(names []string, get func(reflect.Value) int, set func(reflect.Value, int)) codec {
	return codec{
		parse: func(text string, value, _ reflect.Value) error {
			n := slices.Index(names, text)
			if n < 0 {
				return errors.New(suggest(text, names))
			}
			set(value, n)
			return nil
		},
		format: func(value, _ reflect.Value) string {
			if n := get(value); n >= 0 && n < len(names) {
				return names[n]
			}
			return quote(fmt.Sprint(value.Interface()))
		},
		quoted: true, schema: object{"enum": names},
	}
}

// listOf is the codec of a list of structs.
func listOf(t reflect.Type) (codec, bool) {
	fields := fieldsOf(t)
	properties, required := object{}, []string{}
	for i, f := range fields {
		if f.codec.list != nil {
			return codec{}, false
		}
		fields[i].required = true
		properties[f.name] = f.codec.schema
		required = append(required, f.name)
	}
	return codec{
		list: fields,
		format: func(value, _ reflect.Value) string {
			var parts []string
			for i := range value.Len() {
				parts = append(parts, "{"+formatFields(fields, value.Index(i))+"}")
			}
			return "[" + strings.Join(parts, ", ") + "]"
		},
		schema: object{
			"type":  "array",
			"items": object{"type": "object", "properties": properties, "required": required, "additionalProperties": false},
		},
	}, len(fields) > 0
}

// parseDay reads the Day of a Calendar: of the week, or of the month.
func parseDay(text string, value, in reflect.Value) error {
	if !weekly(in) {
		if n := slices.Index(weekdays, text); n >= 0 {
			return fmt.Errorf("it must be a day of the month, from 1 to 31: only a week starts on a %s", text)
		}
		if text == "0" {
			return errors.New("it must be a day of the month, from 1 to 31")
		}
		return intCodec.parse(text, value, in)
	}
	n := slices.Index(weekdays, text)
	if n < 0 {
		return fmt.Errorf("it must be the day on which a week starts: %s", suggest(text, weekdays))
	}
	value.SetInt(int64(n) + 1)
	return nil
}

// weekly reports whether the periods of a Calendar are weeks.
func weekly(in reflect.Value) bool {
	return in.FieldByName("Every").String() == string(algorithm.Week)
}

// quote returns s as YAML and JSON have it. A word needs no quotes.
func quote(s string) string {
	plain, _ := cut(s, func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '/' || c == '_' || c == '-' || c == '+' || isDigit(c)
	})
	if plain == s && s != "" && !isDigit(s[0]) && !strings.ContainsAny(s[:1], "-+/") && !reserved[strings.ToLower(s)] {
		return s
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// reserved are the words that YAML reads as something else than a text.
var reserved = map[string]bool{"true": true, "false": true, "null": true, "yes": true, "no": true, "on": true, "off": true, "y": true, "n": true}
