package conformance

import (
	"cmp"
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
	keys, want = append(keys, keys[0]), append(want, want[0]) // a key twice
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

func storeMGetType(t *T) {
	keys := t.keys("a", 2)
	t.eval(setScript, keys[:1])
	t.put(keys[1], 3)
	if got := t.mget(keys...); got[0].Kind() != store.Nil || got[1].Str() != "p1 3" {
		t.errorf("got %v, want [nil, p1 3]", got)
	}
}

// storeSet compares random steps with a plain list.
func storeSet(t *T) {
	r := t.rand()
	key := t.keys("a", 1)
	var list []store.Member
	for i := range 200 {
		trim := pick[int64](r, 0, 0, 0, 0, 1, 2, 50)
		m := store.Member{Score: r.Int64N(50), Text: strconv.Itoa(i) + "\x00\xff"}
		if r.IntN(4) == 0 {
			m.Score += 1<<53 - 100
		}
		after, rank := r.Int64N(50), r.Int64N(60)-30
		want := []store.Value{store.IntegerValue(0), store.IntegerValue(int64(len(list)))}
		for j, other := range list {
			if other.Score > after {
				want[0] = store.IntegerValue(want[0].Int() + 1)
			}
			if int64(j) == rank || int64(j) == rank+int64(len(list)) {
				want = append(want, store.BulkValue(other.Text), store.IntegerValue(other.Score))
			}
		}
		got := t.eval(setStep, key, store.IntArg(trim), store.IntArg(m.Score), store.StringArg(m.Text), store.IntArg(after), store.IntArg(rank))
		if !slices.Equal(got, want) {
			t.fatalf("step %d, above %d, rank %d of %v:\ngot  %v\nwant %v", i, after, rank, list, got, want)
		}
		list = append(list[min(int(trim), len(list)):], m)
		slices.SortFunc(list, func(a, b store.Member) int {
			return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Text, b.Text))
		})
	}
}
