package memory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/store"
)

// A set is a sorted set: its members are ordered by score, then by text. It
// mostly grows at its end and shrinks at its beginning.
type set struct {
	members  []store.Member
	shuffled bool             // the order of the texts differs from the order of the members
	scores   map[string]int64 // the scores by text, for a large shuffled set; otherwise nil
}

// scanned is the largest shuffled set that is searched member by member.
const scanned = 64

// find returns the index of the member with this text. If each text begins with the time
// that is its score, texts and members have the same order. So most sets need no map.
func (s *set) find(text string) (int, bool) {
	switch {
	case !s.shuffled:
		return slices.BinarySearchFunc(s.members, text, func(m store.Member, text string) int { return strings.Compare(m.Text, text) })
	case s.scores == nil && len(s.members) <= scanned:
		at := slices.IndexFunc(s.members, func(m store.Member) bool { return m.Text == text })
		return at, at >= 0
	case s.scores == nil:
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

// add adds m, or moves the member with the text of m.
func (s *set) add(m store.Member) {
	if at, ok := s.find(m.Text); ok {
		s.remove(at, 1)
	}
	at, _ := slices.BinarySearchFunc(s.members, m, compare)
	s.members = slices.Insert(s.members, at, m)
	if at > 0 && s.members[at-1].Text > m.Text || at+1 < len(s.members) && s.members[at+1].Text < m.Text {
		s.shuffled = true
	}
	if s.scores != nil {
		s.scores[m.Text] = m.Score
	}
}

// remove removes n members, starting at index at. It moves the members on the shorter
// side.
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
	s.shuffled = s.shuffled && n < len(m)
	if at > (len(m)-n)/2 {
		s.members = slices.Delete(m, at, at+n)
		return
	}
	copy(m[n:], m[:at])
	clear(m[:n])      // release the texts
	s.members = m[n:] // a later append moves the members to a new array
}

// A setChange is one change to a set.
type setChange struct {
	set    *set
	op     setOp
	member store.Member // the member to add; to remove, only its text is used
	n      int64        // how many members to trim
}

type setOp uint8

const (
	addMember setOp = iota
	removeMember
	trimMembers
)

func (c *setChange) make() {
	switch c.op {
	case addMember:
		c.set.add(c.member)
	case removeMember:
		if at, ok := c.set.find(c.member.Text); ok {
			c.set.remove(at, 1)
		}
	case trimMembers:
		if n := min(c.n, int64(len(c.set.members))); n > 0 {
			c.set.remove(0, int(n))
		}
	}
}

func compare(a, b store.Member) int {
	return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Text, b.Text))
}

// setOf returns the set at key i, or nil if the key is missing.
func (t *tx) setOf(i int) (*set, error) {
	v := &t.keys[i]
	if v.live && v.set == nil {
		return nil, store.ForeignAt(i)
	}
	return v.set, nil
}

// At implements [store.Tx].
func (t *tx) At(i int, fromEnd int64) (store.Member, bool, error) {
	s, err := t.setOf(i)
	if s == nil {
		return store.Member{}, false, err
	}
	n := int64(len(s.members))
	if fromEnd < 0 || fromEnd >= n {
		return store.Member{}, false, nil
	}
	return s.members[n-1-fromEnd], true, nil
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

// Score implements [store.Tx].
func (t *tx) Score(i int, text string) (score int64, ok bool, err error) {
	s, err := t.setOf(i)
	if s == nil {
		return 0, false, err
	}
	at, ok := s.find(text)
	if !ok {
		return 0, false, nil
	}
	return s.members[at].Score, true, nil
}

// Add implements [store.Tx].
func (t *tx) Add(i int, m store.Member, ttl time.Duration) {
	v := &t.keys[i]
	t.dirty = true
	if v.set == nil {
		if ttl == 0 {
			return
		}
		v.set, v.nums = new(set), store.Nums{}
	}
	if ttl > 0 {
		v.expires = t.now + ttl.Microseconds()
	}
	m.Text = strings.Clone(m.Text) // the text may be borrowed
	t.sets = append(t.sets, setChange{set: v.set, op: addMember, member: m})
	v.live, v.change = true, written
}

// Remove implements [store.Tx].
func (t *tx) Remove(i int, text string) {
	t.change(i, setChange{op: removeMember, member: store.Member{Text: text}})
}

// Trim implements [store.Tx].
func (t *tx) Trim(i int, n int64) { t.change(i, setChange{op: trimMembers, n: n}) }

func (t *tx) change(i int, c setChange) {
	if v := &t.keys[i]; v.set != nil {
		c.set = v.set
		t.sets = append(t.sets, c)
		v.change = written
	}
	t.dirty = true
}
