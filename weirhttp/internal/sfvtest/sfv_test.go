package sfvtest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/weir-go/weir/weirhttp/internal/sfv"
)

// Both implementations write random values in the same way.
func TestAppend(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		text := make([]byte, rnd.IntN(20))
		for i := range text {
			text[i] = byte(rnd.Uint32() >> rnd.IntN(3))
		}
		n := rnd.Int64() >> rnd.IntN(63) * int64(1-2*rnd.IntN(2))
		got := sfv.AppendString(nil, string(text))
		got = sfv.AppendBytes(append(got, ";a="...), text)
		got = sfv.AppendInteger(append(got, ";b="...), n)
		it := httpsfv.NewItem(sfv.Plain(string(text)))
		it.Params.Add("a", text)
		it.Params.Add("b", min(max(n, -sfv.MaxInteger), sfv.MaxInteger))
		if want, err := httpsfv.Marshal(it); err != nil || string(got) != want {
			t.Fatalf("%q and %d: got %s, want %s, %v", text, n, got, want, err)
		}
	}
}

// compare parses s with both implementations. What the other one accepts, sfv reads in the same way,
// if it is a String or an Integer. It reports whether there is an item.
func compare(t *testing.T, s string) bool {
	t.Helper()
	got, ok := sfv.Parse(s)
	list, invalid := httpsfv.UnmarshalList([]string{s})
	if invalid != nil {
		return false // sfv can accept it: it does not look into values that nobody reads
	}
	for _, m := range list {
		if _, inner := m.(httpsfv.InnerList); inner {
			if ok {
				t.Errorf("%q: got %+v, want none, because a member is an inner list", s, got)
			}
			return false
		}
	}
	if !ok || len(got) != len(list) {
		t.Fatalf("%q: got %+v, %v, want %+v", s, got, ok, list)
	}
	for i := range got {
		it := list[i].(httpsfv.Item)
		same(t, s, got[i].Value, it.Value)
		for _, name := range it.Params.Names() {
			want, _ := it.Params.Get(name)
			same(t, s, got[i].Params[name], want)
		}
		if len(got[i].Params) != len(it.Params.Names()) {
			t.Errorf("%q: got %+v, want %v", s, got[i].Params, it.Params.Names())
		}
	}
	return len(got) > 0
}

func same(t *testing.T, s string, got sfv.Value, value any) {
	t.Helper()
	want := sfv.Value{Text: got.Text}
	switch v := value.(type) {
	case int64:
		want.Kind, want.Int = sfv.Integer, v
	case string:
		want.Kind, want.Text = sfv.String, v
	}
	if got != want {
		t.Errorf("%q: got %+v, want %T %[3]v", s, got, value)
	}
}

var pieces = []string{
	`"a"`, `"`, "a", "r", "t", "=", ";", ",", " ", "\t", "0", "1", "-", ".", "999999999999999", "5", "?1", "?0", "?", "@", `%"`, "%c3%bc", "%C3", "%", `\"`, `\\`, `\`,
	"*", "(", ")", ";r=0;t=9", "A", "é", "_", "/", "!", ":", ":YQ==:",
}

// Both implementations agree on random lists.
func TestParse(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	valid := 0
	for range 100_000 {
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		if compare(t, b.String()) {
			valid++
		}
	}
	if valid < 2000 {
		t.Errorf("%d of the lists are valid and not empty, want at least 2000", valid)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range append(pieces, `"a";r=0;t=9, "b";r=1;pk=:YQ==:`) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { compare(t, s) })
}
