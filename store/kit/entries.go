package kit

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weir-go/weir/store"
)

// The entries of a Store begin with one of these bytes. A set has a number, which no
// other set has, so that the members of a set that is gone never belong to another.
const (
	prefixDead   = 'g' // g number: the set is gone, and its members are to be deleted
	prefixKey    = 'k' // k key: the value of a key; of a set, only its number and its size
	prefixMember = 'm' // m number score text: a member
	prefixText   = 't' // t number text: the score of the member with this text
	prefixSpan   = 'x' // x span key: the key may expire in this span of time
)

// longKey is the length from which a key is shortened.
const longKey = 2000

// entry returns the key of the entry with this prefix and name.
func entry(prefix byte, name string) []byte {
	return append(append(make([]byte, 0, 1+len(name)), prefix), name...)
}

// numbered returns the key of an entry whose name begins with numbers.
func numbered(prefix byte, name string, numbers ...int64) []byte {
	b := append(make([]byte, 0, 17+len(name)), prefix)
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return append(b, name...)
}

// after returns the bounds of the entries whose keys begin with prefix and name.
func after(prefix byte, name string) (from, to []byte) {
	from = entry(prefix, name)
	for to = entry(prefix, name); to[len(to)-1] == math.MaxUint8; {
		to = to[:len(to)-1]
	}
	to[len(to)-1]++ // prefix is less than 255
	return from, to
}

// membersOf returns the bounds of the members of a set.
func membersOf(id int64) (from, to []byte) {
	return after(prefixMember, string(numbered(0, "", id)[1:]))
}

// memberAt returns the member with the key of an entry.
func memberAt(key []byte) (store.Member, bool) {
	if len(key) < 17 {
		return store.Member{}, false
	}
	return store.Member{Score: int64(binary.BigEndian.Uint64(key[9:])), Text: string(key[17:])}, true
}

// A head is the value of a key without the members of its set.
type head struct {
	kind    store.ContentKind // Missing if there is no entry
	expires int64
	nums    store.Nums
	id      int64 // the number of the set
	count   int64 // the number of its members
}

// holds returns the kind of the key at now.
func (h *head) holds(now int64) store.ContentKind {
	if h.kind != store.Other && h.expires <= now {
		return store.Missing
	}
	return h.kind
}

func (h *head) text() []byte {
	if h.kind == store.Numbers {
		return encode(store.Content{Kind: h.kind, Nums: h.nums}, h.expires)
	}
	return fmt.Appendf(nil, "%s%d %d %d", markMembers, h.expires, h.count, h.id)
}

func readHead(tx Tx, key []byte) (head, error) {
	value, err := tx.Get(key)
	if err != nil {
		return head{}, err
	}
	return parseHead(value), nil
}

// parseHead returns the head with this text. A text that the kit did not write is Other.
func parseHead(value []byte) head {
	if value == nil {
		return head{}
	}
	mark, expires, rest, err := decodeHead(value)
	h := head{expires: expires}
	switch {
	case err != nil:
	case mark == markNums:
		var ok bool
		if h.nums, ok = store.ParseNums(rest); ok {
			h.kind = store.Numbers
			return h
		}
	case mark == markMembers:
		count, id, _ := strings.Cut(rest, " ")
		var bad error
		h.count, err = strconv.ParseInt(count, 10, 64)
		h.id, bad = strconv.ParseInt(id, 10, 64)
		if err == nil && bad == nil && h.count > 0 {
			h.kind = store.Set
			return h
		}
	}
	return head{kind: store.Other}
}

// A span is about a minute, so a key that is in use is rarely filed again.
const span = 1 << 26 // in microseconds

// One of sweepEvery calls sweeps even if it makes no key.
const sweepEvery = 16

// sweep deletes up to n keys that have expired, and up to 16n members of sets that are
// gone. Every key that was made is filed once, so as many keys are swept as are made.
func sweep(tx Tx, now int64, n int) error {
	if n == 0 {
		return nil
	}
	if err := sweepMembers(tx, 16*n); err != nil {
		return err
	}
	to := numbered(prefixSpan, "", now/span)
	filed, err := keysOf(tx, []byte{prefixSpan}, to, n)
	for _, x := range filed {
		if err == nil {
			err = refile(tx, x, now)
		}
	}
	return err
}

// refile deletes the key that is filed as x if it has expired, and files it again
// otherwise.
func refile(tx Tx, x []byte, now int64) error {
	name := ""
	if len(x) > 9 {
		name = string(x[9:])
	}
	key := entry(prefixKey, name)
	h, err := readHead(tx, key)
	if err == nil {
		err = tx.Delete(x)
	}
	switch {
	case err != nil || h.kind == store.Missing || h.kind == store.Other: // a foreign value never expires
		return err
	case h.expires > now:
		return tx.Put(numbered(prefixSpan, name, h.expires/span), nil)
	}
	if err := bury(tx, &h); err != nil {
		return err
	}
	return tx.Delete(key)
}

// bury notes that the set of h is gone, if it is one.
func bury(tx Tx, h *head) error {
	if h.kind != store.Set {
		return nil
	}
	return tx.Put(numbered(prefixDead, "", h.id), nil)
}

// sweepMembers deletes up to n members of sets that are gone.
func sweepMembers(tx Tx, n int) error {
	dead, err := keysOf(tx, []byte{prefixDead}, []byte{prefixDead + 1}, n)
	for i := 0; i < len(dead) && n > 0 && err == nil; i++ {
		id := int64(0)
		if len(dead[i]) == 9 {
			id = int64(binary.BigEndian.Uint64(dead[i][1:]))
		}
		from, to := membersOf(id)
		var members [][]byte
		members, err = keysOf(tx, from, to, n)
		for _, key := range members {
			if m, ok := memberAt(key); ok && err == nil {
				err = erase(tx, id, m)
			}
		}
		if n -= len(members); n > 0 && err == nil {
			err = tx.Delete(dead[i])
		}
	}
	return err
}

// erase deletes the entries of a member.
func erase(tx Tx, id int64, m store.Member) error {
	if err := tx.Delete(numbered(prefixMember, m.Text, id, m.Score)); err != nil {
		return err
	}
	return tx.Delete(numbered(prefixText, m.Text, id))
}

// keysOf returns the keys of up to n entries.
func keysOf(tx Tx, from, to []byte, n int) (keys [][]byte, err error) {
	err = tx.Scan(from, to, false, func(key, _ []byte) bool {
		keys = append(keys, append([]byte(nil), key...))
		return len(keys) < n
	})
	return keys, err
}
