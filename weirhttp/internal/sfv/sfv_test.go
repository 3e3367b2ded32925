package sfv_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/weir-go/weir/weirhttp/internal/sfv"
)

func TestAppend(t *testing.T) {
	for n, want := range map[int64]string{0: "0", -1: "-1", sfv.MaxInteger: "999999999999999", sfv.MaxInteger + 1: "999999999999999", math.MinInt64: "-999999999999999"} {
		if got := string(sfv.AppendInteger([]byte("x"), n)); got != "x"+want {
			t.Errorf("integer %d: got %s, want x%s", n, got, want)
		}
	}
	for s, want := range map[string]string{"": `""`, "a b": `"a b"`, `"\`: `"\"\\"`, "é%~\x7f\n": `"%C3%A9%25~%7F%0A"`} {
		if got := string(sfv.AppendString(nil, s)); got != want {
			t.Errorf("string %q: got %s, want %s", s, got, want)
		}
		items, ok := sfv.Parse(want)
		if !ok || len(items) != 1 || items[0].Value != (sfv.Value{Kind: sfv.String, Text: sfv.Plain(s)}) {
			t.Errorf("string %q: parsed %+v, %v, want %q", s, items, ok, sfv.Plain(s))
		}
	}
	if got := string(sfv.AppendBytes(nil, []byte("\x00\xff~"))); got != ":AP9+:" {
		t.Errorf("bytes: got %s", got)
	}
}

// Strings and Integers are what they say, and values of other types do no harm.
func TestParse(t *testing.T) {
	const other, integer, text = sfv.Other, sfv.Integer, sfv.String
	for s, want := range map[string]string{
		"":                              "[]",
		"  ":                            "[]",
		`"a";r=1; t=-2`:                 fmt.Sprint([]sfv.Item{{sfv.Value{text, 0, "a"}, map[string]sfv.Value{"r": {integer, 1, "1"}, "t": {integer, -2, "-2"}}}}),
		"1\t ,  2 \t":                   fmt.Sprint([]sfv.Item{{Value: sfv.Value{integer, 1, "1"}}, {Value: sfv.Value{integer, 2, "2"}}}),
		"a/b:c;r=1;q;r=?0":              fmt.Sprint([]sfv.Item{{sfv.Value{other, 0, "a/b:c"}, map[string]sfv.Value{"q": {}, "r": {other, 0, "?0"}}}}),
		"-1.500,:YQ==:,@-5":             fmt.Sprint([]sfv.Item{{Value: sfv.Value{other, 0, "-1.500"}}, {Value: sfv.Value{other, 0, ":YQ==:"}}, {Value: sfv.Value{other, 0, "@-5"}}}),
		`%"f%c3 r";*="\"\\"`:            fmt.Sprint([]sfv.Item{{sfv.Value{other, 0, "f%c3 r"}, map[string]sfv.Value{"*": {text, 0, `"\`}}}}),
		"999999999999999":               fmt.Sprint([]sfv.Item{{Value: sfv.Value{integer, sfv.MaxInteger, "999999999999999"}}}),
		"1000000000000000,+1,-,-x, A-Z": fmt.Sprint([]sfv.Item{{Value: sfv.Value{other, 0, "1000000000000000"}}, {Value: sfv.Value{other, 0, "+1"}}, {Value: sfv.Value{other, 0, "-"}}, {Value: sfv.Value{other, 0, "-x"}}, {Value: sfv.Value{other, 0, "A-Z"}}}),
	} {
		if got, ok := sfv.Parse(s); !ok || fmt.Sprint(got) != want {
			t.Errorf("%q: got %+v, %v, want %s", s, got, ok, want)
		}
	}
	items, _ := sfv.Parse("a;r=5;t=1.0")
	for name, want := range map[string]bool{"r": true, "t": false, "x": false} {
		if n, ok := items[0].Integer(name); ok != want || ok && n != 5 {
			t.Errorf("%s: got %d, %v, want %v", name, n, ok, want)
		}
	}
	for _, s := range []string{",", "1,", ",1", "1 2", "1;", "1;=1", "1;r=", `"`, `"a`, `"a\`, "\"\n\"", `"é"`, "\"\x7f\"", `%"a`, "(1 2)", "\t1"} {
		if got, ok := sfv.Parse(s); ok || got != nil {
			t.Errorf("%q: got %+v, %v, want none", s, got, ok)
		}
	}
}
