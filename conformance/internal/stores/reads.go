package stores

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-go/weir/conformance/internal/scripts"
	"github.com/weir-go/weir/conformance/internal/suite"
	"github.com/weir-go/weir/internal/model"
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
		t.Fatalf("MGet of %d keys, with a slice of one value: it returned %d values, want that one and %d more", len(keys), len(got), len(want))
	}
	for i, v := range got[1:] {
		t.Equal(v, want[i], "MGet of %d keys over many slots, some of them missing or sorted sets, each named four times: value %d is %v, want %v", len(keys), i)
	}
	if got, err := t.Store.MGet(t.Ctx, nil, nil); len(got) != 0 || err != nil {
		t.Errorf("MGet of no keys: got values %v and error %v, want none", got, err)
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
			Trim: model.Pick[int64](r, 0, 0, 0, 0, 0, 0, 1, 2), After: r.Int64N(20), At: r.Int64N(int64(len(list)) + 2), Find: anyText(i),
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
			t.Fatalf("step %d: a script looked at a sorted set of %d members, before it changed the set:\ngot  %s\nwant %s\nIt looked for the members with a score above %d, for the score of the text %s, and for the member %d before the last", i, len(list), looked(got), looked(want), c.After, shown(c.Find), c.At)
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
		missing(t, key, "a sorted set whose members a script trimmed or removed all")
	}
	checkAlike(t)
	// A set whose last member was removed is missing too.
	t.Delete(t.Store, key)
	t.Change(key, scripts.SetChange{Add: store.Member{Score: 1, Text: long[:store.MaxText]}})
	t.Change(key, scripts.SetChange{Remove: long[:store.MaxText-1]})
	if n := t.Eval(scripts.Count, []string{key})[0].Int(); n != 1 {
		t.Errorf("a script removed a text from a sorted set of one member that has another text: it has %d members, want 1", n)
	}
	t.Change(key, scripts.SetChange{Remove: long[:store.MaxText]})
	missing(t, key, "a sorted set whose last member a script removed")
}

// looked describes the reply of scripts.SetStep.
func looked(reply []store.Value) string {
	if len(reply) != 3 && len(reply) != 5 {
		return fmt.Sprintf("a reply of %d values", len(reply))
	}
	text := fmt.Sprintf("%d members above the score, %d in all, the score %d of the text (-1: no such text)", reply[0].Int(), reply[1].Int(), reply[2].Int())
	if len(reply) == 3 {
		return text + ", no member at the place"
	}
	return text + fmt.Sprintf(", the text %s with the score %d at the place", shown(reply[3].Str()), reply[4].Int())
}

// looks checks what a script finds in the set at key, of n members whose scores are 0, 1
// and so on, about the member with this score.
func looks(t *suite.T, key string, n, score int64, text string) {
	c := scripts.SetChange{After: score, At: n - 1 - score, Find: text}
	want := []store.Value{store.IntegerValue(n - 1 - score), store.IntegerValue(n), store.IntegerValue(score), store.BulkValue(text), store.IntegerValue(score)}
	if got := t.Change(key, c); !slices.Equal(got, want) {
		t.Errorf("a script looked at a sorted set of %d members for the text %s, whose score is %d:\ngot  %s\nwant %s", n, shown(text), score, looked(got), looked(want))
	}
}

// fill adds texts to the set at key. The first has the score first, and each other one a
// score that is higher by 1.
func fill(t *suite.T, key string, first int, texts []string) {
	args := []store.Arg{store.IntArg(int64(first))}
	for _, text := range texts {
		args = append(args, store.StringArg(text))
	}
	t.Eval(scripts.Fill, []string{key}, args...)
}

// checkAlike checks a set whose texts must not be taken for each other. One of them is
// empty.
func checkAlike(t *suite.T) {
	key, texts := t.Key("alike", "0"), append([]string{""}, alike...)
	fill(t, key, 0, texts)
	for i, text := range texts {
		looks(t, key, int64(len(texts)), int64(i), text)
	}
}

func checkLarge(t *suite.T) {
	const n, each, long = 6000, 2000, 210
	key := t.Key("large", "0")
	texts := make([]string, n)
	for i := range texts {
		texts[i] = strconv.Itoa(i)
		texts[i] += strings.Repeat("x", long-len(texts[i]))
	}
	for i := 0; i < n; i += each {
		fill(t, key, i, texts[i:i+each])
		if got := t.Eval(scripts.Count, []string{key})[0].Int(); got != int64(i+each) {
			t.Fatalf("scripts added %d members with texts of %d bytes to a sorted set, and it has %d", i+each, long, got)
		}
	}
	for _, i := range []int{0, 1, n / 2, n - 1} {
		looks(t, key, n, int64(i), texts[i])
	}
	t.Change(key, scripts.SetChange{Add: store.Member{Score: n, Text: "newest"}, Trim: 1})
	if got := t.Change(key, scripts.SetChange{Find: texts[1]}); got[1].Int() != n || got[2].Int() != 1 || len(got) < 5 || got[3].Str() != "newest" {
		t.Errorf("a script added a member to a sorted set of %d, and removed the lowest:\ngot  %s\nwant %d in all, and the text %q at the last place", n, looked(got), n, "newest")
	}
}
