package store

import (
	"strconv"
	"time"
)

// A Tx gives a Go form access to the keys of one call of [Store.Eval]. Key i is keys[i]
// of the call. A key is missing, or it holds a [Nums], a sorted set, or a foreign value.
//
// A form follows these rules:
//   - It reads a sorted set before it changes that set. The result of a later read of the
//     set is not defined. If it has removed members, the result of a Keep, and of an Add
//     that keeps the TTL, is not defined either.
//   - Get returns the result of earlier calls of Put, Keep and Del.
//   - If its script is read-only, it makes no change.
//
// A store follows these rules:
//   - A key that expires at Now, or that expired before Now, is missing.
//   - Changes take effect in the order in which the form made them, when the form returns
//     without an error. If the form returns an error, no change takes effect.
//   - A store never removes members: a member stays until the form removes it,
//     or the key expires.
//
// If a Tx reads from a server while the form runs, its methods can also return
// [ErrUnavailable] or the error of the call's context.
//
// [NewLoaded] returns a Tx for stores that read all keys first.
type Tx interface {
	// Now returns the time of the store's clock, in microseconds since the Unix epoch.
	// The store reads the clock once for each call, after it has locked the keys, or
	// after it has read them if it takes no locks.
	Now() int64

	// Get returns the Nums at key i. The second result is false if the key is missing.
	// Nums can have any tag: the form must check it.
	//
	// The error is ForeignAt(i) if the key holds anything but a Nums, for example a
	// sorted set.
	Get(i int) (Nums, bool, error)

	// Put sets key i to n. The key can hold any value before. It expires after ttl,
	// which is positive and a whole number of milliseconds.
	Put(i int, n Nums, ttl time.Duration)

	// Keep sets key i to n, like Put, but the key keeps its TTL. If the key is
	// missing, Keep does nothing.
	Keep(i int, n Nums)

	// Del deletes key i. The key can hold any value, or be missing.
	Del(i int)

	// At returns a member of the sorted set at key i, counted from the end. 0 is the
	// last member, and 1 is the member before it. Members are ordered by score, then
	// by the bytes of their text. The second result is false if there is no such
	// member.
	//
	// The error is ForeignAt(i) if the key holds anything but a sorted set.
	At(i int, fromEnd int64) (Member, bool, error)

	// Count counts the members of the sorted set at key i. above is the number of
	// members whose score is greater than after. all is the number of all members. If
	// the key is missing, both are 0.
	//
	// The error is ForeignAt(i) if the key holds anything but a sorted set.
	Count(i int, after int64) (above, all int64, err error)

	// Score returns the score of the member with this text in the sorted set at key i.
	// ok is false if there is no such member.
	//
	// The error is ForeignAt(i) if the key holds anything but a sorted set.
	Score(i int, text string) (score int64, ok bool, err error)

	// Add adds m to the sorted set at key i. If the set has a member with the same text,
	// that member gets the new score. The key expires after ttl, which is a whole number
	// of milliseconds. If ttl is 0, the key keeps its TTL, and if it is missing, Add does
	// nothing.
	Add(i int, m Member, ttl time.Duration)

	// Remove removes the member with this text from the sorted set at key i, if there
	// is one. The key keeps its TTL. If the set is then empty, the key is deleted.
	Remove(i int, text string)

	// Trim removes the n lowest members of the sorted set at key i, or all members if
	// there are fewer. The key keeps its TTL. If the set is then empty, the key is
	// deleted.
	Trim(i int, n int64)
}

// MaxText is the largest length of a [Member].Text, in bytes. A store must be able to
// keep texts of this length, for example in a column of a table.
const MaxText = 1024

// A Member is an entry of a sorted set.
type Member struct {
	// Score is an integer from 0 to 2^53-1.
	Score int64

	// Text is a string of any bytes, at most MaxText, and can be empty. It is unique in
	// its set.
	Text string
}

// A Tag identifies the algorithm and the layout of a value. It is a letter for the
// algorithm and a digit for the version of the layout.
type Tag [2]byte

// MaxNums is the largest number of integers in a [Nums].
const MaxNums = 10

// Nums is a value of a key: a tag and up to [MaxNums] integers from 0 to 2^53-1.
//
// Its text is, for example, "g1 1767225600000000 0 1": the tag, and then each integer in
// decimal, without leading zeros, after a single space. Redis servers hold this text.
// Other stores can hold it too.
type Nums struct {
	Tag Tag
	Len uint8 // the number of elements of N that are used; the others are 0
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

// ParseNums returns the Nums with the text s. The second result is false if s is not the
// text of a Nums.
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
		if i == 1 || i > 2 && s[1] == '0' {
			return Nums{}, false
		}
		n.N[n.Len], s = v, s[i:]
	}
	return n, true
}
