package store_test

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
)

const maxNum = 1<<53 - 1

func TestNumsText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		nums store.Nums
		want string
	}{
		{store.Nums{Tag: store.Tag{'g', '1'}}, "g1"},
		{store.Nums{Tag: store.Tag{'g', '1'}, Len: 1}, "g1 0"},
		{store.Nums{Tag: store.Tag{'g', '1'}, Len: 3, N: [store.MaxNums]int64{1767225600000000, 0, 1}}, "g1 1767225600000000 0 1"},
		{store.Nums{Tag: store.Tag{'x', '9'}, Len: 8, N: [store.MaxNums]int64{maxNum, 1, 2, 3, 4, 5, 6, maxNum}},
			"x9 9007199254740991 1 2 3 4 5 6 9007199254740991"},
		{store.Nums{Tag: store.Tag{' ', ' '}, Len: 1, N: [store.MaxNums]int64{5}}, "   5"},
	} {
		t.Run(tt.want, func(t *testing.T) {
			t.Parallel()
			if got := tt.nums.String(); got != tt.want {
				t.Errorf("String() = %q, want %q", got, tt.want)
			}
			if got := string(tt.nums.AppendText([]byte("before "))); got != "before "+tt.want {
				t.Errorf("AppendText = %q, want the text after what the slice held", got)
			}
			if got, ok := store.ParseNums(tt.want); !ok || got != tt.nums {
				t.Errorf("ParseNums(%q) = %+v, %v, want %+v", tt.want, got, ok, tt.nums)
			}
		})
	}
}

func TestParseNumsRejects(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "g", // no tag
		"g1 ", "g1 1 ", "g1  1", " g1 1", // spaces
		"g1x", "g11", "g1,1", "g1\t1", "g1\n1", "g1 1\n", "g1 1\x00", // separators
		"g1 -1", "g1 +1", "g1 1.0", "g1 1e3", "g1 0x1", "g1 a", "g1 1a", "g1 ١", // numbers
		"g1 00", "g1 007", "g1 1 00 1", // leading zeros
		"g1 9007199254740992", "g1 9223372036854775808", "g1 18446744073709551617", // too large
		"g1 99999999999999999999999999999999999999999999",
		"g1 1 9007199254740992",
		"g1 1 2 3 4 5 6 7 8 9 10 11", // too many
		"g1 1 2 3 4 5 6 7 8 9 ",      // a space at the end
		"hello", "170", "{\"a\":1}",
	} {
		t.Run(s, func(t *testing.T) {
			t.Parallel()
			if got, ok := store.ParseNums(s); ok || got != (store.Nums{}) {
				t.Errorf("ParseNums(%q) = %+v, %v, want false", s, got, ok)
			}
		})
	}
}

// A parsed Nums is within its bounds. Parsing its own text returns the same Nums.
func FuzzParseNums(f *testing.F) {
	for _, s := range []string{"g1 1 2 3", "g1", "g1 007", "g1 9007199254740991", "g1 9007199254740992", "g1  1", "g1 1 2 3 4 5 6 7 8", "g1 1 2 3 4 5 6 7 8 9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := store.ParseNums(s)
		if !ok {
			return
		}
		if n.Len > store.MaxNums || strings.Count(s[2:], " ") != int(n.Len) {
			t.Fatalf("ParseNums(%q) has length %d", s, n.Len)
		}
		for i, v := range n.N {
			if v < 0 || v > maxNum || i >= int(n.Len) && v != 0 {
				t.Fatalf("ParseNums(%q) holds %v", s, n.N)
			}
		}
		if again, ok := store.ParseNums(n.String()); !ok || again != n {
			t.Errorf("ParseNums(%q) = %+v, and for its own text %+v, %v", s, n, again, ok)
		}
	})
}
