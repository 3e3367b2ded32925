package store

import (
	"strconv"
	"time"
)

// A Tx is what a Go form sees of the keys of one step: keys[i] is key i. A key
// holds [Nums] or a sorted set. What a form puts is seen by its later gets, and
// by others once the form has returned nil.
//
// A backend provides it over any state that it can lock, read and write: a map,
// a row of a table. See docs/backends.md.
type Tx interface {
	// Now returns the store's clock in microseconds since the Unix epoch, read
	// after the locks of the step were taken, and the same all through the step.
	Now() int64

	// Get returns what key i holds. The second result is false, and the first
	// zero, when the key is missing or expired. The error is Foreign(i) when it
	// holds anything but Nums with that tag.
	Get(i int, tag Tag) (Nums, bool, error)

	// Foreign returns the ErrForeign that names key i, for a form that finds
	// Nums with its tag, and not of its making.
	Foreign(i int) error

	// Put sets key i to n, to be forgotten after ttl, which is positive and a
	// whole number of milliseconds; or, with a ttl of 0, when what the key held
	// until now was to be: it is then not missing.
	Put(i int, n Nums, ttl time.Duration)

	// Del deletes key i, whatever it holds.
	Del(i int)

	// At returns the member at that rank of the sorted set at key i: by score,
	// then by the bytes of the text, from 0; -1 is the last, -2 the one before.
	// The second result is false when there is none. The error is Foreign(i)
	// when the key holds anything but a sorted set.
	At(i int, rank int64) (Member, bool, error)

	// Count returns how many members of the sorted set at key i have a score
	// above after, and how many there are, 0 of a missing key. The error is
	// that of At.
	Count(i int, after int64) (above, all int64, err error)

	// Find returns the rank of the member with that text in the sorted set at key
	// i, from 0. The second result is false when there is none. The error is that
	// of At.
	Find(i int, text string) (rank int64, ok bool, err error)

	// Add adds m to the sorted set at key i, in which no member has its text.
	// A form reads a set before it changes it; the changes are made in order.
	Add(i int, m Member)

	// Remove removes n members of the sorted set at key i, from that rank on, or as
	// many as there are. The rank, 0 or more, is that after the changes before. A
	// set that a step leaves without members is missing.
	Remove(i int, rank, n int64)

	// Expire sets when key i, of a sorted set that was added to, is to be
	// forgotten, as Put does for Nums. A set that is new has to be given a
	// time. A missing key stays missing.
	Expire(i int, ttl time.Duration)
}

// A Member is an entry of a sorted set. The score is an integer from 0 to 2^53-1;
// the text, which may hold any bytes, is unique in its set.
type Member struct {
	Score int64
	Text  string
}

// A Tag says whose value a key holds, and in which layout: a letter for the
// algorithm and a digit for the version.
type Tag [2]byte

// MaxNums is how many integers a [Nums] can hold.
const MaxNums = 4

// Nums is what a key holds: a tag and up to [MaxNums] integers from 0 to 2^53-1.
// As text, in a server or in a column, it reads "g1 1767225600000000 0 1": the
// tag, then each integer in decimal, separated by single spaces.
type Nums struct {
	Tag Tag
	Len uint8
	N   [MaxNums]int64
}

// AppendText appends the text of n to b.
func (n *Nums) AppendText(b []byte) []byte {
	b = append(b, n.Tag[0], n.Tag[1])
	for _, v := range n.N[:n.Len] {
		b = append(b, ' ')
		b = strconv.AppendInt(b, v, 10)
	}
	return b
}

// String returns the text of n.
func (n Nums) String() string { return string(n.AppendText(nil)) }

// ParseNums returns the Nums of which s is the text, false when s is no such text.
func ParseNums(s string) (Nums, bool) {
	var n Nums
	if len(s) < len(n.Tag) {
		return Nums{}, false
	}
	n.Tag = Tag{s[0], s[1]}
	for s = s[len(n.Tag):]; s != ""; n.Len++ {
		if n.Len == MaxNums || s[0] != ' ' {
			return Nums{}, false
		}
		i, v := 1, int64(0)
		for ; i < len(s) && '0' <= s[i] && s[i] <= '9'; i++ {
			if v = v*10 + int64(s[i]-'0'); v >= 1<<53 {
				return Nums{}, false
			}
		}
		if i == 1 {
			return Nums{}, false
		}
		n.N[n.Len], s = v, s[i:]
	}
	return n, true
}
