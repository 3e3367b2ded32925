package store

import (
	"strconv"
	"time"
)

// A Tx is what a Go form sees of the keys of one step. Key i is keys[i] of the
// call. A key is missing, or it holds [Nums], a sorted set, or a foreign value.
//
// A form follows these rules:
//   - It reads a sorted set before it changes that set. What a later read of
//     the set returns in the same step is not defined.
//   - Get sees what Put, Keep and Del did before in the same step.
//   - It changes nothing if its script is read-only.
//
// A store follows these rules:
//   - A key that expires at Now, or that expired before, is missing.
//   - Changes apply in the order in which the form made them. All of them take
//     effect when the form returns without an error; otherwise none does.
//   - A store removes no member by itself, whatever its score and Now are. A
//     member stays until the form removes it or the key expires.
//
// A Tx that reads from a server while the form runs may also return
// [ErrUnavailable] or the error of the call's context.
//
// [NewLoaded] returns a ready Tx for stores that read all keys first.
type Tx interface {
	// Now returns the store's clock, in microseconds since the Unix epoch. The
	// store reads the clock once for each step, after it has taken its locks.
	Now() int64

	// Get returns the Nums at key i. The second result is false if the key is
	// missing. Get accepts any tag: the form checks [Nums].Tag itself.
	//
	// The error is ForeignAt(i) if the key holds anything but Nums, for example
	// a sorted set.
	Get(i int) (Nums, bool, error)

	// Put sets key i to n, whatever the key holds. The key expires after ttl,
	// which is positive and a whole number of milliseconds.
	Put(i int, n Nums, ttl time.Duration)

	// Keep sets key i to n, like Put, but the key keeps its TTL. The key must
	// exist: Keep does nothing if the key is missing.
	Keep(i int, n Nums)

	// Del deletes key i, whatever the key holds. The key may be missing.
	Del(i int)

	// At returns a member of the sorted set at key i, counted from the end: 0
	// is the last member, 1 is the one before it. Members are ordered by score,
	// then by the bytes of their text. The second result is false if there is
	// no such member.
	//
	// The error is ForeignAt(i) if the key holds anything but a sorted set.
	At(i int, fromEnd int64) (Member, bool, error)

	// Count returns how many members of the sorted set at key i have a score
	// above after, and how many members there are. Both are 0 if the key is
	// missing.
	//
	// The error is ForeignAt(i) if the key holds anything but a sorted set.
	Count(i int, after int64) (above, all int64, err error)

	// Score returns the score of the member with that text in the sorted set at
	// key i. The second result is false if there is no such member.
	//
	// The error is ForeignAt(i) if the key holds anything but a sorted set.
	Score(i int, text string) (score int64, ok bool, err error)

	// Add adds m to the sorted set at key i. If the set has a member with the
	// same text, that member moves to the new score. The whole key expires
	// after ttl, which is positive and a whole number of milliseconds.
	Add(i int, m Member, ttl time.Duration)

	// Remove removes the member with that text from the sorted set at key i, if
	// there is one. The key keeps its TTL. A set without members is missing.
	Remove(i int, text string)

	// Trim removes the n lowest members of the sorted set at key i, or all if
	// there are fewer. The key keeps its TTL. A set without members is missing.
	Trim(i int, n int64)
}

// MaxText is the largest length of a [Member].Text, in bytes. A store must keep
// texts up to this length, so a column or an index entry can be bounded.
const MaxText = 1024

// A Member is an entry of a sorted set.
type Member struct {
	// Score is an integer from 0 to 2^53-1.
	Score int64

	// Text holds up to MaxText bytes of any value. It is unique in its set.
	Text string
}

// A Tag identifies the algorithm that wrote a value, and the layout of the
// value: a letter for the algorithm and a digit for the version of the layout.
type Tag [2]byte

// MaxNums is the largest number of integers in a [Nums].
const MaxNums = 8

// Nums is a value of a key: a tag and up to [MaxNums] integers from 0 to 2^53-1.
//
// Its text is "g1 1767225600000000 0 1": the tag, then each integer in decimal
// behind a single space. Redis servers hold this text, and other stores can.
type Nums struct {
	Tag Tag
	Len uint8 // how many elements of N are used; the others are 0
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

// ParseNums returns the Nums whose text is s. The second result is false if s is
// not the text of a Nums.
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
