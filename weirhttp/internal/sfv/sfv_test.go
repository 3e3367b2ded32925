package sfv_test

import (
	"math"
	"reflect"
	"strings"
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
		items, err := sfv.Parse(want)
		if err != nil || len(items) != 1 || items[0].Value != (sfv.Value{Kind: sfv.String, Text: sfv.Plain(s)}) {
			t.Errorf("string %q: parsed %+v, %v, want %q", s, items, err, sfv.Plain(s))
		}
	}
	if got := string(sfv.AppendBytes(nil, []byte("\x00\xff~"))); got != ":AP9+:" {
		t.Errorf("bytes: got %s", got)
	}
}

func TestParse(t *testing.T) {
	param := func(name string, v sfv.Value) sfv.Param { return sfv.Param{Name: name, Value: v} }
	integer := func(n int64) sfv.Value { return sfv.Value{Kind: sfv.Integer, Int: n} }
	for s, want := range map[string][]sfv.Item{
		"":                   nil,
		"  ":                 nil,
		`"a";r=1; t=-2`:      {{Value: sfv.Value{Kind: sfv.String, Text: "a"}, Params: []sfv.Param{param("r", integer(1)), param("t", integer(-2))}}},
		"1\t ,  2 \t":        {{Value: integer(1)}, {Value: integer(2)}},
		"a/b:c;r=1;q;r=?0":   {{Value: sfv.Value{Kind: sfv.Token, Text: "a/b:c"}, Params: []sfv.Param{param("q", sfv.Value{Kind: sfv.Boolean, Int: 1}), param("r", sfv.Value{Kind: sfv.Boolean})}}},
		"-1.500":             {{Value: sfv.Value{Kind: sfv.Decimal, Text: "-1.500"}}},
		":YQ==:,:YQ:,::":     {{Value: sfv.Value{Kind: sfv.Bytes, Text: "a"}}, {Value: sfv.Value{Kind: sfv.Bytes, Text: "a"}}, {Value: sfv.Value{Kind: sfv.Bytes}}},
		"@-5":                {{Value: sfv.Value{Kind: sfv.Date, Int: -5}}},
		`%"f%c3%bc r"`:       {{Value: sfv.Value{Kind: sfv.Display, Text: "fü r"}}},
		"999999999999999":    {{Value: integer(sfv.MaxInteger)}},
		"123456789012.123;*": {{Value: sfv.Value{Kind: sfv.Decimal, Text: "123456789012.123"}, Params: []sfv.Param{param("*", sfv.Value{Kind: sfv.Boolean, Int: 1})}}},
	} {
		if got, err := sfv.Parse(s); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{
		",", "1,", ",1", "1 2", "1;", "1;R", "1;r=", "-", "1.", "1.1234", "1234567890123.1", "1000000000000000", `"`, `"a`, `"\a"`, `"\`, "\"\n\"", `"é"`,
		":a b:", ":YQ", ":Y:", ":YQ\n==:", "?2", "?", "@", "@1.5", "%", `%"%C3"`, `%"%c3"`, `%"%c"`, `%"a`, "%\"\n\"", "(1 2)", "\t1", "é", strings.Repeat("(", 1000),
	} {
		if got, err := sfv.Parse(s); err == nil {
			t.Errorf("%q: got %+v, want an error", s, got)
		}
	}
}

func TestInteger(t *testing.T) {
	items, err := sfv.Parse("a;r=5;t=1.0")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"r": true, "t": false, "x": false} {
		if n, ok := items[0].Integer(name); ok != want || ok && n != 5 {
			t.Errorf("%s: got %d, %v, want %v", name, n, ok, want)
		}
	}
}
