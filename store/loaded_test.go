package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

var (
	three = store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [store.MaxNums]int64{3}}
	four  = store.Nums{Tag: store.Tag{'t', '1'}, Len: 1, N: [store.MaxNums]int64{4}}
)

func numbers(n store.Nums) store.Content { return store.Content{Kind: store.Numbers, Nums: n} }

func set(members ...store.Member) store.Content {
	return store.Content{Kind: store.Set, Members: members}
}

// Reads return what a key holds, or ForeignAt if the key holds another kind of value.
func TestLoadedReads(t *testing.T) {
	t.Parallel()
	foreign := store.ForeignAt(0)
	for _, tt := range []struct {
		name      string
		held      store.Content
		get, sets error
	}{
		{"missing", store.Content{}, nil, nil},
		{"numbers", numbers(three), nil, foreign},
		{"set", set(store.Member{Score: 2, Text: "b"}, store.Member{Score: 1, Text: "a"}), foreign, nil},
		{"empty set", set(), nil, nil},
		{"other", store.Content{Kind: store.Other}, foreign, foreign},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tx := store.NewLoaded(17, []store.Content{tt.held})
			if got := tx.Now(); got != 17 {
				t.Errorf("Now() = %d, want 17", got)
			}
			if n, ok, err := tx.Get(0); !errors.Is(err, tt.get) || ok != (tt.name == "numbers") || ok && n != three || !ok && n != (store.Nums{}) {
				t.Errorf("Get = %v, %v, %v, want error %v", n, ok, err, tt.get)
			}
			held := tt.name == "set"
			if m, ok, err := tx.At(0, 0); !errors.Is(err, tt.sets) || ok != held || ok && m != (store.Member{Score: 2, Text: "b"}) {
				t.Errorf("At(0) = %v, %v, %v, want error %v", m, ok, err, tt.sets)
			}
			if m, ok, err := tx.At(0, 1); !errors.Is(err, tt.sets) || ok != held || ok && m != (store.Member{Score: 1, Text: "a"}) {
				t.Errorf("At(1) = %v, %v, %v, want error %v", m, ok, err, tt.sets)
			}
			for _, fromEnd := range []int64{-1, 2, 1 << 40} {
				if m, ok, err := tx.At(0, fromEnd); !errors.Is(err, tt.sets) || ok || m != (store.Member{}) {
					t.Errorf("At(%d) = %v, %v, %v, want none", fromEnd, m, ok, err)
				}
			}
			if above, all, err := tx.Count(0, 1); !errors.Is(err, tt.sets) || held && (above != 1 || all != 2) || !held && (above != 0 || all != 0) {
				t.Errorf("Count = %d, %d, %v, want error %v", above, all, err, tt.sets)
			}
			if score, ok, err := tx.Score(0, "b"); !errors.Is(err, tt.sets) || ok != held || ok && score != 2 {
				t.Errorf("Score(b) = %d, %v, %v, want error %v", score, ok, err, tt.sets)
			}
			if score, ok, err := tx.Score(0, "c"); !errors.Is(err, tt.sets) || ok || score != 0 {
				t.Errorf("Score(c) = %d, %v, %v, want none", score, ok, err)
			}
			if got := tx.Changes(); got != nil {
				t.Errorf("reads changed %+v", got)
			}
		})
	}
}

