package memory

import (
	"strings"
	"unsafe"

	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/store"
)

const (
	slotKey  = 67 // the longest key that fits into a slot, in bytes
	slotInts = 4  // the number of integers that fit into a slot
	setLen   = 99 // slot.Len of a sorted set
)

// A slot holds a key and its value. If its hash is 0, it is empty. It has 128 bytes,
// which are two cache lines. It has no pointers, so the garbage collector does not scan
// it. Long keys and large values are in shard.extras:
//
//	key of 1 to 67 bytes   in key, keyLen bytes
//	other key              keyLen is 0, and the key is in the extra
//	up to 4 integers       in Ints, Len of them
//	5 to 9 integers        4 in Ints, the others in the extra
//	sorted set             Len is setLen, and the set is in the extra
type slot struct {
	hash uint64
	storekey.Record
	frame  uint32 // the ID of a storekey.Frame that the key has; 0 if none is known
	keyLen uint8  // 0 if the key is in the extra
	key    [slotKey]byte
}

// An extra holds the parts of a key and its value that do not fit into a slot.
type extra struct {
	key  string // a long key, otherwise ""
	part int    // of a marker: the number that ends its owner, plus 1; 0 if the rule has one key
	more [store.MaxNums - slotInts]int64
	set  *set
}

// holds reports whether sl holds key.
func (sh *shard) holds(sl *slot, hash uint64, key string) bool {
	return sl.hash == hash && sh.text(sl) == key
}

// text returns the key in sl. Use it only with the lock of sh: it can be the text in the
// slot.
func (sh *shard) text(sl *slot) string {
	if sl.keyLen > 0 {
		return unsafe.String(&sl.key[0], int(sl.keyLen))
	}
	return sh.extras[sl.Extra].key
}

// keyOf returns a copy of the key in sl.
func (sh *shard) keyOf(sl *slot) string { return strings.Clone(sh.text(sl)) }

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
	if sl.Len == setLen {
		return n, sh.extras[sl.Extra].set
	}
	n.Tag, n.Len = sl.Tag, sl.Len
	copy(n.N[:], sl.Ints[:])
	if sl.Len > slotInts {
		more := sh.extras[sl.Extra].more
		copy(n.N[slotInts:], more[:])
	}
	return n, nil
}

// write sets the value in sl to the set s, or to n if s is nil.
func (sh *shard) write(sl *slot, n *store.Nums, s *set) {
	if s != nil {
		sl.Tag, sl.Ints, sl.Len = store.Tag{}, [slotInts]int64{}, setLen
		e := sh.extend(sl)
		e.set, e.more = s, [store.MaxNums - slotInts]int64{}
		return
	}
	sl.Tag, sl.Len = n.Tag, n.Len
	sl.Ints = [slotInts]int64{}
	copy(sl.Ints[:], n.N[:n.Len])
	switch {
	case n.Len > slotInts:
		e := sh.extend(sl)
		e.set = nil
		copy(e.more[:], n.N[slotInts:])
	case sl.Extra > 0 && sl.keyLen == 0:
		sh.extras[sl.Extra].set = nil
	case sl.Extra > 0:
		sh.forget(sl)
	}
}

// extend returns the extra of sl, which it makes if there is none.
func (sh *shard) extend(sl *slot) *extra {
	if sl.Extra == 0 {
		if sh.extras == nil {
			sh.extras = map[uint32]*extra{}
		}
		for sl.Extra == 0 || sh.extras[sl.Extra] != nil {
			sh.last++
			sl.Extra = sh.last
		}
		sh.extras[sl.Extra] = new(extra)
	}
	return sh.extras[sl.Extra]
}

// forget removes the extra of sl, if it has one.
func (sh *shard) forget(sl *slot) {
	if sl.Extra > 0 {
		delete(sh.extras, sl.Extra)
		sl.Extra = 0
	}
}
