package memory

import (
	"strings"

	"github.com/weir-go/weir/store"
)

const (
	slotKey  = 71 // the longest key that fits into a slot, in bytes
	slotInts = 4  // the number of integers that fit into a slot
	setLen   = 99 // slot.len of a sorted set
)

// A slot holds a key and its value. If its hash is 0, it is empty. It has 128 bytes, which
// are two cache lines. It has no pointers, so the garbage collector does not scan it. Long
// keys and large values are in shard.extras:
//
//	key of 1 to 71 bytes   in key, keyLen bytes
//	other key              keyLen is 0, and the key is in the extra
//	up to 4 integers       in ints, len of them
//	5 to 8 integers        4 in ints, the others in the extra
//	sorted set             len is setLen, and the set is in the extra
type slot struct {
	hash    uint64
	expires int64 // microseconds since the epoch
	ints    [slotInts]int64
	extra   uint32 // the key in shard.extras; 0 if everything fits into the slot
	tag     store.Tag
	len     uint8 // the number of integers, or setLen
	denied  bool  // the last request that could have changed the key was denied
	keyLen  uint8 // 0 if the key is in the extra
	key     [slotKey]byte
}

// An extra holds the parts of a key and its value that do not fit into a slot.
type extra struct {
	key  string // a long key, otherwise ""
	more [store.MaxNums - slotInts]int64
	set  *set
}

// holds reports whether sl holds key.
func (sh *shard) holds(sl *slot, hash uint64, key string) bool {
	switch {
	case sl.hash != hash:
		return false
	case sl.keyLen > 0:
		return string(sl.key[:sl.keyLen]) == key
	}
	return sh.extras[sl.extra].key == key
}

// keyOf returns a copy of the key in sl.
func (sh *shard) keyOf(sl *slot) string {
	if sl.keyLen > 0 {
		return string(sl.key[:sl.keyLen])
	}
	return sh.extras[sl.extra].key
}

// init makes sl, an empty slot, hold key.
func (sh *shard) init(sl *slot, hash uint64, key string) {
	sl.hash = hash
	if key != "" && len(key) <= slotKey {
		sl.keyLen = uint8(copy(sl.key[:], key))
		return
	}
	sh.extend(sl).key = strings.Clone(key)
}

// value returns the value in sl: integers, or a set.
func (sh *shard) value(sl *slot) (n store.Nums, s *set) {
	if sl.len == setLen {
		return n, sh.extras[sl.extra].set
	}
	n.Tag, n.Len = sl.tag, sl.len
	copy(n.N[:], sl.ints[:])
	if sl.len > slotInts {
		more := sh.extras[sl.extra].more
		copy(n.N[slotInts:], more[:])
	}
	return n, nil
}

// write sets the value in sl to the set s, or to n if s is nil.
func (sh *shard) write(sl *slot, n *store.Nums, s *set) {
	if s != nil {
		sl.tag, sl.ints, sl.len = store.Tag{}, [slotInts]int64{}, setLen
		e := sh.extend(sl)
		e.set, e.more = s, [store.MaxNums - slotInts]int64{}
		return
	}
	sl.tag, sl.len = n.Tag, n.Len
	copy(sl.ints[:], n.N[:])
	switch {
	case n.Len > slotInts:
		e := sh.extend(sl)
		e.set = nil
		copy(e.more[:], n.N[slotInts:])
	case sl.extra > 0 && sl.keyLen == 0:
		sh.extras[sl.extra].set = nil
	case sl.extra > 0:
		sh.forget(sl)
	}
}

// extend returns the extra of sl, which it makes if there is none.
func (sh *shard) extend(sl *slot) *extra {
	if sl.extra == 0 {
		if sh.extras == nil {
			sh.extras = map[uint32]*extra{}
		}
		for sl.extra == 0 || sh.extras[sl.extra] != nil {
			sh.last++
			sl.extra = sh.last
		}
		sh.extras[sl.extra] = new(extra)
	}
	return sh.extras[sl.extra]
}

// forget removes the extra of sl, if it has one.
func (sh *shard) forget(sl *slot) {
	if sl.extra > 0 {
		delete(sh.extras, sl.extra)
		sl.extra = 0
	}
}