// Changes returns what the store must write, and nothing else.
func TestLoadedChanges(t *testing.T) {
	t.Parallel()
	a, b := store.Member{Score: 1, Text: "a"}, store.Member{Score: 2, Text: "b"}
	for _, tt := range []struct {
		name string
		held store.Content
		do   func(tx store.Tx)
		want []store.Change
	}{
		{"nothing", numbers(three), func(store.Tx) {}, nil},
		{"Put", numbers(three), func(tx store.Tx) { tx.Put(0, four, time.Second) }, []store.Change{{Content: numbers(four), TTL: time.Second}}},
		{"Put of the same", numbers(three), func(tx store.Tx) { tx.Put(0, three, time.Second) }, []store.Change{{Content: numbers(three), TTL: time.Second}}},
		{"Put, new", store.Content{}, func(tx store.Tx) { tx.Put(0, four, time.Second) }, []store.Change{{Content: numbers(four), TTL: time.Second}}},
		{"Put over a set", set(a), func(tx store.Tx) { tx.Put(0, four, time.Second) }, []store.Change{{Content: numbers(four), TTL: time.Second}}},
		{"Put over another value", store.Content{Kind: store.Other}, func(tx store.Tx) { tx.Put(0, four, time.Second) }, []store.Change{{Content: numbers(four), TTL: time.Second}}},
		{"Keep", numbers(three), func(tx store.Tx) { tx.Keep(0, four) }, []store.Change{{Content: numbers(four)}}},
		{"Keep, missing", store.Content{}, func(tx store.Tx) { tx.Keep(0, four) }, nil},
		{"Put and Keep", numbers(three), func(tx store.Tx) { tx.Put(0, three, time.Second); tx.Keep(0, four) }, []store.Change{{Content: numbers(four), TTL: time.Second}}},
		{"Del", numbers(three), func(tx store.Tx) { tx.Del(0) }, []store.Change{{Deleted: true}}},
		{"Del of a set", set(a), func(tx store.Tx) { tx.Del(0) }, []store.Change{{Deleted: true}}},
		{"Del of another value", store.Content{Kind: store.Other}, func(tx store.Tx) { tx.Del(0) }, []store.Change{{Deleted: true}}},
		{"Del, missing", store.Content{}, func(tx store.Tx) { tx.Del(0) }, nil},
		{"Put and Del", store.Content{}, func(tx store.Tx) { tx.Put(0, three, time.Second); tx.Del(0) }, nil},
		{"Del and Put", numbers(three), func(tx store.Tx) { tx.Del(0); tx.Put(0, four, time.Second) }, []store.Change{{Content: numbers(four), TTL: time.Second}}},
		{"Del and Keep", numbers(three), func(tx store.Tx) { tx.Del(0); tx.Keep(0, four) }, []store.Change{{Deleted: true}}},
		{"Add", set(b), func(tx store.Tx) { tx.Add(0, a, time.Second) }, []store.Change{{Content: set(a, b), TTL: time.Second}}},
		{"Add, new", store.Content{}, func(tx store.Tx) { tx.Add(0, a, time.Second) }, []store.Change{{Content: set(a), TTL: time.Second}}},
		{"Add, the same", set(a, b), func(tx store.Tx) { tx.Add(0, a, time.Second) }, []store.Change{{Content: set(a, b), TTL: time.Second}}},
		{"Add moves", set(a, b), func(tx store.Tx) { tx.Add(0, store.Member{Score: 3, Text: "a"}, time.Second) },
			[]store.Change{{Content: set(b, store.Member{Score: 3, Text: "a"}), TTL: time.Second}}},
		{"Add, TTL kept", set(b), func(tx store.Tx) { tx.Add(0, a, 0) }, []store.Change{{Content: set(a, b)}}},
		{"Add, then Add with the TTL kept", set(b), func(tx store.Tx) { tx.Add(0, a, time.Second); tx.Add(0, store.Member{Score: 9, Text: "z"}, 0) },
			[]store.Change{{Content: set(a, b, store.Member{Score: 9, Text: "z"}), TTL: time.Second}}},
		{"Add, missing, TTL kept", store.Content{}, func(tx store.Tx) { tx.Add(0, a, 0) }, nil},
		{"Del and Add", set(b), func(tx store.Tx) { tx.Del(0); tx.Add(0, a, time.Second) }, []store.Change{{Content: set(a), TTL: time.Second}}},
		{"Remove", set(a, b), func(tx store.Tx) { tx.Remove(0, "a") }, []store.Change{{Content: set(b)}}},
		{"Remove, no such member", set(a), func(tx store.Tx) { tx.Remove(0, "c") }, nil},
		{"Remove the last", set(a), func(tx store.Tx) { tx.Remove(0, "a") }, []store.Change{{Deleted: true}}},
		{"Remove, missing", store.Content{}, func(tx store.Tx) { tx.Remove(0, "a") }, nil},
		{"Add and Remove", store.Content{}, func(tx store.Tx) { tx.Add(0, a, time.Second); tx.Remove(0, "a") }, nil},
		{"Remove and Add", set(a), func(tx store.Tx) { tx.Remove(0, "a"); tx.Add(0, b, time.Second) }, []store.Change{{Content: set(b), TTL: time.Second}}},
		{"Trim", set(a, b), func(tx store.Tx) { tx.Trim(0, 1) }, []store.Change{{Content: set(b)}}},
		{"Trim all", set(a, b), func(tx store.Tx) { tx.Trim(0, 9) }, []store.Change{{Deleted: true}}},
		{"Trim none", set(a), func(tx store.Tx) { tx.Trim(0, 0); tx.Trim(0, -1) }, nil},
		{"Trim and Add the trimmed", set(a, b), func(tx store.Tx) { tx.Trim(0, 1); tx.Add(0, a, time.Second) }, []store.Change{{Content: set(a, b), TTL: time.Second}}},
		{"a set in any order", set(b, a), func(tx store.Tx) { tx.Add(0, store.Member{Score: 2, Text: "aa"}, time.Second) },
			[]store.Change{{Content: set(a, store.Member{Score: 2, Text: "aa"}, b), TTL: time.Second}}},
		{"another key", numbers(three), func(tx store.Tx) { tx.Put(1, four, time.Second) }, []store.Change{{Key: 1, Content: numbers(four), TTL: time.Second}}},
		{"two keys", numbers(three), func(tx store.Tx) { tx.Put(1, four, time.Second); tx.Del(0) },
			[]store.Change{{Deleted: true}, {Key: 1, Content: numbers(four), TTL: time.Second}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			held := []store.Content{tt.held, {}}
			held[0].Members = slices.Grow(slices.Clone(tt.held.Members), 4) // spare capacity, into which an append would write
			before := slices.Clone(held[0].Members[:cap(held[0].Members)])
			tx := store.NewLoaded(1, held)
			tt.do(tx)
			for _, c := range tt.want { // what the form reads then
				if n, ok, err := tx.Get(c.Key); n != c.Content.Nums || ok != (c.Content.Kind == store.Numbers) || (err != nil) != (c.Content.Kind == store.Set) {
					t.Errorf("Get(%d) = %v, %v, %v, want %+v", c.Key, n, ok, err, c.Content)
				}
			}
			if got := tx.Changes(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if got := held[0].Members[:cap(held[0].Members)]; !slices.Equal(got, before) {
				t.Errorf("the given members became %v, were %v", got, before)
			}
		})
	}
}

// A set behaves like a sorted list.
func TestLoadedModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		member := func() store.Member {
			return store.Member{Score: r.Int64N(20), Text: fmt.Sprint(r.IntN(30))}
		}
		var list []store.Member
		without := func(text string) []store.Member {
			return slices.DeleteFunc(list, func(m store.Member) bool { return m.Text == text })
		}
		for range r.IntN(30) {
			m := member()
			list = append(without(m.Text), m)
		}
		tx := store.NewLoaded(1, []store.Content{set(slices.Clone(list)...)})
		order := func() {
			slices.SortFunc(list, func(a, b store.Member) int {
				return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Text, b.Text))
			})
		}
		order()
		for step := range 200 {
			switch m := member(); r.IntN(4) {
			case 0, 1:
				tx.Add(0, m, time.Second)
				list = append(without(m.Text), m)
				order()
			case 2:
				tx.Remove(0, m.Text)
				list = without(m.Text)
			case 3:
				n := r.Int64N(3)
				tx.Trim(0, n)
				list = slices.Delete(list, 0, min(int(n), len(list)))
			}
			for i := range list {
				m := list[len(list)-1-i]
				if got, ok, err := tx.At(0, int64(i)); got != m || !ok || err != nil {
					t.Fatalf("seed %d, step %d: At(%d) = %v, %v, %v, want %v", seed, step, i, got, ok, err, m)
				}
				if got, ok, err := tx.Score(0, m.Text); got != m.Score || !ok || err != nil {
					t.Fatalf("seed %d, step %d: Score(%q) = %d, %v, %v, want %d", seed, step, m.Text, got, ok, err, m.Score)
				}
			}
			after, want := r.Int64N(20), int64(0)
			for _, m := range list {
				if m.Score > after {
					want++
				}
			}
			if above, all, err := tx.Count(0, after); above != want || all != int64(len(list)) || err != nil {
				t.Fatalf("seed %d, step %d: Count(%d) = %d, %d, %v, want %d, %d", seed, step, after, above, all, err, want, len(list))
			}
		}
	}
}
