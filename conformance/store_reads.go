package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/store"
)

func storeMGet(t *T) {
	const n = 300
	var keys []string
	var want []store.Value
	for i := range n {
		key := t.key(strconv.Itoa(i/2), strconv.Itoa(i)) // two keys to a slot
		keys = append(keys, key)
		if i%3 == 0 {
			want = append(want, store.Value{})
			if i%2 == 0 {
				t.setStep(key, setChange{add: member})
			}
			continue
		}
		t.put(key, int64(i))
		want = append(want, store.BulkValue("p1 "+strconv.Itoa(i)))
	}
	r := t.rand()
	r.Shuffle(n, func(i, j int) {
		keys[i], keys[j] = keys[j], keys[i]
		want[i], want[j] = want[j], want[i]
	})
	keys, want = slices.Repeat(keys, 4), slices.Repeat(want, 4) // a key can be named twice
	before := []store.Value{store.IntegerValue(5)}
	got, err := t.store.MGet(t.ctx, keys, before)
	if err != nil {
		t.fatalf("MGet: %v", err)
	}
	if len(got) != len(want)+1 || got[0] != before[0] {
		t.fatalf("got %d values, want the one before and %d more", len(got), len(want))
	}
	for i, v := range got[1:] {
		if v != want[i] {
			t.errorf("key %d of %d: got %v, want %v", i, len(keys), v, want[i])
		}
	}
	if got, err := t.store.MGet(t.ctx, nil, nil); len(got) != 0 || err != nil {
		t.errorf("MGet of no keys: got %v, %v", got, err)
	}
}

// storeSet compares random steps with a plain list, which is sometimes empty.
func storeSet(t *T) {
	r := t.rand()
	key := t.key("a", "0")
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
		c := setChange{
			add:  store.Member{Score: r.Int64N(20), Text: text(i)},
			trim: pick[int64](r, 0, 0, 0, 0, 0, 0, 1, 2), after: r.Int64N(20), at: r.Int64N(int64(len(list)) + 2), find: anyText(i),
		}
		if i%4 == 0 {
			c.at = r.Int64N(4)
		}
		switch r.IntN(8) {
		case 0:
			c.add.Text = anyText(i) // moves
		case 1, 2:
			c.remove = anyText(i)
		case 3:
			c.remove, c.add.Text = anyText(i), ""
		}
		if r.IntN(4) == 0 {
			c.add.Score += 1<<53 - 100
		}
		switch i {
		case 220:
			c.add, c.trim = store.Member{}, 1<<20
		case 270:
			c.trim = 1 << 20
		}
		want := []store.Value{store.IntegerValue(0), store.IntegerValue(int64(len(list))), store.IntegerValue(-1)}
		for j, other := range list {
			if other.Score > c.after {
				want[0] = store.IntegerValue(want[0].Int() + 1)
			}
			if other.Text == c.find {
				want[2] = store.IntegerValue(other.Score)
			}
			if c.at == int64(len(list)-1-j) {
				want = append(want, store.BulkValue(other.Text), store.IntegerValue(other.Score))
			}
		}
		if got := t.setStep(key, c); !slices.Equal(got, want) {
			t.fatalf("step %d, %.60q of a set of %d:\ngot  %.60v\nwant %.60v", i, fmt.Sprint(c), len(list), got, want)
		}
		remove(c.remove)
		if c.add.Text != "" {
			remove(c.add.Text)
			list = append(list, c.add)
		}
		slices.SortFunc(list, func(a, b store.Member) int {
			return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Text, b.Text))
		})
		if list = list[min(c.trim, int64(len(list))):]; len(list) > 0 {
			continue
		}
		if got := t.eval(wide, []string{key}, store.IntArg(1))[0]; got.Kind() != store.Nil {
			t.errorf("a set without members reads %v, want nothing", got)
		}
		t.delete(t.store, []string{key})
	}
	// A set whose last member was removed is missing too.
	t.delete(t.store, []string{key})
	t.setStep(key, setChange{add: store.Member{Score: 1, Text: long[:store.MaxText]}})
	t.setStep(key, setChange{remove: long[:store.MaxText-1]})
	if n := t.eval(count, []string{key})[0].Int(); n != 1 {
		t.errorf("a set of one member has %d after a text that it does not hold was removed", n)
	}
	t.setStep(key, setChange{remove: long[:store.MaxText]})
	if got := t.eval(wide, []string{key}, store.IntArg(1))[0]; got.Kind() != store.Nil {
		t.errorf("a set whose last member was removed reads %v, want nothing", got)
	}
}
