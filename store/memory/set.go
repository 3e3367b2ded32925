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
type set struct {
	members []store.Member
	scores  map[string]int64 // by text, once a large set was searched; else nil
}

// scanned is the size up to which a set is searched member by member.
const scanned = 64

// find returns the rank of the member with that text.
func (s *set) find(text string) (int, bool) {
	if s.scores == nil && len(s.members) <= scanned {
		at := slices.IndexFunc(s.members, func(m store.Member) bool { return m.Text == text })
		return at, at >= 0
	}
	if s.scores == nil {
		s.scores = make(map[string]int64, len(s.members))
		for _, m := range s.members {
			s.scores[m.Text] = m.Score
		}
	}
	score, ok := s.scores[text]
	if !ok {
		return -1, false
	}
	return slices.BinarySearchFunc(s.members, store.Member{Score: score, Text: text}, compare)
}

func (s *set) insert(m store.Member) {
	at, _ := slices.BinarySearchFunc(s.members, m, compare)
	s.members = slices.Insert(s.members, at, m)
	if s.scores != nil {
		s.scores[m.Text] = m.Score
	}
}

// remove removes n members from rank at on, and moves those on the shorter side.
func (s *set) remove(at, n int) {
	m := s.members
	if s.scores != nil {
		if len(m)-n <= scanned/2 {
			s.scores = nil
		}
		for _, gone := range m[at : at+n] {
			delete(s.scores, gone.Text)
		}
	}
	if at > (len(m)-n)/2 {
		s.members = slices.Delete(m, at, at+n)
		return
	}
	copy(m[n:], m[:at])
	clear(m[:n])      // let go of the texts
	s.members = m[n:] // appending will move what is left to a new array some day
}

// A setChange adds a member, or removes some.
type setChange struct {
	set    *set
	add    store.Member
	rank   int64
	remove int64 // if not 0
}

func (c *setChange) make() {
	all := int64(len(c.set.members))
	switch {
	case c.remove == 0:
		c.set.insert(c.add)
	case c.rank < all:
		c.set.remove(int(c.rank), int(min(c.remove, all-c.rank)))
	}
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

// Find implements [store.Tx].
func (t *tx) Find(i int, text string) (rank int64, ok bool, err error) {
	s, err := t.setOf(i)
	if s == nil {
		return 0, false, err
	}
	at, ok := s.find(text)
	return int64(max(at, 0)), ok, nil
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

// Remove implements [store.Tx].
func (t *tx) Remove(i int, rank, n int64) {
	if v := &t.keys[i]; v.set != nil && n > 0 && rank >= 0 {
		t.sets = append(t.sets, setChange{set: v.set, rank: rank, remove: n})
		v.change, t.dirty = written, true
	}
}

// Expire implements [store.Tx].
func (t *tx) Expire(i int, ttl time.Duration) {
	if v := &t.keys[i]; v.live {
		v.expires = t.now + ttl.Microseconds()
		v.change, t.dirty = written, true
	}
}
