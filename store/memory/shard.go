package memory

import (
	"maps"
	"math/bits"
	"sync"

	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/store"
)

const (
	minSlots    = 8
	sweepSlots  = 8  // how many slots are swept for each new key
	sampleKeys  = 8  // how many keys are sampled to evict one of them
	sampleSlots = 64 // the largest number of slots that are searched for the sample
)

// A shard is an open-addressing hash table with linear probing. The slots hold
// the state itself. Removing a key moves later slots up, so there are no
// tombstones. The table is at most three quarters full.
type shard struct {
	mu     sync.Mutex
	max    int // the largest number of keys
	used   int
	cursor int // the slot at which the next sweep or sample begins
	slots  []slot
	extras map[uint32]*extra
	last   uint32                        // the last key in extras that was used
	keep   bool                          // evict no key before it expires
	_      [112 - 7*bits.UintSize/8]byte // padding to 128 bytes, so that two shards share no cache line
}

// home returns the slot at which the search for hash begins. The lowest bit of a hash is
// always set, so it is not used.
func (sh *shard) home(hash uint64) int { return int(hash>>1) & (len(sh.slots) - 1) }

// find returns the slot that holds key, or false.
func (sh *shard) find(hash uint64, key string) (int, bool) {
	if len(sh.slots) == 0 {
		return 0, false
	}
	mask := len(sh.slots) - 1
	for i := sh.home(hash); ; i = (i + 1) & mask {
		sl := &sh.slots[i]
		if sh.holds(sl, hash, key) {
			return i, true
		}
		if sl.hash == 0 {
			return i, false
		}
	}
}

// findKey returns the slot that holds k, or nil.
func (sh *shard) findKey(k *storekey.Key) *slot {
	if len(sh.slots) == 0 {
		return nil
	}
	hash, frame := k.Hash(), k.Frame.ID()
	mask := len(sh.slots) - 1
	for i := sh.home(hash); ; i = (i + 1) & mask {
		sl := &sh.slots[i]
		if sl.hash == hash {
			text, framed := sh.text(sl), frame != 0 && frame == sl.frame
			if framed && k.IsFramed(text) {
				return sl
			}
			if k.Is(text, framed) {
				sl.frame = frame
				return sl
			}
		}
		if sl.hash == 0 {
			return nil
		}
	}
}

// put sets key, and returns its slot. If the key is new, the caller has already evicted
// another key if necessary.
func (sh *shard) put(hash uint64, key string, n *store.Nums, set *set, expires, now int64) *slot {
	i, ok := sh.find(hash, key)
	if !ok {
		sh.sweep(now)
		if sh.used+1 > len(sh.slots)*3/4 {
			sh.resize(max(minSlots, 2*len(sh.slots)), now)
		}
		i, _ = sh.find(hash, key)
		sh.init(&sh.slots[i], hash, key)
		sh.used++
	}
	sl := &sh.slots[i]
	sh.write(sl, n, set)
	sl.Expires, sl.Denied = expires, false
	return sl
}

// remove empties slot i, and moves later keys up, so that searches still find them.
func (sh *shard) remove(i int) {
	sh.forget(&sh.slots[i])
	mask := len(sh.slots) - 1
	for j := (i + 1) & mask; sh.slots[j].hash != 0; j = (j + 1) & mask {
		if (j-sh.home(sh.slots[j].hash))&mask >= (j-i)&mask {
			sh.slots[i] = sh.slots[j]
			i = j
		}
	}
	sh.slots[i] = slot{}
	sh.used--
}

// sweep removes the expired keys among the next few slots. It releases memory if
// most of the table is empty.
func (sh *shard) sweep(now int64) {
	for range min(sweepSlots, len(sh.slots)) {
		sh.cursor &= len(sh.slots) - 1
		if sl := &sh.slots[sh.cursor]; sl.hash != 0 && sl.Expires <= now {
			sh.remove(sh.cursor) // look at this slot again: another key may have moved here
		} else {
			sh.cursor++
		}
	}
	if len(sh.slots) > minSlots && sh.used < len(sh.slots)/8 {
		sh.resize(len(sh.slots)/2, now)
	}
}

// resize moves the keys that have not expired to a table of n slots. If that table is
// smaller, it moves the extras to a smaller map too.
func (sh *shard) resize(n int, now int64) {
	old := sh.slots
	sh.slots, sh.used = make([]slot, n), 0
	for i := range old {
		switch sl := &old[i]; {
		case sl.hash == 0:
		case sl.Expires <= now:
			sh.forget(sl)
		default:
			at := sh.home(sl.hash)
			for sh.slots[at].hash != 0 {
				at = (at + 1) & (n - 1)
			}
			sh.slots[at] = *sl
			sh.used++
		}
	}
	if n < len(old) { // a map keeps its memory when elements are deleted
		extras := make(map[uint32]*extra, len(sh.extras))
		maps.Copy(extras, sh.extras)
		sh.extras = extras
	}
}

// sample calls visit for slots that hold keys, until visit has returned true for a few of
// them: those are in the sample. The next sample continues after them.
func (sh *shard) sample(visit func(at int) bool) {
	for n, seen := 0, 0; n < min(len(sh.slots), sampleSlots) && seen < sampleKeys; n++ {
		sh.cursor &= len(sh.slots) - 1
		if sh.slots[sh.cursor].hash != 0 && visit(sh.cursor) {
			seen++
		}
		sh.cursor++
	}
}

// spares reports whether the key in sl must stay, because it has not expired, and its
// last request was denied or the shard evicts no key early.
func (sh *shard) spares(sl *slot, now int64) bool {
	return (sl.Denied || sh.keep) && sl.Expires > now
}

// rounding returns the largest difference between the expiries of two keys that count as
// expiring together, for a key with this TTL. It is 1.05 s, because TTLs are rounded up
// by at most about one second. It is at most a quarter of the TTL, so that short TTLs
// still differ.
func rounding(ttl int64) int64 { return min(ttl/4, 1<<20) }
