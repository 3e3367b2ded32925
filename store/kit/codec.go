package kit

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-go/weir/store"
)

// A value in a database begins with text for people: a mark for its kind and its layout,
// the time at which it expires in microseconds since the Unix epoch, and the rest:
//
//	n1 1767225600000000 g2 1767225600000000     a Nums
//	s1 1767225600000000 …                       a sorted set with its members, in binary
//	m1 1767225600000000 2 5577006791947779410   a sorted set whose 2 members are entries
const (
	markNums    = "n1 "
	markSet     = "s1 "
	markMembers = "m1 "
)

// encode returns the value of a key that holds c, a Nums or a set with its members.
func encode(c store.Content, expires int64) []byte {
	if c.Kind == store.Numbers {
		b := append(make([]byte, 0, 48), markNums...)
		b = append(strconv.AppendInt(b, expires, 10), ' ')
		return c.Nums.AppendText(b)
	}
	b := append(make([]byte, 0, 32+32*len(c.Members)), markSet...)
	b = append(strconv.AppendInt(b, expires, 10), ' ')
	for _, m := range c.Members {
		b = binary.AppendUvarint(b, uint64(m.Score))
		b = binary.AppendUvarint(b, uint64(len(m.Text)))
		b = append(b, m.Text...)
	}
	return b
}

// decode returns what a key with the value b holds at now, and when it expires. The key
// is missing if b is nil, or if it has expired. If encode did not write b, decode returns
// an error that says why, and the key holds Other.
func decode(b []byte, now int64) (c store.Content, expires int64, err error) {
	if b == nil {
		return store.Content{}, 0, nil
	}
	mark, expires, rest, err := decodeHead(b)
	switch {
	case err != nil:
	case expires <= now:
		return store.Content{}, expires, nil
	case mark == markNums:
		n, ok := store.ParseNums(rest)
		if ok {
			return store.Content{Kind: store.Numbers, Nums: n}, expires, nil
		}
		err = fmt.Errorf("%.40q is not the text of a Nums", rest)
	case mark == markSet:
		var members []store.Member
		if members, err = decodeMembers(rest); err == nil {
			return store.Content{Kind: store.Set, Members: members}, expires, nil
		}
	default:
		err = fmt.Errorf("a value that begins with %q has no members here", mark)
	}
	return store.Content{Kind: store.Other}, expires, err
}

// decodeHead splits a value into its mark, its time and the rest.
func decodeHead(b []byte) (mark string, expires int64, rest string, err error) {
	text := string(b)
	if len(text) >= 3 {
		mark = text[:3]
	}
	if mark != markNums && mark != markSet && mark != markMembers {
		return "", 0, "", fmt.Errorf("the value begins with %.8q: want %q, %q or %q", text, markNums, markSet, markMembers)
	}
	digits, rest, ok := strings.Cut(text[3:], " ")
	expires, err = strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || expires < 0 {
		return "", 0, "", fmt.Errorf("the value begins with %.40q: want %q and a time in microseconds", text, mark)
	}
	return mark, expires, rest, nil
}

func decodeMembers(s string) ([]store.Member, error) {
	var list []store.Member
	b := []byte(s)
	for at := 0; at < len(s); {
		score, n := binary.Uvarint(b[at:])
		size, m := binary.Uvarint(b[at+max(n, 0):])
		from := at + n + m
		if n <= 0 || m <= 0 || score >= 1<<53 || size > store.MaxText || from+int(size) > len(s) {
			return nil, fmt.Errorf("the set is cut or damaged after %d members", len(list))
		}
		at = from + int(size)
		list = append(list, store.Member{Score: int64(score), Text: s[from:at]})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the set has no members")
	}
	return list, nil
}

// shorten returns key if it is shorter than most bytes, and otherwise a text of most
// bytes: the beginning of the key and its SHA-256. So no two keys become the same.
func shorten(key string, most int) string {
	if len(key) < most {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:most-len(sum)] + string(sum[:])
}
