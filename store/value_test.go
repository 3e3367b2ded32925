package store_test

import (
	"math"
	"testing"

	"github.com/weir-go/weir/store"
)

func TestArg(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		arg  store.Arg
		n    int64
		text string
		any  any
	}{
		{"zero", store.Arg{}, 0, "0", int64(0)},
		{"int", store.IntArg(42), 42, "42", int64(42)},
		{"negative", store.IntArg(-1), -1, "-1", int64(-1)},
		{"beyond floating point", store.IntArg(1<<53 - 1), 1<<53 - 1, "9007199254740991", int64(1<<53 - 1)},
		{"least", store.IntArg(math.MinInt64), math.MinInt64, "-9223372036854775808", int64(math.MinInt64)},
		{"const", store.ConstArg(1767225600000000), 1767225600000000, "1767225600000000", "1767225600000000"},
		{"const zero", store.ConstArg(0), 0, "0", "0"},
		{"string", store.StringArg("a\x00\xff"), 0, "a\x00\xff", "a\x00\xff"},
		{"digits", store.StringArg("17"), 0, "17", "17"},
		{"empty", store.StringArg(""), 0, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.arg.Int(); got != tt.n {
				t.Errorf("Int() = %d, want %d", got, tt.n)
			}
			if got := tt.arg.String(); got != tt.text {
				t.Errorf("String() = %q, want %q", got, tt.text)
			}
			if got := tt.arg.Any(); got != tt.any {
				t.Errorf("Any() = %#v, want %#v", got, tt.any)
			}
		})
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		value store.Value
		kind  store.Kind
		n     int64
		s     string
		text  string
	}{
		{"zero", store.Value{}, store.Nil, 0, "", "nil"},
		{"integer", store.IntegerValue(-7), store.Integer, -7, "", "-7"},
		{"integer zero", store.IntegerValue(0), store.Integer, 0, "", "0"},
		{"bulk", store.BulkValue("a\x00\xff\r\n"), store.Bulk, 0, "a\x00\xff\r\n", `"a\x00\xff\r\n"`},
		{"bulk of digits", store.BulkValue("17"), store.Bulk, 0, "17", `"17"`},
		{"bulk, empty", store.BulkValue(""), store.Bulk, 0, "", `""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.value.Kind(); got != tt.kind {
				t.Errorf("Kind() = %d, want %d", got, tt.kind)
			}
			if got := tt.value.Int(); got != tt.n {
				t.Errorf("Int() = %d, want %d", got, tt.n)
			}
			if got := tt.value.Str(); got != tt.s {
				t.Errorf("Str() = %q, want %q", got, tt.s)
			}
			if got := tt.value.String(); got != tt.text {
				t.Errorf("String() = %s, want %s", got, tt.text)
			}
		})
	}
}
