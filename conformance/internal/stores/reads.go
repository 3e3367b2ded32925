package stores

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/conformance/internal/random"
	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/store"
)

func checkMGet(t *suite.T) {
	const n = 300
	var keys []string
	var want []store.Value
	for i := range n {
		key := t.Key(strconv.Itoa(i/2), strconv.Itoa(i)) // two keys to a slot
		keys = append(keys, key)
		if i%3 == 0 {
			want = append(want, store.Value{})
			if i%2 == 0 {
				t.Change(key, scripts.SetChange{Add: scripts.Member})
			}
			continue
		}
		t.Put(key, int64(i))
		want = append(want, store.BulkValue("p1 "+strconv.Itoa(i)))
	}
	r := t.Rand()
	r.Shuffle(n, func(i, j int) {
		keys[i], keys[j] = keys[j], keys[i]
		want[i], want[j] = want[j], want[i]
	})
	keys, want = slices.Repeat(keys, 4), slices.Repeat(want, 4) // a key can be named twice
	before := []store.Value{store.IntegerValue(5)}
	got := suite.Must[[]store.Value](t, "MGet")(t.Store.MGet(t.Ctx, keys, before))
	if len(got) != len(want)+1 || got[0] != before[0] {
		t.Fatalf("got %d values, want the one before and %d more", len(got), len(want))
	}
	for i, v := range got[1:] {
		t.Equal(v, want[i], "key %d of %d: got %v, want %v", i, len(keys))
	}
	if got, err := t.Store.MGet(t.Ctx, nil, nil); len(got) != 0 || err != nil {
		t.Errorf("MGet of no keys: got %v, %v", got, err)
	}
}

// checkSet compares random steps with a plain list, which is sometimes empty.
func checkSet(t *suite.T) {
	r := t.Rand()
	key := t.Key("a", "0")
	long := strings.Repeat("\xff\x00 ", store.MaxText)
	// Some of these are the same in an alphabet, or without what is not UTF-8.
	starts := []string{"a", "B", "b", "A", "_", "\xff", "é", "\xfe", ""}
	text := func(i int) string {
		s := starts[i%len(starts)] + strconv.Itoa(i/len(starts)) + "\x00\xff"
		if i%5 == 0 {
			s = long[:store.MaxText-len(s)] + s
		}
		return s
	}
	var list []store.Member
	anyText := func(i int) string {
		if len(list) > 0 && r.IntN(2) == 0 {
			return list[r.IntN(len(list))].Text
		}
		return text(r.IntN(i + 2))
	}
	remove := func(text string) { list = slices.DeleteFunc(list, func(m store.Member) bool { return m.Text == text }) }
	for i := range 300 {
		c := scripts.SetChange{
			Add:  store.Member{Score: r.Int64N(20), Text: text(i)},
			Trim: random.Pick[int64](r, 0, 0, 0, 0, 0, 0, 1, 2), After: r.Int64N(20), At: r.Int64N(int64(len(list)) + 2), Find: anyText(i),
		}
		if i%4 == 0 {
			c.At = r.Int64N(4)
		}
		switch r.IntN(8) {
		case 0:
			c.Add.Text = anyText(i) // moves
		case 1, 2:
			c.Remove = anyText(i)
		case 3:
			c.Remove, c.Add.Text = anyText(i), ""
		}
		if r.IntN(4) == 0 {
			c.Add.Score += 1<<53 - 100
		}
		switch i {
		case 220:
			c.Add, c.Trim = store.Member{}, 1<<20
		case 270:
			c.Trim = 1 << 20
		}
		want := []store.Value{store.IntegerValue(0), store.IntegerValue(int64(len(list))), store.IntegerValue(-1)}
		for j, other := range list {
			if other.Score > c.After {
				want[0] = store.IntegerValue(want[0].Int() + 1)
			}
			if other.Text == c.Find {
				want[2] = store.IntegerValue(other.Score)
			}
			if c.At == int64(len(list)-1-j) {
				want = append(want, store.BulkValue(other.Text), store.IntegerValue(other.Score))
			}
		}
		if got := t.Change(key, c); !slices.Equal(got, want) {
			t.Fatalf("step %d, %.60q of a set of %d:\ngot  %.60v\nwant %.60v", i, fmt.Sprint(c), len(list), got, want)
		}
		remove(c.Remove)
		if c.Add.Text != "" {
			remove(c.Add.Text)
			list = append(list, c.Add)
		}
		slices.SortFunc(list, func(a, b store.Member) int {
			return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Text, b.Text))
		})
		if list = list[min(c.Trim, int64(len(list))):]; len(list) > 0 {
			continue
		}
		if got := t.Eval(scripts.Wide, []string{key}, store.IntArg(1))[0]; got.Kind() != store.Nil {
			t.Errorf("a set without members reads %v, want nothing", got)
		}
		t.Delete(t.Store, key)
	}
	// A set whose last member was removed is missing too.
	t.Delete(t.Store, key)
	t.Change(key, scripts.SetChange{Add: store.Member{Score: 1, Text: long[:store.MaxText]}})
	t.Change(key, scripts.SetChange{Remove: long[:store.MaxText-1]})
	if n := t.Eval(scripts.Count, []string{key})[0].Int(); n != 1 {
		t.Errorf("a set of one member has %d after a text that it does not hold was removed", n)
	}
	t.Change(key, scripts.SetChange{Remove: long[:store.MaxText]})
	if got := t.Eval(scripts.Wide, []string{key}, store.IntArg(1))[0]; got.Kind() != store.Nil {
		t.Errorf("a set whose last member was removed reads %v, want nothing", got)
	}
}
