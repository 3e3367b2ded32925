package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// A set is a sorted set: members by score, then by text. It mostly grows at
// its end and shrinks at its beginning.
type set struct{ members []store.Member }

// A setChange adds a member, or trims.
type setChange struct {
	set  *set
	add  store.Member
	trim int64 // if not 0
}

func (c *setChange) make() {
	m := c.set.members
	if c.trim > 0 {
		n := min(int(c.trim), len(m))
		clear(m[:n])          // let go of the texts
		c.set.members = m[n:] // appending will move what is left to a new array some day
		return
	}
	at, _ := slices.BinarySearchFunc(m, c.add, compare)
	c.set.members = slices.Insert(m, at, c.add)
}

func compare(a, b store.Member) int {
	return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Text, b.Text))
}

// setOf returns the set at key i, nil if the key is missing.
func (t *tx) setOf(i int) (*set, error) {
	v := &t.keys[i]
	if v.live && v.set == nil {
		return nil, t.Foreign(i)
	}
	return v.set, nil
}

// At implements [store.Tx].
func (t *tx) At(i int, rank int64) (store.Member, bool, error) {
	s, err := t.setOf(i)
	if s == nil {
		return store.Member{}, false, err
	}
	n := int64(len(s.members))
	if rank < 0 {
		rank += n
	}
	if rank < 0 || rank >= n {
		return store.Member{}, false, nil
	}
	return s.members[rank], true, nil
}

// Count implements [store.Tx].
func (t *tx) Count(i int, after int64) (above, all int64, err error) {
	s, err := t.setOf(i)
	if s == nil {
		return 0, 0, err
	}
	at, _ := slices.BinarySearchFunc(s.members, after, func(m store.Member, after int64) int {
		if m.Score > after {
			return 1
		}
		return -1
	})
	return int64(len(s.members) - at), int64(len(s.members)), nil
}

// Add implements [store.Tx].
func (t *tx) Add(i int, m store.Member) {
	v := &t.keys[i]
	if v.set == nil {
		v.set, v.nums = new(set), store.Nums{}
	}
	m.Text = strings.Clone(m.Text) // it may be borrowed
	t.sets = append(t.sets, setChange{set: v.set, add: m})
	v.live, v.change, t.dirty = true, written, true
}

// Trim implements [store.Tx].
func (t *tx) Trim(i int, n int64) {
	if v := &t.keys[i]; v.set != nil && n > 0 {
		t.sets = append(t.sets, setChange{set: v.set, trim: n})
		v.change, t.dirty = written, true
	}
}

// Expire implements [store.Tx].
func (t *tx) Expire(i int, ttl time.Duration) {
	v := &t.keys[i]
	v.expires = t.now + ttl.Microseconds()
	v.change, t.dirty = written, true
}
